// SPDX-License-Identifier: MIT
// Callbacks of a test at the functions of its own process: typed arguments, results, and all that they must leave as it was.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

#include "uprobe/callback.h"

using namespace std::chrono_literals;
using libuprobe::Call;
using libuprobe::Callback;
using libuprobe::CallbackCounts;
using libuprobe::on_entry;
using libuprobe::on_return;
using libuprobe::Session;

// What is probed. The compiler knows nothing of what they keep.
extern "C" {
[[gnu::noipa]] int probed_sum(int a, int b) { return a + b; }
[[gnu::noipa]] double probed_mix(int a, double x, const char* text, float y, long b, bool flag) {
  return a + x + text[0] + static_cast<double>(y) + static_cast<double>(b) + (flag ? 1000 : 0);
}
[[gnu::noipa]] long probed_many(long a, long b, long c, long d, long e, long f, long g, int h, double x) {
  return a + b + c + d + e + f + 10 * g + 100 * h + static_cast<long>(x);
}
[[gnu::noipa]] const char* probed_text(const char* text) { return text; }
[[gnu::noipa]] int probed_open(const char* path) { return errno = ENOENT, path == nullptr ? -1 : -2; }
[[gnu::noipa]] int probed_throw(int n) {
  if (n > 2) throw std::runtime_error("n");
  return n;
}
}

// Three instructions of one byte each.
asm(".text\n.globl probed_bytes\n.type probed_bytes, @function\nprobed_bytes: nop\nnop\nret\n.size probed_bytes, . - "
    "probed_bytes\n");

// probed_sum(20, 22) with the pattern in all of these registers; its result and what they hold afterwards.
extern "C" void call_with_pattern(std::uint64_t* seen, std::uint64_t pattern);
asm(".text\n.globl call_with_pattern\n.type call_with_pattern, @function\ncall_with_pattern:\n.cfi_startproc\n"
    "push %rbx\n.cfi_adjust_cfa_offset 8\n push %r12\n.cfi_adjust_cfa_offset 8\n push %r15\n.cfi_adjust_cfa_offset 8\n"
    "push %rdi\n.cfi_adjust_cfa_offset 8\n sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
    "mov %rsi, %rbx\n mov %rsi, %r12\n mov %rsi, %r15\n mov %rsi, %r10\n movq %rsi, %xmm5\n movq %rsi, %xmm15\n"
    "mov $20, %edi\n mov $22, %esi\n call probed_sum\n"
    "add $8, %rsp\n pop %rdi\n.cfi_adjust_cfa_offset -16\n"
    "movslq %eax, %rax\n mov %rax, (%rdi)\n mov %rbx, 8(%rdi)\n mov %r12, 16(%rdi)\n mov %r15, 24(%rdi)\n"
    "mov %r10, 32(%rdi)\n movq %xmm5, 40(%rdi)\n movq %xmm15, 48(%rdi)\n"
    "pop %r15\n.cfi_adjust_cfa_offset -8\n pop %r12\n.cfi_adjust_cfa_offset -8\n pop %rbx\n.cfi_adjust_cfa_offset -8\n"
    "ret\n.cfi_endproc\n.size call_with_pattern, . - call_with_pattern\n");

