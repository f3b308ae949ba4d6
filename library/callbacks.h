// SPDX-License-Identifier: MIT
// The callbacks of a session of this process with itself: the gate's other side (arch/abi/callback_gate.h). A thread comes here from any
// place that is probed, so nothing but a callback itself allocates, takes a lock or calls a function of the C library that may be
// probed, but for the unwinder, whose hits are nested ones.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "arch/abi/callback_gate.h"
#include "library/uprobe/session.h"

namespace libuprobe {

class Callbacks {
 public:
  // Error: there are too many, or they cannot be called here. One object at a time is entered.
  static Result<std::unique_ptr<Callbacks>> make(const std::vector<Callback>& all);
  ~Callbacks();
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  // As the self-attach tracer takes them: "COUNT,ADDRESS,COOKIE".
  std::string words() const;
  // Their definitions, in the order of their numbers.
  std::vector<std::string> definitions() const;
  std::vector<CallbackCounts> counts() const;
  // Threads that come call nothing any more. Returns when none is in a callback, but the caller; what a thread does not leave within
  // ten seconds stays in memory.
  void end();

  // Threads between the gate and the end of a callback, in this process.
  static std::int64_t inside();

  // The calling thread, which works for the session, calls none.
  static void leave_out_thread();

  // Of the gate. What a callback throws leaves it.
  static bool dispatch(uprobe::arch::CallbackFrame& frame, uprobe::arch::ExtendedState& state);

 private:
  struct Known {
    Callback callback;
    std::atomic<std::uint64_t> called{0}, in_signal{0}, unsure{0}, nested{0};
  };

  Callbacks() = default;
  bool enter(Known& known, uprobe::arch::CallbackFrame& frame, uprobe::arch::ExtendedState& state);
  static bool run(Known& known, uprobe::arch::CallbackFrame& frame, uprobe::arch::ExtendedState& state);

  const pid_t process_ = ::getpid();
  std::vector<std::unique_ptr<Known>> all_;
};

}  // namespace libuprobe
