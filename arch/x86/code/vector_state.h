// SPDX-License-Identifier: MIT
// What this machine's processor has of vector registers.
#pragma once

namespace uprobe::arch {

// Whether there are %ymm registers, and their upper halves lie where the agent looks for them in a signal frame
// (preload/vectors.cpp).
bool has_ymm();

}  // namespace uprobe::arch
