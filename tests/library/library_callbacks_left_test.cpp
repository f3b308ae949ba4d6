// SPDX-License-Identifier: MIT
// The ways out of a callback that are no return, and the places where none is called: whatever happens, the program is as without it.
#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "library/callbacks.h"
#include "uprobe/callback.h"

using libuprobe::Callback;
using libuprobe::CallbackCounts;
using libuprobe::Callbacks;
using libuprobe::on_entry;
using libuprobe::on_return;
using libuprobe::Session;

extern "C" {
[[gnu::noipa]] int probed_sum(int a, int b) { return a + b; }
[[gnu::noipa]] int probed_throw(int n) {
  if (n > 2) throw std::runtime_error("n");
  return n;
}
}

namespace {

// What the compiler knows of the functions, their callers do not.
int (*volatile g_sum)(int, int) = probed_sum;
int (*volatile g_throw)(int) = probed_throw;

std::string at(const char* definition, const char* function) {
  static const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  return std::string(definition) + " " + self + ":" + function;
}

libuprobe::Result<Session> with(std::vector<Callback> callbacks) {
  return Session::attach({.callbacks = std::move(callbacks)}, ::getpid());
}

volatile sig_atomic_t g_in_handler = 0;
void handle(int) { g_in_handler = probed_sum(20, 1); }

// Of any child: -1.
int status_of(pid_t pid) {
  int status = 0;
  const pid_t ended = ::waitpid(pid, &status, 0);
  EXPECT_TRUE(ended > 0 && (pid == -1 || ended == pid));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

jmp_buf g_back;

TEST(CallbacksLeft, MayBeLeftByLongjmp) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int) {
    if (a < 0) ::longjmp(g_back, 1);
  })});
  ASSERT_TRUE(session) << session.error().message();
  static int round = 0;
  for (round = 0; round < 20; ++round)
    if (::setjmp(g_back) == 0) probed_sum(-1, round);
  EXPECT_EQ(probed_sum(1, 2), 3);
  EXPECT_EQ(session->callback_counts().at(0).called, 21U);
  EXPECT_EQ(session->callback_counts().at(0).nested, 0U);
}

// What was left is no caller of later calls, wherever these stand on the stack.
TEST(CallbacksLeft, AreCalledBelowOneThatLongjmpHasLeft) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int) {
    if (a < 0) ::longjmp(g_back, 1);
  })});
  ASSERT_TRUE(session) << session.error().message();
  if (::setjmp(g_back) == 0) probed_sum(-1, 0);
  const auto deep = [] __attribute__((noinline)) {
    volatile char room[256 << 10];
    room[0] = 0;
    room[sizeof room - 1] = 0;
    return probed_sum(1, room[0]);
  };
  EXPECT_EQ(deep(), 1);
  EXPECT_EQ(session->callback_counts().at(0).called, 2U);
  EXPECT_EQ(session->callback_counts().at(0).nested, 0U);
}

// The function runs where the handler of a signal that came during a callback calls it, and calls within the callback are within it
// afterwards. The handler's stack is above the thread's, and below it.
TEST(CallbacksLeft, AreInterruptedByHandlersOnOtherStacks) {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(::sigaction(SIGUSR2, &action, nullptr), 0);
  static int seen = 0;
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int) -> std::optional<int> {
    ++seen;
    ::raise(SIGUSR2);
    return probed_sum(a, 1) + 100;
  })});
  ASSERT_TRUE(session) << session.error().message();
  constexpr std::size_t kBytes = 1 << 20;
  char* const memory =
      static_cast<char*>(::mmap(nullptr, 3 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  for (const std::size_t place : {0, 2}) {
    seen = 0;
    g_in_handler = 0;
    const stack_t other{.ss_sp = memory + place * kBytes, .ss_flags = 0, .ss_size = kBytes};
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstack(&attributes, memory + kBytes, kBytes);
    pthread_t thread{};
    const auto work = [](void* stack) -> void* {
      ::sigaltstack(static_cast<const stack_t*>(stack), nullptr);
      const long sum = probed_sum(20, 2) + 1000L * probed_sum(30, 2);
      return reinterpret_cast<void*>(sum);
    };
    stack_t use = other;
    ASSERT_EQ(::pthread_create(&thread, &attributes, work, &use), 0);
    void* sum = nullptr;
    ::pthread_join(thread, &sum);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(sum), 131'121U);
    EXPECT_EQ(seen, 2);
    EXPECT_EQ(g_in_handler, 21) << "the function ran in the handler";
  }
  const CallbackCounts counts = session->callback_counts().at(0);
  EXPECT_EQ(counts.called, 4U);
  EXPECT_EQ(counts.nested, 4U);
  EXPECT_EQ(counts.in_signal + counts.unsure, 4U);
  EXPECT_EQ(Callbacks::inside(), 0);
  ::munmap(memory, 3 * kBytes);
  ::signal(SIGUSR2, SIG_DFL);
}

// The caller gets it, as if the function had thrown it; what lies between has its destructors run.
TEST(CallbacksLeft, MayThrow) {
  static int destroyed = 0;
  struct Counted {
    ~Counted() { ++destroyed; }
  };
  auto session = with({on_entry(at("p:sum", "probed_sum"),
                                [](int a, int) {
                                  const Counted counted;
                                  if (a < 0) throw std::out_of_range("negative");
                                }),
                       on_return(at("r:throw", "probed_throw"), [](int result) {
                         if (result == 2) throw std::logic_error("two");
                       })});
  ASSERT_TRUE(session) << session.error().message();
  for (int round = 0; round < 10; ++round) {
    EXPECT_THROW(g_sum(-1, round), std::out_of_range);
    EXPECT_EQ(g_sum(1, round), 1 + round);
    EXPECT_THROW(g_throw(2), std::logic_error);
    EXPECT_EQ(g_throw(1), 1);
  }
  EXPECT_EQ(destroyed, 20);
  EXPECT_EQ(session->callback_counts().at(0).called, 20U);
  EXPECT_EQ(session->callback_counts().at(0).nested, 0U);
}

// A thread that ends in a callback, by itself or since another one cancels it, is none that is inside.
TEST(CallbacksLeft, MayEndTheThread) {
  static std::atomic<bool> is_waiting = false;
  static std::atomic<int> destroyed = 0;
  struct Counted {
    ~Counted() { ++destroyed; }
  };
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int) {
    const Counted counted;
    if (a == 1) ::pthread_exit(nullptr);
    is_waiting = true;
    while (a == 2) ::pause();
  })});
  ASSERT_TRUE(session) << session.error().message();
  const auto work = [](void* a) -> void* {
    return reinterpret_cast<void*>(static_cast<long>(probed_sum(static_cast<int>(reinterpret_cast<long>(a)), 7)));
  };
  for (const long a : {1L, 2L, 3L}) {
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(&thread, nullptr, work, reinterpret_cast<void*>(a)), 0);
    if (a == 2) {
      while (!is_waiting) std::this_thread::yield();
      ::pthread_cancel(thread);
    }
    void* result = nullptr;
    ::pthread_join(thread, &result);
    EXPECT_EQ(result, a == 1 ? nullptr : a == 2 ? PTHREAD_CANCELED : reinterpret_cast<void*>(10));
  }
  EXPECT_EQ(destroyed, 3);
  EXPECT_EQ(Callbacks::inside(), 0);
}

