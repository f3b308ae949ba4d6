// SPDX-License-Identifier: MIT
// Where a thread goes that makes system calls for us when we die in the middle: the kernel lets go of a dead tracer's
// tracees, which then run on with whatever registers they have. So after each call stands a second one that restores
// registers and mask from a frame (`arch/code/return_frame.h`). Only for a program that has not begun: the code goes
// into unused bytes of its vDSO's header, the frame below the stack pointer, where nothing is yet.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <span>
#include <vector>

#include "arch/abi/thread_registers.h"
#include "arch/code/listed_calls.h"
#include "arch/code/return_frame.h"
#include "engine/target/target.h"

namespace uprobe::target {

// The vDSO among the mappings of a program; Code::refused where it has none.
Result<Mapping> find_vdso(const std::vector<Mapping>& maps);

class ReturnPath {
 public:
  // Prepares the way to `registers` and `mask`. Code::refused when the program has no 64-bit vDSO. `maps`: its mappings.
  Status build(const ProcessFiles& files, const std::vector<Mapping>& maps, const arch::ThreadRegisters& registers,
               std::uint64_t mask);
  // Another mask to arrive with.
  Status set_mask(const ProcessFiles& files, std::uint64_t mask);

  // `r`, about to make the system call that its registers describe, or on its return path.
  void set_out(arch::ThreadRegisters& r) const;
  void turn_back(arch::ThreadRegisters& r) const;

  // Where the frame begins, and what it needs below it.
  Addr below_frame() const { return Addr{frame_.value - kPushed}; }

  // Puts back what stood there before; the thread must have its own registers again.
  void erase(const ProcessFiles& files) const;

 private:
  static constexpr std::uint64_t kPushed = 8;  // the return's number, below the frame

  Addr code_, frame_;
  std::array<std::uint8_t, arch::kCallAndReturn.size()> code_before_{};
  std::array<std::uint8_t, kPushed + sizeof(arch::ReturnFrame)> stack_before_{};
};

// The place of a list of system calls in a program that has not begun, and of the code that makes them all in one run
// (arch/code/listed_calls.h): each call made singly costs two stops.
//
// The run ends with a signal that the thread sends itself, whose delivery stops it. The signal is one that does nothing to a program
// without a handler, and a new program has none: if the tool dies, the thread goes on and returns by its frame. It is the one signal that
// is not blocked: one that comes from elsewhere stops the thread too, and is told apart by where it stops.
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
