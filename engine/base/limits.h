// SPDX-License-Identifier: MIT
// Limits that somebody set for the traced program and that we share.
#pragma once

namespace uprobe {

// File size, CPU time and descriptors as far up as may be. A file that is too large is then an error and no signal.
void raise_own_limits();

}  // namespace uprobe
