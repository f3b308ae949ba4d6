// Unwind information for trampolines and their copies: a thread inside shows as standing at the original instruction, with
// the registers that it had there. Bytes in, bytes out.
#pragma once

#include <span>

#include "arch/x86/code/relocate.h"
#include "arch/x86/code/trampoline.h"

namespace uprobe::x86 {

// A copy as it stands in the target; see Copy.
struct PlacedCopy {
  Addr at;
  std::size_t bytes = 0;
  std::span<const CopyMark> marks;
};

// One .eh_frame (as __register_frame of libgcc takes it, the terminating zero word included) for a trampoline at `at` whose
// hits belong to `probe`, and its copy: a CIE, then one signal-frame FDE for the trampoline and one for each mark of the
// copy. All addresses in it are absolute, so the bytes may stand anywhere.
//
// Rules: CFA = the interrupted rsp; return address by val_expression, the original address; registers that the trampoline
// has saved at their places below the CFA, the others as they are.
std::vector<std::uint8_t> make_unwind(const Trampoline& trampoline, Addr at, Addr probe, const PlacedCopy& copy);

}  // namespace uprobe::x86
