// SPDX-License-Identifier: MIT
// The table of a session's calls as the reply to CommandKind::summary. Neither side trusts a length that the other gives.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types.h"

namespace uprobe {

std::string encode(const std::vector<CallSummary>& rows);
// Nothing where the bytes are malformed.
std::optional<std::vector<CallSummary>> decode_calls(std::string_view bytes);

}  // namespace uprobe
