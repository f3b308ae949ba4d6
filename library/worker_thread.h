// SPDX-License-Identifier: MIT
// The one thread that works for a session in a process that traces itself. Its hits make no events (the self-attach tracer
// knows its id), so everything runs on it, including the construction of the values that callers get. A caller makes system
// calls in inline assembly and calls no library function until it has its answer: otherwise, a test that takes the events of
// malloc or memcpy would make new events by taking them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "engine/base/fd.h"
#include "library/uprobe/session.h"

namespace libuprobe {

// The same descriptor with a number that programs do not expect, closed by exec.
uprobe::Fd out_of_the_way(uprobe::Fd fd);

class WorkerThread {
 public:
  // Error: no thread or no descriptor can be made.
  static Result<std::unique_ptr<WorkerThread>> start();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;
  ~WorkerThread();

  std::uint32_t id() const { return id_; }

  // Runs `work` there; several callers take turns. An exception of `work` is thrown here. False: the program has closed the
  // thread's descriptors, and nothing runs any more.
  template <class Work>
  bool run(Work work) {
    Call call{.run = [](void* of) { (*static_cast<Work*>(of))(); }, .work = &work};
    if (!submit(call)) return false;
    if (call.failure) std::rethrow_exception(call.failure);
    return true;
  }

  // For use inside `run`: while there is nothing to run, `ready` is called when the descriptor is readable. -1: none.
  void watch(int fd, std::function<void()> ready);

 private:
  struct Call {
    void (*run)(void*);
    void* work;
    std::exception_ptr failure = nullptr;
    std::atomic<std::uint32_t> done{0};
  };

  WorkerThread() = default;
  bool submit(Call& call);
  void serve();
  void serve_call();

  uprobe::Fd wake_;
  std::atomic<std::uint32_t> turn_{0};  // 0: free, 1: taken, 2: taken, and a caller may be waiting
  std::atomic<Call*> call_{nullptr};
  std::atomic<std::uint32_t> id_{0};
  bool is_over_ = false;  // these three belong to the thread
  int watched_ = -1;
  std::function<void()> ready_;
  std::thread thread_;
};

}  // namespace libuprobe