// A child has only the thread that has forked, which may be in a callback and goes on there.
TEST(CallbacksLeft, MayForkAndBeForkedBeside) {
  static std::atomic<int> stage = 0;
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int) -> std::optional<int> {
    if (a == 1) {
      stage = 1;
      while (stage == 1) std::this_thread::yield();
    }
    if (a == 2) return ::fork() == 0 ? 100 : 200;
    return std::nullopt;
  })});
  ASSERT_TRUE(session) << session.error().message();
  std::thread other([] { probed_sum(1, 1); });
  while (stage != 1) std::this_thread::yield();
  const pid_t forked = ::fork();
  if (forked == 0) ::_exit(Callbacks::inside() == 0 && probed_sum(7, 7) == 14 ? 0 : 1);
  EXPECT_EQ(status_of(forked), 0);
  stage = 2;
  other.join();
  const int result = probed_sum(2, 2);
  if (result == 100) ::_exit(Callbacks::inside() == 0 ? probed_sum(3, 4) : 1);
  EXPECT_EQ(result, 200);
  EXPECT_EQ(status_of(-1), 7) << "in the child the function runs";
}

// A function that was entered with little of its stack left runs as ever.
TEST(CallbacksLeft, AreNotCalledWithoutRoom) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int, int) -> std::optional<int> { return -1; })});
  ASSERT_TRUE(session) << session.error().message();
  constexpr std::size_t kStack = 256 << 10, kPage = 4096;
  char* const memory =
      static_cast<char*>(::mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ::mprotect(memory, kPage, PROT_NONE);
  static std::uintptr_t last = 0;
  last = reinterpret_cast<std::uintptr_t>(memory) + kPage;
  const auto work = [](void* wanted) -> void* {
    const std::uintptr_t left = reinterpret_cast<std::uintptr_t>(wanted);
    const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    volatile char* const room = static_cast<volatile char*>(__builtin_alloca(here - last - left));
    room[0] = 0;
    return reinterpret_cast<void*>(static_cast<long>(probed_sum(20, room[0])));
  };
  long called = 0;
  for (const std::size_t left : {100UL << 10, 1500UL, 3000UL, 6000UL, 12000UL, 20000UL}) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstack(&attributes, memory + kPage, kStack);
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(&thread, &attributes, work, reinterpret_cast<void*>(left)), 0);
    void* result = nullptr;
    ::pthread_join(thread, &result);
    const bool has_room = left > 17'000;
    EXPECT_EQ(reinterpret_cast<long>(result) == 20, !has_room) << left;
    called += has_room ? 1 : 0;
  }
  EXPECT_EQ(session->callback_counts().at(0).called, static_cast<std::uint64_t>(called));
  session->stop();
  EXPECT_EQ(session->counts().at(0).not_called, 4U);
  ::munmap(memory, kStack + kPage);
}

// A thread may come late from a hit of an earlier session: its number is that of another callback now.
TEST(CallbacksLeft, AreThoseOfTheirOwnSession) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int, int) -> std::optional<int> { return -1; })});
  ASSERT_TRUE(session) << session.error().message();
  uprobe::arch::CallbackFrame frame{};
  uprobe::arch::ExtendedState state{};
  frame.entry.caller_sp = reinterpret_cast<std::uintptr_t>(&frame + 1);
  EXPECT_FALSE(Callbacks::dispatch(frame, state));
  EXPECT_EQ(session->callback_counts().at(0).called, 0U);
}

}  // namespace
