// SPDX-License-Identifier: MIT
// Signs of an unwinder in a file that is not a known one.
#pragma once

#include <string>

namespace uprobe::plan {

// Whether a file may unwind by code of its own, which nothing shows any more: it looks for the objects of the process
// (dl_iterate_phdr) but names no function of the unwinder that others share (_Unwind_...). False where it cannot be read.
bool may_unwind_by_itself(const std::string& path);

}  // namespace uprobe::plan
