// SPDX-License-Identifier: MIT
// The type of a fetch argument: "u8", "x64[4]", "string", "b3@7/32".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

inline constexpr std::uint32_t kMaxArray = 64;

// An argument's body in its two parts.
struct TypedBody {
  std::string_view fetch;
  std::optional<std::string_view> type;  // without the array suffix; none: the default
  std::size_t type_offset = 0;           // of the type in the body, 0 without one
  std::uint32_t count = 0;               // elements of an array, 0: scalar
};

// Cuts at the first ':' from `from` on and removes the array suffix. `word` and `offset` say where the body is in the command.
Result<TypedBody> split_type(const Command& command, std::size_t word, std::size_t offset, std::string_view body,
                             std::size_t from);

struct Type {
  Kind kind = Kind::hex;
  std::uint8_t size = 8;
  bool is_user_string = false;
  bool is_wide = false;  // a number of 16 bytes: two of `size`
};

// The type with this name; without a name x64; a bitfield gives its container. None: the name is unknown. If not strict also
// `symbol`, `f32`, `f64`, `u128`, `s128` and `x128`, which uprobe events do not have.
std::optional<Type> find_type(std::optional<std::string_view> name, bool strict);

// How the widths of a bitfield are checked.
enum class Widths {
  exact,    // 1 <= width, width + offset <= container
  wrapping  // the same in 64-bit arithmetic that wraps, as in the kernel
};

// "bW@O/C" -> width and offset in `argument`, whose size is the container's. False if they are malformed or do not fit.
bool read_bitfield(std::string_view type, Widths widths, Argument& argument);

}  // namespace uprobe::spec
