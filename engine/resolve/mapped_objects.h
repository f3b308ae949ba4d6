// SPDX-License-Identifier: MIT
// The objects that a running process has mapped, which may be others than its program's file says today.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/plan/resolve.h"
#include "engine/resolve/load_order.h"

namespace uprobe {

// `program` (a path of the process, see process_of) first, then what it needs, breadth first, then what else is mapped.
std::vector<LoadedObject> mapped_objects(pid_t pid, const std::string& program, plan::FileCache& files);

// Whether the process has mapped another file that was at this path, and not the one that is there.
bool has_replaced_mapping(pid_t pid, const std::string& path);

}  // namespace uprobe
