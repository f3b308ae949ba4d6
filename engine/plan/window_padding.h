// SPDX-License-Identifier: MIT
// Padding: nops and int3 that stand after a jump or a return and to which nothing leads.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/flow/flow.h"

namespace uprobe::plan {

// Where the padding that begins right after the instruction at `stop` ends, looking no further than `limit`; the
// address after the instruction if there is none that is certain never to be executed.
std::uint64_t padding_end(const FileFlow& flow, std::uint64_t stop, std::uint64_t limit);

}  // namespace uprobe::plan
