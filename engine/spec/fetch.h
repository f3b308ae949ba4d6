// SPDX-License-Identifier: MIT
// The fetch of an argument: "%di", "+8(%si)", "$stack2", "@+0x10", "\5", "\"text"".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/lex/words.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// The kernel compiles an argument to at most 16 instructions, the last of which is the end mark. Its limit on nesting follows
// from that, so this parser counts the same instructions.
inline constexpr int kKernelEndSlot = 15;

// What an argument may use, from its definition.
struct FetchContext {
  bool strict = false;
  bool words_2009 = false;
  bool is_return = false;
  bool is_function_entry = true;  // false: the place is certainly not the first instruction of a function
};

// The result of a fetch's outermost step.
enum class Yield {
  value,
  immediate,
  memory,       // +OFF(f), @ADDR, @+OFF
  user_memory,  // +uOFF(f): the same here; the kernel allows fewer types
  comm,
  text,
  variable,  // debug information gives its type
};

struct Fetch {
  Yield yield = Yield::value;
  std::vector<Step> steps = {};  // of memory: up to the address that memory_offset is added to
  std::optional<EntryFetch> entry = {};
  std::uint64_t memory_offset = 0;
  std::uint8_t register_bytes = 8;  // Yield::value: of a part of a register fewer, of a vector register more
  bool is_retval = false;
  bool has_word_2009 = false;     // somewhere inside: words_2009.h
  std::string text = {};          // Yield::text
  std::string symbol = {};        // @SYMBOL: the source is @+OFF, OFF being the distance from the symbol
  std::size_t symbol_offset = 0;  // in the body
  std::string object = {};        // @OBJECT:SYMBOL: the source is an object's
  std::size_t object_offset = 0;
  int slot = 0;                  // the number of the kernel's instruction for the outermost step
  std::size_t blame_offset = 0;  // from the start of the body: the origin of the kernel's later carets
};

inline bool is_vector(const Fetch& fetch) { return fetch.register_bytes > 8; }

// `offset` is where `body`'s fetch starts in the word.
Result<Fetch> parse_fetch(const Command& command, std::size_t word, std::size_t offset, std::string_view fetch,
                          const FetchContext& context);

}  // namespace uprobe::spec
