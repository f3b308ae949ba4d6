// SPDX-License-Identifier: MIT
// Two ways, none of which touches the process.
//
// Visits. A thread of ours runs once on every processor. Where it runs the kernel has put another address space in the
// place of the program's, by a write of CR3, and will put the program's back by another one: MOV to a control register is
// serializing (SDM vol. 3A, "Serializing Instructions"; AMD APM vol. 2, "Serializing Instructions"). This is what the kernel
// itself builds on for its core-serializing membarrier (Documentation/features/sched/membarrier-sync-core: "we rely instead on
// write_cr3() performed by switch_mm()"). A processor that had our address space already when the thread came has written CR3
// since it last ran the program, and will again before it does so the next time. 10 to 50 us for a processor that is idle or
// where we may preempt, milliseconds where we have to wait for our turn.
//
// membarrier(MEMBARRIER_CMD_GLOBAL), for processors that we may not use: synchronize_rcu() (kernel/sched/membarrier.c), which
// returns when each processor has switched tasks, been idle, or been interrupted by the timer while in user mode. (Where
// user mode goes on without a timer, nohz_full, the kernel refuses the command.) The interrupt ends with IRET, the switch
// between two address spaces with CR3: both serialize. What neither covers is a switch between two threads of the
// program, or to idle and back, whose way out is SYSRET. There the program was left by a system call or an interrupt and is
// entered again after thousands of instructions of the kernel: nothing of it was fetched before the write and is still
// under way, and what is fetched from then on comes from caches that are coherent. 5 to 30 ms.
#include "engine/patch/serialize.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/exhaustion.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/process/processes.h"

namespace uprobe::control {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Load alone keeps us waiting a few milliseconds a processor; beyond this a realtime task does not give way.
constexpr auto kPatience = 500ms, kOthersPatience = 20ms;

// A set of processors, as many as the kernel can have (NR_CPUS is at most 8192).
class Processors {
 public:
  // Those that a thread may use and that are running (the kernel leaves out the others); none if the thread is gone, all if
  // we are not told. 0: the calling one.
  static Processors of_thread(pid_t tid) {
    Processors found;
    if (::sched_getaffinity(tid, sizeof found.words_, found.set()) == 0) return found;
    return errno == ESRCH ? Processors() : all();
  }
  static Processors all() {
    Processors every;
    every.words_.fill(~0UL);
    return every;
  }

  void add(unsigned processor) { words_[processor / kWordBits] |= 1UL << processor % kWordBits; }
  void join(const Processors& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  Processors without(const Processors& others) const {
    Processors left = *this;
    for (std::size_t i = 0; i < words_.size(); ++i) left.words_[i] &= ~others.words_[i];
    return left;
  }
  bool empty() const { return words_ == Processors().words_; }
  std::vector<unsigned> list() const {
    std::vector<unsigned> numbers;
    for (unsigned i = 0; i < words_.size(); ++i)
      for (unsigned long rest = words_[i]; rest != 0; rest &= rest - 1)
        numbers.push_back(i * kWordBits + static_cast<unsigned>(std::countr_zero(rest)));
    return numbers;
  }
  // To a thread of ours, 0: the calling one. False where it may use none of them.
  bool assign_to(pid_t tid) { return ::sched_setaffinity(tid, sizeof words_, set()) == 0; }

 private:
  static constexpr unsigned kWordBits = 64;
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  std::array<unsigned long, 8192 / kWordBits> words_{};
};

Processors used_by(pid_t pid) {
  Processors used;
  for (const pid_t tid : threads_of(pid)) used.join(Processors::of_thread(tid));
  return used;
}

// The thread that goes around. Whoever waits for it may call it off: it can be stuck on a processor that a realtime task
// keeps.
class Visitor {
 public:
  // Starts; `urgent` ones first. May throw std::system_error: no thread can be had.
  explicit Visitor(const Processors& urgent)
      : thread_(start_signal_masked_thread([this, urgent] { go_around(urgent); })) {}
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  ~Visitor() { thread_.join(); }

  // Waits for the urgent ones until `deadline`, for the others not long.
  Processors visited(Clock::time_point deadline) {
    std::unique_lock lock(lock_);
    if (!changed_.wait_until(lock, deadline, [this] { return stage_ != Stage::urgent; })) return call_off(lock);
    if (!changed_.wait_for(lock, kOthersPatience, [this] { return stage_ == Stage::finished; })) return call_off(lock);
    return visited_;
  }

 private:
  enum class Stage { urgent, others, finished };

  void go_around(const Processors& urgent) {
    tid_ = ::gettid();
    // Where we may, ahead of ordinary tasks instead of waiting for our turn: each visit takes microseconds. The lowest of
    // the realtime priorities.
    const sched_param lowest{1};
    static_cast<void>(::sched_setscheduler(0, SCHED_FIFO, &lowest));
    visit(urgent);
    reach(Stage::others);
    Processors all = Processors::all();
    all.assign_to(0);
    visit(Processors::of_thread(0).without(urgent));
    reach(Stage::finished);
  }
  // The kernel returns from the call on that processor: the thread has been moved by then. (What only looks like a kernel may
  // not have done it.)
  void visit(const Processors& processors) {
    for (const unsigned processor : processors.list()) {
      Processors one;
      one.add(processor);
      if (called_off_) return;
      if (!one.assign_to(0) || ::sched_getcpu() != static_cast<int>(processor) || called_off_) continue;
      const std::lock_guard lock(lock_);
      visited_.add(processor);
    }
  }
  void reach(Stage stage) {
    const std::lock_guard lock(lock_);
    stage_ = stage;
    changed_.notify_one();
  }
  // From wherever it waits to a processor that has time for it; more than once, it may have been about to go on.
  Processors call_off(std::unique_lock<std::mutex>& lock) {
    called_off_ = true;
    Processors all = Processors::all();
    while (!changed_.wait_for(lock, 1ms, [this] { return stage_ == Stage::finished; }))
      if (const pid_t tid = tid_; tid != 0) all.assign_to(tid);
    return visited_;
  }

  std::atomic<pid_t> tid_{0};
  std::atomic<bool> called_off_{false};
  std::mutex lock_;
  std::condition_variable changed_;
  Stage stage_ = Stage::urgent;
  Processors visited_;
  std::thread thread_;
};

Status global_membarrier() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0) return ok();
  return Error{.code = Code::refused, .text = "no way to have every processor of the process fetch its code anew"};
}

}  // namespace

// Not only the processors of its threads: these may move while we go around, and whoever shares its memory without being
// a thread of it (CLONE_VM) is in no list.
Status visit_processors(pid_t pid, Clock::time_point deadline) {
  return catch_resource_exhaustion([&]() -> Status {
    const Processors visited = Visitor(used_by(pid)).visited(deadline);
    if (used_by(pid).without(visited).empty()) return ok();
    return Error{.code = Code::refused, .text = "some processors of the process are out of reach"};
  });
}

Status ProcessSerializer::serialize() {
  return visit_processors(pid_, Clock::now() + kPatience) ? ok() : global_membarrier();
}

}  // namespace uprobe::control
