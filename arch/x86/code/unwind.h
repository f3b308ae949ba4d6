// SPDX-License-Identifier: MIT
// Unwind information for trampolines and their copies: a thread inside shows as standing at the original instruction, with
// the registers that it had there. Bytes in, bytes out.
#pragma once

#include <span>

#include "arch/code/relocate.h"
#include "arch/code/trampoline.h"

namespace uprobe::arch {

// A copy as it stands in the target, behind its thunk; see Copy.
struct PlacedCopy {
  Addr at;
  std::size_t bytes = 0;
  std::span<const CopyMark> marks;
};

// One .eh_frame (as __register_frame of libgcc takes it, the terminating zero word included) for a body at `at`, and for the
// thunk and the copy of `probe`: a CIE, then one signal-frame FDE for the body, one for the thunk and one for each mark of
// the copy. All addresses in it are absolute, so the bytes may stand anywhere.
//
// Rules: CFA = the interrupted rsp; return address by val_expression, the original address; registers that the body
// has saved at their places below the CFA, the others as they are.
std::vector<std::uint8_t> make_unwind(const Body& body, Addr at, Addr probe, const PlacedCopy& copy);

}  // namespace uprobe::arch
