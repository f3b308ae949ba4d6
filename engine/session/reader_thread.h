// SPDX-License-Identifier: MIT
// Decides which thread reads the rings. That is the one of run(), until there is a client: then a thread of its own reads for
// the rest of the session, since the output of run() may be blocked, and the session's own records go through a queue.
//
// A client that comes or goes waits for the reader (settle): all that is recorded by then has to be handed on. One that comes
// waits a moment, since its own hits come later; one that goes waits longer, since what is not handed on is in no count.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/session/recipient.h"

namespace uprobe {

class ReaderThread {
 public:
  // `own` must outlive it. `read`: the thread's work. It ends with the session.
  ReaderThread(OwnRecords& own, std::function<Ending()> read) : own_(own), read_(std::move(read)) {}
  ~ReaderThread() { join(); }
  ReaderThread(const ReaderThread&) = delete;
  ReaderThread& operator=(const ReaderThread&) = delete;

  // The thread of run(). It holds the lock while it reads or looks at what it reads, and lets go of it while it may wait for
  // its output. The next two are called with the lock.
  std::unique_lock<std::mutex> take_over() { return std::unique_lock(reading_); }
  // Starts the thread if it was asked for. True: it reads now.
  bool has_begun();
  bool is_there() const { return thread_.joinable(); }
  // Waits for the end of the thread, if there is one.
  Ending join();

  // A client's thread: asks for the reader thread. It begins now or after the turn of run() that is in progress.
  void ask();
  // Any thread but the one that reads: waits until that has handed on everything that is recorded by now, or for `patience`.
  // False: it has not.
  bool settle(std::chrono::milliseconds patience);

  // The thread that reads: if others wait for it, calls `hand_on`, which hands on everything that is recorded by now.
  void serve_settling(const std::function<void()>& hand_on);
  // No thread reads any more.
  void end_settling();

 private:
  void start();

  OwnRecords& own_;
  const std::function<Ending()> read_;
  std::mutex reading_;  // clients' threads only try to lock it
  std::atomic<bool> is_wanted_{false};
  std::thread thread_;
  Ending ending_;
  std::mutex settling_;  // locked last
  std::condition_variable settled_;
  std::uint64_t wanted_ = 0, done_ = 0;  // guarded by `settling_`, as is the next one
  bool is_over_ = false;
};

}  // namespace uprobe
