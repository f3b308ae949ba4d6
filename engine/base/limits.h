// SPDX-License-Identifier: MIT
// Limits that were set for the traced program and that the tool shares.
#pragma once

namespace uprobe {

// Raises the limits of file size, CPU time and descriptors as far as allowed. A too large file is then an error and not a
// signal.
void raise_own_limits();

}  // namespace uprobe
