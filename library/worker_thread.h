// SPDX-License-Identifier: MIT
// The one thread that works for a session in a process that traces itself. Its hits make no events (the attendant is told its id), so
// everything is done on it, down to the values that the callers get: a caller makes system calls of its own assembly and calls no
// function of any library until it has its answer. Else who takes the events of malloc, or of memcpy, would make new ones by taking.
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

// The same descriptor with a number that programs do not expect to get, closed by exec.
uprobe::Fd out_of_the_way(uprobe::Fd fd);

class WorkerThread {
 public:
  // Error: there can be no thread, or no descriptor.
  static Result<std::unique_ptr<WorkerThread>> start();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;
  ~WorkerThread();

  std::uint32_t id() const { return id_; }

  // Runs `work` there; of several callers one after the other. What it throws is thrown here. False: the program has closed
  // our descriptors, and nothing is run any more.
  template <class Work>
  bool run(Work work) {
    Call call{.run = [](void* of) { (*static_cast<Work*>(of))(); }, .work = &work};
    if (!submit(call)) return false;
    if (call.failure) std::rethrow_exception(call.failure);
    return true;
  }

  // For `run`: while nothing is to be run, `ready` is called there when the descriptor can be read. -1: none.
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
  std::atomic<std::uint32_t> turn_{0};  // 0: free, 1: taken, 2: somebody may wait
  std::atomic<Call*> call_{nullptr};
  std::atomic<std::uint32_t> id_{0};
  bool is_over_ = false;  // these three the thread's
  int watched_ = -1;
  std::function<void()> ready_;
  std::thread thread_;
};

}  // namespace libuprobe
