// SPDX-License-Identifier: MIT
// Two ways, neither of which touches the process.
//
// Visits. A thread of the tool runs once on every processor. Where it runs, the kernel has replaced the program's address space
// by the tool's with a write of CR3, and will put the program's back with another: MOV to a control register is serializing
// (SDM vol. 3A, "Serializing Instructions"; AMD APM vol. 2, "Serializing Instructions"). The kernel relies on the same for its
// core-serializing membarrier (Documentation/features/sched/membarrier-sync-core: "we rely instead on write_cr3() performed by
// switch_mm()"). A processor that was in the tool's address space already when the thread arrived has written CR3 since it last
// ran the program, and will again before it next runs it. It takes 10 to 50 us per processor that is idle or where the thread
// may preempt others, and milliseconds where the thread has to wait for its turn.
//
// membarrier(MEMBARRIER_CMD_GLOBAL), for processors that the thread may not use: synchronize_rcu() (kernel/sched/membarrier.c),
// which returns when each processor has switched tasks, been idle, or been interrupted by the timer in user mode. (Where user
// mode runs without a timer, nohz_full, the kernel refuses the command.) The interrupt ends with IRET, and a switch between two
// address spaces writes CR3: both serialize. Neither covers a switch between two threads of the program, or to idle and back,
// that ends with SYSRET. But then the program was left by a system call or an interrupt and is entered again after thousands of
// kernel instructions: no instruction fetched before the write is still in the pipeline, and later fetches come from coherent
// caches. It takes 5 to 30 ms.
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

// Ordinary load delays the thread by a few milliseconds per processor; after this time a realtime task must be keeping it out.
constexpr auto kPatience = 500ms, kOthersPatience = 20ms;

// A set of processors, as many as the kernel can have (NR_CPUS is at most 8192).
class Processors {
 public:
  // The running processors that a thread may use (the kernel omits the others); none if the thread is gone, all if the kernel
  // does not tell. 0: the calling thread.
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
  // Assigns a thread of the tool to them, 0: the calling thread. False where it may use none of them.
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

// The thread that visits the processors. Its caller can call it off, since it can be stuck on a processor that a realtime task
// keeps.
class Visitor {
 public:
  // Starts the thread, which goes to the `urgent` processors first. May throw std::system_error if there can be no thread.
  explicit Visitor(const Processors& urgent)
      : thread_(start_signal_masked_thread([this, urgent] { go_around(urgent); })) {}
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  ~Visitor() { thread_.join(); }

  // Waits for the urgent processors until `deadline`, for the others only briefly.
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
    // Where it may, the thread runs before ordinary tasks instead of waiting for its turn: a visit takes microseconds. It uses
    // the lowest realtime priority.
    const sched_param lowest{1};
    static_cast<void>(::sched_setscheduler(0, SCHED_FIFO, &lowest));
    visit(urgent);
    reach(Stage::others);
    Processors all = Processors::all();
    all.assign_to(0);
    visit(Processors::of_thread(0).without(urgent));
    reach(Stage::finished);
  }
  // The call returns on that processor: the thread has been moved by then. (An emulation of the kernel may not have moved it,
  // so the result is checked.)
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
  // Moves the thread from where it waits to a processor that has time for it. Repeated, because it may have been about to go
  // on.
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
  return Error{.code = Code::refused, .text = "cannot serialize instruction fetch on all CPUs"};
}

}  // namespace

// Not only the processors of its threads: threads may move during the visits, and a process that shares its memory without
// being a thread of it (CLONE_VM) is in no list.
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
