// SPDX-License-Identifier: MIT
// The place of a list of system calls in a program that has not begun, and of the code that makes them all in one run
// (arch/code/listed_calls.h): each call made singly costs two stops.
//
// The run ends with a signal that the thread sends itself, whose delivery stops it. The signal is one that does nothing to a program
// without a handler, and a new program has none: if the tool dies, the thread goes on and returns by its frame. It is the one signal that
// is not blocked: one that comes from elsewhere stops the thread too, and is told apart by where it stops.
#pragma once

#include <signal.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arch/code/listed_calls.h"
#include "engine/target/system_calls.h"
#include "engine/target/target.h"

namespace uprobe::target {

class ListedCalls {
 public:
  static constexpr int kEnd = SIGURG;
  static constexpr std::size_t kMost = 40;              // calls of a list
  static constexpr std::uint64_t kScratchBytes = 4608;  // a path and some more

  // Puts the code over the section headers of the vDSO, which no program needs; the list goes below `stack`, where nothing is yet.
  // Code::refused when there is no room, or when a security module may forbid the thread the signal.
  Status build(const ProcessFiles& files, const Mapping& vdso, Addr stack);
  bool is_built() const { return code_ != Addr{}; }

  // Memory that the calls may use.
  Addr scratch() const { return list_ + kListBytes; }

  // Writes the list, and sets the registers of the thread that is to make its calls.
  Status begin(const ProcessFiles& files, std::span<const SystemCall> calls, std::span<const SystemCall> earlier,
               arch::ThreadRegisters& r) const;
  bool is_at_end(const arch::ThreadRegisters& r) const { return arch::has_made_listed_calls(r, code_.value); }
  // Reads their results.
  Status end(const ProcessFiles& files, std::span<SystemCall> calls) const;

  // Puts back what stood there before.
  void erase(const ProcessFiles& files) const;

 private:
  static constexpr std::size_t kOwn = 2;  // the calls for the signal
  static constexpr std::uint64_t kListBytes = (kMost + kOwn) * sizeof(arch::ListedCall);

  Addr code_, list_;
  std::array<std::uint8_t, arch::kListedCalls.size()> code_before_{};
  std::vector<std::uint8_t> stack_before_;
};

}  // namespace uprobe::target
