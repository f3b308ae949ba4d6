// SPDX-License-Identifier: MIT
// A displaced syscall instruction does the same as in its place: results, rcx and r11, children of every kind that come out of
// it, interruption and restart. Each test runs both ways.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "arch/code/relocate.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

struct Found {
  std::uint64_t rcx = 0;
  std::uint64_t r11 = 0;
  std::uint64_t rsp = 0;
};

// system_call_thunk.S knows it by its offsets.
struct SystemCall {
  std::uint64_t entry = 0;
  std::uint64_t number = 0;
  std::array<std::uint64_t, 6> arguments = {};
  std::uint64_t expects_child = 0;
  Found out;
  Found child;
};
static_assert(offsetof(SystemCall, child) == 96);

extern "C" long system_call_through(SystemCall* call);

std::uint64_t word(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

template <class T>
T* map(std::size_t bytes, int protection, int flags) {
  void* place = mmap(nullptr, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);
  return place == MAP_FAILED ? nullptr : static_cast<T*>(place);
}

struct Shape {
  const char* name;
  bool is_displaced;
  const char* syscall;
};

// syscall; jmp *%r15 at the start of a page. Displaced, the original syscall is poisoned: no thread may come back to it.
class SystemCalls : public testing::TestWithParam<Shape> {
 protected:
  static constexpr std::size_t kCopy = 0x800;
  static constexpr std::size_t kPage = 0x1000;

  void SetUp() override {
    page_ = map<std::uint8_t>(kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE);
    call_ = map<SystemCall>(kPage, PROT_READ | PROT_WRITE, MAP_SHARED);  // forked children write into it too
    ASSERT_TRUE(page_ != nullptr && call_ != nullptr);
    const auto original = from_hex(std::string(GetParam().syscall) + "41 ff e7");
    std::memcpy(page_, original.data(), original.size());
    const auto copy = make_copy(original, Addr{word(page_)}, Addr{word(page_ + kCopy)});
    ASSERT_TRUE(copy);
    std::memcpy(page_ + kCopy, copy->bytes.data(), copy->bytes.size());
    length_ = original.size() - 3;
    if (GetParam().is_displaced) std::memset(page_, 0xcc, length_);
  }
  void TearDown() override {
    munmap(page_, kPage);
    munmap(call_, kPage);
  }

  std::uint64_t entry() const { return word(page_) + (GetParam().is_displaced ? kCopy : 0); }
  // The place where the kernel restarts a call: after a prefix.
  std::uint64_t restart() const { return entry() + length_ - 2; }
  // The original leaves in rcx the address after it.
  std::uint64_t next() const { return word(page_) + length_; }

  long run(long number, std::array<std::uint64_t, 6> arguments = {}, bool expects_child = false) {
    *call_ = SystemCall{entry(), static_cast<std::uint64_t>(number), arguments, expects_child, {}, {}};
    const long result = system_call_through(call_);
    EXPECT_EQ(call_->out.rcx, next()) << number;
    EXPECT_EQ(call_->out.r11 & ~kUnsteadyFlags, kFlags) << number;
    return result;
  }
  // The child came out with the same registers, and exited where it should.
  void expect_child(long pid, std::uint64_t rsp) {
    ASSERT_GT(pid, 0);
    int status = 0;
    ASSERT_EQ(waitpid(static_cast<pid_t>(pid), &status, __WALL), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "status " << status;
    EXPECT_EQ(call_->child.rcx, next());
    EXPECT_EQ(call_->child.r11 & ~kUnsteadyFlags, kFlags);
    EXPECT_EQ(call_->child.rsp, rsp);
  }

  // Of xor %r11d,%r11d: parity and zero, and the interrupt flag; the adjust flag is undefined after it.
  static constexpr std::uint64_t kFlags = 0x246;
  static constexpr std::uint64_t kUnsteadyFlags = 0x10;

  std::uint8_t* page_ = nullptr;
  std::size_t length_ = 0;  // of the syscall
  SystemCall* call_ = nullptr;
};

TEST_P(SystemCalls, Results) {
  EXPECT_EQ(run(SYS_getpid), getpid());
  EXPECT_EQ(run(SYS_close, {~0ULL}), -EBADF);
  EXPECT_EQ(run(SYS_read, {~0ULL, word(page_), 1}), -EBADF);
  EXPECT_EQ(run(-1), -ENOSYS);
  EXPECT_EQ(run(1'000'000), -ENOSYS);
}

TEST_P(SystemCalls, SixArgumentsAndMemory) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(run(SYS_write, {static_cast<std::uint64_t>(ends[1]), word("probe"), 5}), 5);
  char text[6] = {};
  EXPECT_EQ(run(SYS_read, {static_cast<std::uint64_t>(ends[0]), word(text), 5}), 5);
  EXPECT_STREQ(text, "probe");
  close(ends[0]);
  close(ends[1]);
  const long place = run(SYS_mmap, {0, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, ~0ULL, 0});
  ASSERT_GT(place, 0);
  EXPECT_EQ(run(SYS_munmap, {static_cast<std::uint64_t>(place), kPage}), 0);
}

TEST_P(SystemCalls, Fork) {
  const long pid = run(SYS_fork, {}, true);
  expect_child(pid, call_->out.rsp);
}

TEST_P(SystemCalls, Vfork) {
  for (int i = 0; i < 100; ++i) {
    const long pid = run(SYS_vfork, {}, true);
    expect_child(pid, call_->out.rsp);
  }
}

// A child on an empty stack of its own: one push in the copy would fault.
TEST_P(SystemCalls, CloneOntoANewStack) {
  auto* guard = map<std::uint8_t>(3 * kPage, PROT_NONE, MAP_PRIVATE);
  ASSERT_NE(guard, nullptr);
  const std::uint64_t stack = word(guard) + kPage;
  for (int i = 0; i < 100; ++i) {
    const long pid = run(SYS_clone, {CLONE_VM | SIGCHLD, stack}, true);
    expect_child(pid, stack);
  }
  munmap(guard, 3 * kPage);
}

TEST_P(SystemCalls, Execve) {
  const pid_t child = fork();
  if (child == 0) {
    const char* arguments[] = {"true", nullptr};
    run(SYS_execve, {word("/bin/true"), word(arguments), 0});
    _exit(9);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// --- interruption --------------------------------------------------------------------------------------------------

// Counted by the handler: how often the thread stood where an interrupted call is restarted or has just failed.
struct Interruption {
  std::uint64_t restarts_at = 0;
  std::uint64_t fails_at = 0;
  int writes_to = -1;
  long number = SYS_read;
  unsigned restarts = 0;
  unsigned failures = 0;
};
Interruption interruption;

// The read ends at the third restart, when it gets a byte to read.
void on_alarm(int, siginfo_t*, void* raw) {
  const auto& registers = static_cast<ucontext_t*>(raw)->uc_mcontext.gregs;
  const auto rip = static_cast<std::uint64_t>(registers[REG_RIP]);
  interruption.failures += rip == interruption.fails_at && registers[REG_RAX] == -EINTR;
  if (rip != interruption.restarts_at || registers[REG_RAX] != interruption.number) return;
  if (++interruption.restarts == 3 && write(interruption.writes_to, "x", 1) != 1) _exit(98);
}

// Signals come again and again until the read is over.
class Alarms {
 public:
  explicit Alarms(int flags) {
    struct sigaction action = {};
    action.sa_sigaction = on_alarm;
    action.sa_flags = SA_SIGINFO | flags;
    sigaction(SIGALRM, &action, &before_);
    set(2000);
  }
  ~Alarms() {
    set(0);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

 private:
  static void set(suseconds_t microseconds) {
    const itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
  struct sigaction before_ = {};
};

TEST_P(SystemCalls, InterruptedAndRestarted) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  interruption = {.restarts_at = restart(), .fails_at = restart() + 2, .writes_to = ends[1]};
  char byte = 0;
  long result = 0;
  {
    const Alarms alarms(SA_RESTART);
    result = run(SYS_read, {static_cast<std::uint64_t>(ends[0]), word(&byte), 1});
  }
  EXPECT_EQ(result, 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_GE(interruption.restarts, 3U);
  EXPECT_EQ(interruption.failures, 0U);
  close(ends[0]);
  close(ends[1]);
}

TEST_P(SystemCalls, InterruptedAndFailed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  interruption = {.restarts_at = 0, .fails_at = restart() + 2, .writes_to = ends[1]};
  char byte = 0;
  long result = 0;
  {
    const Alarms alarms(0);
    result = run(SYS_read, {static_cast<std::uint64_t>(ends[0]), word(&byte), 1});
  }
  EXPECT_EQ(result, -EINTR);
  EXPECT_GE(interruption.failures, 1U);
  close(ends[0]);
  close(ends[1]);
}

// The kernel does not repeat nanosleep: it puts restart_syscall into rax and goes back to the instruction.
TEST_P(SystemCalls, RestartedByAnotherNumber) {
  const pid_t child = fork();
  if (child == 0) {
    const timespec time = {0, 1'000'000};
    raise(SIGSTOP);
    for (int i = 0; i < 20; ++i)
      if (run(SYS_nanosleep, {word(&time), 0}) != 0 || call_->out.rcx != next()) _exit(1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  while (kill(child, SIGCONT) == 0 && waitpid(child, &status, WNOHANG) == 0) kill(child, SIGSTOP);
  EXPECT_EQ(status, 0);
}

constexpr Shape kShapes[] = {{"Native", false, "0f 05"},
                             {"Displaced", true, "0f 05"},
                             {"NativeWithPrefix", false, "48 0f 05"},
                             {"DisplacedWithPrefix", true, "48 0f 05"}};
INSTANTIATE_TEST_SUITE_P(Where, SystemCalls, testing::ValuesIn(kShapes),
                         [](const auto& shape) { return shape.param.name; });

// int $0x80; ret, run in its place and displaced: the call of the 32-bit table, restarted after signals.
TEST(OldSystemCalls, InterruptedAndRestartedDisplaced) {
  constexpr std::size_t kCopy = 0x800;
  auto* page = map<std::uint8_t>(4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_32BIT);
  ASSERT_NE(page, nullptr);
  const auto original = from_hex("cd 80 c3");
  std::memcpy(page, original.data(), original.size());
  const auto copy = make_copy(original, Addr{word(page)}, Addr{word(page + kCopy)});
  ASSERT_TRUE(copy);
  std::memcpy(page + kCopy, copy->bytes.data(), copy->bytes.size());
  const auto call = [](std::uint64_t entry, long number, long first, long second, long third) {
    long result = number;
    asm volatile("leaq -128(%%rsp), %%rsp; call *%[entry]; leaq 128(%%rsp), %%rsp"  // over the red zone
                 : "+a"(result)
                 : [entry] "r"(entry), "b"(first), "c"(second), "d"(third)
                 : "memory", "cc", "r8", "r9", "r10", "r11");
    return result;
  };
  constexpr long kGetpid = 20, kRead = 3;
  // Without the kernel's 32-bit calls the instruction faults.
  const pid_t child = fork();
  if (child == 0) _exit(call(word(page), kGetpid, 0, 0, 0) == getpid() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (status != 0) GTEST_SKIP() << "no 32-bit calls here";
  EXPECT_EQ(call(word(page + kCopy), kGetpid, 0, 0, 0), getpid());
  page[0] = 0xcc;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  interruption = {.restarts_at = word(page + kCopy), .fails_at = 0, .writes_to = ends[1], .number = kRead};
  {
    const Alarms alarms(SA_RESTART);
    EXPECT_EQ(call(word(page + kCopy), kRead, ends[0], static_cast<long>(word(page + 0xc00)), 1), 1);
  }
  EXPECT_EQ(page[0xc00], 'x');
  EXPECT_GE(interruption.restarts, 3U);
  close(ends[0]);
  close(ends[1]);
  munmap(page, 4096);
}

}  // namespace
}  // namespace uprobe::arch::test
