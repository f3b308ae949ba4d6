// SPDX-License-Identifier: MIT
// Where a thread goes that makes system calls for us when we die in the middle: the kernel lets go of a dead tracer's
// tracees, which then run on with whatever registers they have. So after each call stands a second one that restores
// registers and mask from a frame (`arch/code/return_frame.h`). Only for a program that has not begun: the code goes
// into unused bytes of its vDSO's header, the frame below the stack pointer, where nothing is yet.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/abi/thread_registers.h"
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

}  // namespace uprobe::target
