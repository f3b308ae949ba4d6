// SPDX-License-Identifier: MIT
// Debug files from the servers that DEBUGINFOD_URLS names, by the program debuginfod-find or elfutils' library, whichever is there
// (debuginfod(8), debuginfod_find_debuginfo(3)). A process of its own asks: it may wait for the network, and is ended when it has
// waited too long. The file lies in the library's own cache afterwards, where it counts as any other debug file does: its build id is
// compared, and a confined child reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/base/result.h"

namespace uprobe::debuginfod {

// Where the cache keeps the debug information of a build id. Empty: DEBUGINFOD_URLS is not set, or that is no build id.
std::string cached_file(std::span<const std::uint8_t> build_id);

// Fetches it into the cache. `what`: the file that needs it, for the user. Code::not_found: no server has it; Code::limit: it took too
// long or is too large; Code::refused: there is neither the program nor the library. DEBUGINFOD_MAXTIME (seconds, two minutes if it
// is not set) and DEBUGINFOD_MAXSIZE (bytes, 4 GiB at most) are the bounds.
Status fetch(std::span<const std::uint8_t> build_id, const std::string& what);

// Gets a line before each fetch. Set once, before the process has threads; what it refers to outlives all fetches.
void tell_fetches(std::function<void(const std::string&)> tell);

}  // namespace uprobe::debuginfod