namespace {

const std::string kSelf = std::filesystem::read_symlink("/proc/self/exe");
std::string at(const char* definition, const char* function) {
  return std::string(definition) + " " + kSelf + ":" + function;
}

libuprobe::Result<Session> with(std::vector<Callback> callbacks) {
  return Session::attach({.callbacks = std::move(callbacks)}, ::getpid());
}

TEST(Callbacks, TakeTheArgumentsByTheirTypes) {
  int seen = 0;
  auto session =
      with({on_entry(at("p:mix", "probed_mix"),
                     [&](int a, double x, const char* text, float y, long b, bool flag) {
                       EXPECT_EQ(a, -3);
                       EXPECT_EQ(x, 2.5);
                       EXPECT_STREQ(text, "Apfel");
                       EXPECT_EQ(y, 0.25F);
                       EXPECT_EQ(b, -1L << 40);
                       EXPECT_TRUE(flag);
                       ++seen;
                     }),
            on_entry(at("p:many", "probed_many"), [&](long a, long, long, long, long, long f, long g, int h, double x) {
              EXPECT_EQ((std::vector<long>{a, f, g, h}), (std::vector<long>{1, 6, 7, -8}));
              EXPECT_EQ(x, 9.0);
              ++seen;
            })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_mix(-3, 2.5, "Apfel", 0.25F, -1L << 40, true), -3 + 2.5 + 'A' + 0.25 - std::pow(2, 40) + 1000);
  EXPECT_EQ(probed_many(1, 2, 3, 4, 5, 6, 7, -8, 9), 21 + 70 - 800 + 9);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(session->wait_for("mix", 1, 20s).size(), 1U) << "a hit is an event too";
  EXPECT_EQ(session->callback_counts().at(1).called, 1U);
}

TEST(Callbacks, AResultTakesThePlaceOfTheFunction) {
  auto session = with(
      {on_entry(at("p:sum", "probed_sum"),
                [](int a, int) -> std::optional<int> { return a < 0 ? std::optional(-7) : std::nullopt; }),
       on_entry(at("p:mix", "probed_mix"),
                [](int a) -> std::optional<double> { return a == 1 ? std::optional(1.25) : std::nullopt; }),
       on_entry(at("p:text", "probed_text"), []() -> std::optional<const char*> { return "other"; }),
       on_entry(at("p:open", "probed_open"), [](Call& call, const char*) { call.give(~0ULL), call.set_error(EIO); })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_sum(-1, 5), -7);
  EXPECT_EQ(probed_sum(1, 5), 6);
  EXPECT_EQ(probed_mix(1, 0, "", 0, 0, false), 1.25);
  EXPECT_EQ(probed_mix(2, 0, "", 0, 0, false), 2);
  EXPECT_STREQ(probed_text("this"), "other");
  errno = 0;
  EXPECT_EQ(probed_open("/x"), -1);
  EXPECT_EQ(errno, EIO);
  session->stop();
  EXPECT_EQ(probed_sum(-1, 5), 4);
  EXPECT_EQ(session->callback_counts().at(0).called, 2U) << "they are there after the end";
}

TEST(Callbacks, SeeAndChangeWhatIsReturned) {
  std::vector<long> seen;
  auto session =
      with({on_return(at("r:sum", "probed_sum"),
                      [&](int result) -> std::optional<int> {
                        seen.push_back(result);
                        return result == 3 ? std::optional(33) : std::nullopt;
                      }),
            on_return(at("r:mix", "probed_mix"), [](double result) -> std::optional<double> { return result / 2; })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_sum(1, 2), 33);
  EXPECT_EQ(probed_sum(-2, 2), 0);
  EXPECT_EQ(probed_mix(7, 0, "", 0, 0, false), 3.5);
  EXPECT_EQ(seen, (std::vector<long>{3, 0}));
}

// In all registers that a function may use, and in the state that it may find.
TEST(Callbacks, LeaveAllElseAsItWas) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int a, int b) {
    errno = EDOM;
    volatile double noise = a;
    for (int i = 0; i < 20; ++i) noise = std::sin(noise) + b;
    char text[64];
    std::snprintf(text, sizeof text, "%f %d", noise + 0.5, a);
  })});
  ASSERT_TRUE(session) << session.error().message();
  constexpr std::uint64_t kPattern = 0x0123456789abcdef;
  for (int round = 0; round < 50; ++round) {
    std::uint64_t seen[7] = {};
    errno = ERANGE;
    call_with_pattern(seen, kPattern);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_EQ(seen[0], 42U);
    for (int i = 1; i < 7; ++i) EXPECT_EQ(seen[i], kPattern) << i;
  }
  EXPECT_EQ(session->callback_counts().at(0).called, 50U);
}

TEST(Callbacks, AreNotNested) {
  std::vector<int> seen;
  auto session = with({on_entry(at("p:sum", "probed_sum"), [&](int a, int b) -> std::optional<int> {
    seen.push_back(probed_sum(a, b));
    return 100;
  })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_sum(1, 2), 100);
  EXPECT_EQ(seen, std::vector<int>{3});
  EXPECT_EQ(session->callback_counts().at(0).called, 1U);
  EXPECT_EQ(session->callback_counts().at(0).nested, 1U);
  EXPECT_EQ(session->wait_for("sum", 2, 20s).size(), 2U);
}

volatile sig_atomic_t g_in_handler = 0;
void handle(int) { g_in_handler = probed_sum(20, 1); }

void handle_by(int signal, int flags) {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = flags;
  ASSERT_EQ(::sigaction(signal, &action, nullptr), 0);
}

TEST(Callbacks, AreNotCalledInSignalHandlers) {
  handle_by(SIGUSR1, 0);
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int, int) -> std::optional<int> { return -1; })});
  ASSERT_TRUE(session) << session.error().message();
  handle_by(SIGUSR2, SA_ONSTACK);
  std::vector<char> stack(64 << 10);
  const stack_t other{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()},
      none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  std::uint64_t left_alone = 0;
  for (const int signal : {SIGUSR1, SIGUSR2})
    for (const stack_t& use : {none, other}) {
      ::sigaltstack(&use, nullptr);
      g_in_handler = 0;
      ::raise(signal);
      EXPECT_EQ(g_in_handler, 21) << "the function ran";
      const CallbackCounts counts = session->callback_counts().at(0);
      EXPECT_EQ(counts.called, 0U);
      EXPECT_EQ(counts.in_signal + counts.unsure, ++left_alone);
    }
  ::sigaltstack(&none, nullptr);
  EXPECT_EQ(probed_sum(20, 1), -1) << "after the handler it is called";
  ::signal(SIGUSR1, SIG_DFL), ::signal(SIGUSR2, SIG_DFL);
}

