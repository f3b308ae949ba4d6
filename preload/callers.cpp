// SPDX-License-Identifier: MIT
// From a return address to the description of its caller. A program that keeps generated code alive, or finds its own frames,
// by the return addresses on a stack (garbage collectors that scan stacks, virtual machines) has code without unwind
// information.
#include "preload/callers.h"

#include "preload/unwind_tables.h"

namespace uprobe::agent {

bool may_return_by_stub(const ProcessBlock& block, u64 address) {
  if (block.any_caller != 0) return true;
  return description_of(block, address - 1).begin != 0;
}

}  // namespace uprobe::agent
