// SPDX-License-Identifier: MIT
// One argument of a definition: "[NAME=]FETCH[:TYPE]".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/fetch.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

inline constexpr std::size_t kMaxArgumentName = 32;
inline constexpr std::size_t kMaxArgumentBody = 63;

// Whether an argument may have this name.
bool can_be_argument(std::string_view name);

// Bytes of an argument in the fixed part of a record.
std::uint32_t fixed_size(const Argument& argument);

// Reads the definition's arguments, words 2 and up.
Result<std::vector<Argument>> parse_arguments(const Command& command, const FetchContext& context);

}  // namespace uprobe::spec