TEST(Callbacks, RunInTheThreadThatCalls) {
  constexpr int kThreads = 6, kCalls = 500;
  std::atomic<int> seen = 0, elsewhere = 0;
  static thread_local int mine = 0;
  auto session = with({on_entry(at("p:sum", "probed_sum"), [&](int a, int) -> std::optional<int> {
    if (mine != a) ++elsewhere;
    return ++seen, a % 2 == 0 ? std::optional(a) : std::nullopt;
  })});
  ASSERT_TRUE(session) << session.error().message();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      mine = i;
      for (int n = 0; n < kCalls; ++n)
        if (probed_sum(i, 1) != (i % 2 == 0 ? i : i + 1)) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(seen, kThreads * kCalls);
}

int status_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string libc() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<void*>(&::getppid), &info);
  return std::filesystem::canonical(info.dli_fname);
}

TEST(Callbacks, AreThoseOfTheirOwnProcess) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int, int) -> std::optional<int> { return -1; }),
                       on_entry("p:open " + libc() + ":getppid", []() -> std::optional<pid_t> { return 7; })});
  ASSERT_TRUE(session) << session.error().message();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(probed_sum(2, 3));
  EXPECT_EQ(status_of(child), 5) << "in a child the function runs";
  const pid_t other = ::fork();
  if (other == 0) ::execl("/bin/sh", "sh", "-c", "test $PPID -gt 7 && exit 9", nullptr);
  EXPECT_EQ(status_of(other), 9) << "and in the program that it becomes";
  EXPECT_EQ(::getppid(), 7);
}

// The library's own thread calls none.
TEST(Callbacks, MayStandAtTheAllocator) {
  std::atomic<std::uint64_t> bytes = 0, elsewhere = 0;
  const pid_t test = ::gettid();
  auto session = with({on_entry("p:malloc " + libc() + ":malloc", [&](std::size_t size) {
    bytes += size;
    if (::gettid() != test) ++elsewhere;
  })});
  ASSERT_TRUE(session) << session.error().message();
  const std::uint64_t before = bytes;
  void* volatile at = nullptr;
  for (int i = 0; i < 100; ++i) at = ::malloc(1000), ::free(at);
  EXPECT_GE(bytes - before, 100'000U);
  EXPECT_FALSE(session->wait_for("malloc", 50, 20s).empty());
  EXPECT_EQ(elsewhere, 0U);
}

// A callback has a caller, and exceptions pass the place as ever.
TEST(Callbacks, StandInTheStackOfTheirCaller) {
  bool has_seen_caller = false;
  auto session = with({on_entry(at("p:throw", "probed_throw"), [&](int) {
    void* frames[64];
    const int count = ::backtrace(frames, 64);
    has_seen_caller = count > 4;
  })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_throw(1), 1);
  EXPECT_THROW(probed_throw(3), std::runtime_error);
  EXPECT_TRUE(has_seen_caller);
  EXPECT_EQ(session->callback_counts().at(0).called, 2U);
}

// The definition's condition holds for the callback, too; and what is fetched for it stands before the condition.
TEST(Callbacks, ConditionsChooseCalls) {
  std::vector<int> seen;
  auto session = with(
      {on_entry(at("p:sum", "probed_sum") + " a=%di:s32 if a > 5",
                [&](int a, int) -> std::optional<int> { return -a; }),
       on_return(at("r:throw", "probed_throw") + " n=entry(%di):s32 if n == 1", [&](int n) { seen.push_back(n); })});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_sum(5, 1), 6);
  EXPECT_EQ(probed_sum(6, 1), -6);
  EXPECT_EQ(probed_throw(0) + probed_throw(1) + probed_throw(2), 3);
  EXPECT_EQ(seen, std::vector<int>{1});
  EXPECT_EQ(session->callback_counts().at(0).called, 1U);
}

ucontext_t g_main, g_routine;
int g_from_routine = 0;
void routine() {
  g_from_routine = probed_sum(4, 5);
  ::swapcontext(&g_routine, &g_main);
}

TEST(Callbacks, RunOnTheStackOfACoroutine) {
  auto session = with({on_entry(at("p:sum", "probed_sum"), [](int, int) -> std::optional<int> { return -2; })});
  ASSERT_TRUE(session) << session.error().message();
  std::vector<char> stack(256 << 10);
  ::getcontext(&g_routine);
  g_routine.uc_stack.ss_sp = stack.data(), g_routine.uc_stack.ss_size = stack.size(), g_routine.uc_link = nullptr;
  ::makecontext(&g_routine, routine, 0);
  ::swapcontext(&g_main, &g_routine);
  const CallbackCounts counts = session->callback_counts().at(0);
  EXPECT_EQ(counts.called + counts.unsure, 1U);
  EXPECT_EQ(g_from_routine, counts.called == 1 ? -2 : 9);
}

TEST(Callbacks, ComeAndGoWhileThreadsCall) {
  std::atomic<bool> has_ended = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!has_ended)
        if (const int sum = probed_sum(2, 2); sum != 4 && sum != 5) ++wrong;
    });
  for (int round = 0; round < 4; ++round) {
    auto counted = std::make_unique<std::atomic<int>>(0);
    auto session =
        with({on_entry(at("p:sum", "probed_sum"), [&](int, int) -> std::optional<int> { return ++*counted, 5; })});
    EXPECT_TRUE(session) << session.error().message();
    while (session && *counted < 10) std::this_thread::yield();
    if (session && round % 2 == 0) session->stop();
  }
  has_ended = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

