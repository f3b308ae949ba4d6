// SPDX-License-Identifier: MIT
// Serialization reaches every processor of a running process; where it cannot, the tool says so.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <thread>
#include <vector>

#include "engine/patch/serialize.h"

namespace uprobe::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::vector<int> own_processors() {
  cpu_set_t mine;
  std::vector<int> numbers;
  ::sched_getaffinity(0, sizeof mine, &mine);
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &mine)) numbers.push_back(i);
  return numbers;
}

void pin(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

// A child with a thread for each processor that makes no system call and looks at the clock all the time. `priority`: a
// realtime one, 0: none.
class Busy {
 public:
  explicit Busy(const std::vector<int>& processors, int priority = 0) {
    void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (at) Shared;
    pid_ = ::fork();
    if (pid_ == 0) run(processors, priority);
    while (shared_->running < processors.size()) ::usleep(1000);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(shared_, sizeof(Shared));
  }
  pid_t pid() const { return pid_; }

  // Whether another task has run, or runs, on the thread's processor after `begin`.
  bool has_left(std::size_t thread, std::uint64_t begin) const {
    const Clocked& clocked = shared_->threads[thread];
    const std::uint64_t seen = clocked.seen;
    return clocked.came_back >= begin || __rdtsc() >= seen + kSwitch;
  }

 private:
  // Cycles: a look at the clock takes tens, a switch to another process and back thousands.
  static constexpr std::uint64_t kSwitch = 1000;
  struct alignas(64) Clocked {
    std::atomic<std::uint64_t> seen{0}, came_back{0};
  };
  struct Shared {
    std::atomic<std::size_t> running{0};
    Clocked threads[CPU_SETSIZE];
  };

  [[noreturn]] void run(const std::vector<int>& processors, int priority) {
    ::alarm(60);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < processors.size(); ++i)
      threads.emplace_back([=, this] { look_at_clock(processors[i], priority, shared_->threads[i]); });
    threads.front().join();
    ::_exit(1);
  }
  void look_at_clock(int processor, int priority, Clocked& clocked) {
    pin(processor);
    const sched_param wanted{priority};
    if (priority != 0) ::sched_setscheduler(0, SCHED_FIFO, &wanted);
    ++shared_->running;
    for (std::uint64_t before = __rdtsc();;) {
      const std::uint64_t now = __rdtsc();
      if (now - before >= kSwitch) clocked.came_back.store(now, std::memory_order_relaxed);
      clocked.seen.store(now, std::memory_order_release);
      before = now;
    }
  }

  Shared* shared_;
  pid_t pid_ = 0;
};

TEST(PatchSerialize, EveryProcessorLeavesTheProgramForAMoment) {
  constexpr int kTimes = 200;
  const std::vector<int> processors = own_processors();
  const Busy busy(processors);
  control::ProcessSerializer serializer(busy.pid());
  std::size_t stayed = 0;
  for (int i = 0; i < kTimes; ++i) {
    const std::uint64_t begin = __rdtsc();
    ASSERT_TRUE(serializer.serialize());
    for (std::size_t thread = 0; thread < processors.size(); ++thread) stayed += busy.has_left(thread, begin) ? 0 : 1;
  }
  EXPECT_EQ(stayed, 0U) << "of " << kTimes * processors.size();
}

TEST(PatchSerialize, OurOwnThreadStaysWhereItIsAndAsItIs) {
  const std::vector<int> processors = own_processors();
  const Busy busy(processors);
  pin(processors.back());
  EXPECT_TRUE(control::visit_processors(busy.pid(), Clock::now() + 30s)) << "other processors than the caller's too";
  EXPECT_EQ(own_processors(), std::vector{processors.back()});
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int p : processors) CPU_SET(p, &all);
  ::sched_setaffinity(0, sizeof all, &all);
}

TEST(PatchSerialize, AProcessThatIsGoneNeedsNothing) {
  EXPECT_TRUE(control::visit_processors(0x7ffffff0, Clock::now() + 30s));
}

// A realtime task keeps a processor: the call returns, and reports that it has not reached that processor.
TEST(PatchSerialize, AProcessorThatIsNotGivenUpIsNotWaitedForForEver) {
  const int processor = own_processors().back();
  const sched_param high{50}, none{0};
  if (::sched_setscheduler(0, SCHED_FIFO, &high) != 0) GTEST_SKIP() << "no realtime priorities here";
  ::sched_setscheduler(0, SCHED_OTHER, &none);
  const Busy busy({processor}, 50);
  EXPECT_FALSE(control::visit_processors(busy.pid(), Clock::now() + 20ms));
}

}  // namespace
}  // namespace uprobe::test