std::string refusal_of(libuprobe::Result<Session> session) { return session ? "none" : session.error().message(); }

TEST(Callbacks, AreRefusedWithTheReason) {
  const auto nothing = [] {};
  EXPECT_NE(refusal_of(with({on_entry(at("p:sum", "probed_bytes+1"), nothing)}))
                .find("not the first instruction of a function"),
            std::string::npos)
      << refusal_of(with({on_entry(at("p:sum", "probed_bytes+1"), nothing)}));
  Dl_info info{};
  ::dladdr(reinterpret_cast<void*>(::dlsym(RTLD_DEFAULT, "__tls_get_addr")), &info);
  const std::string loader = std::filesystem::canonical(info.dli_fname);
  EXPECT_NE(refusal_of(with({on_entry("p:tls " + loader + ":__tls_get_addr", nothing)})).find("dynamic loader"),
            std::string::npos)
      << refusal_of(with({on_entry("p:tls " + loader + ":__tls_get_addr", nothing)}));
  EXPECT_NE(refusal_of(Session::attach({.callbacks = {on_entry(at("p:sum", "probed_sum"), nothing)}}, ::getppid()))
                .find("getpid()"),
            std::string::npos);
  EXPECT_NE(refusal_of(Session::launch({.callbacks = {on_entry(at("p:sum", "probed_sum"), nothing)}}, {"/bin/true"}))
                .find("getpid()"),
            std::string::npos);
  EXPECT_NE(
      refusal_of(with(std::vector<Callback>(257, on_entry(at("p:sum", "probed_sum"), nothing)))).find("256 callbacks"),
      std::string::npos);
  EXPECT_EQ(probed_sum(1, 1), 2);
}

TEST(Callbacks, AreNotTwoAtAPlace) {
  const auto nothing = [] {};
  const auto refused = [&](const std::vector<Callback>& all) {
    return refusal_of(with(all)).find("another callback") != std::string::npos;
  };
  EXPECT_TRUE(refused({on_entry(at("p:a", "probed_sum"), nothing), on_entry(at("p:b", "probed_sum"), nothing)}));
  EXPECT_TRUE(refused({on_return(at("r:a", "probed_sum"), nothing), on_return(at("r:b", "probed_sum"), nothing)}));
  int seen = 0;
  const auto count = [&] { ++seen; };
  auto session = with({on_entry(at("p:a", "probed_sum"), count), on_return(at("r:b", "probed_sum"), count)});
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(probed_sum(1, 1), 2);
  EXPECT_EQ(seen, 2);
}

}  // namespace
