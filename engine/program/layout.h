// SPDX-License-Identifier: MIT
// The layout of an event's payload (ftrace's raw record): one description for text, format files and every later output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/thinning.h"
#include "engine/shared/event_program.h"
#include "engine/shared/filter.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::program {

using spec::Kind;
using spec::Style;

constexpr std::uint32_t kMaxElements = 64;  // of an array, as the parser; it keeps every count inside Insn's 16 bits
constexpr std::uint32_t kLocatorBytes = 4;  // of a string's field: where its bytes are and how many

struct Field {
  std::string name;
  Kind kind = Kind::hex;
  std::uint8_t size = 8;     // bytes of one element in the record; a string's locator has kLocatorBytes
  std::uint32_t offset = 0;  // from the start of the payload
  std::uint32_t count = 0;   // 0: a scalar; N: an array of N elements
  bool is_text = false;      // characters that print up to the first NUL
  bool is_wide = false;      // two elements, the lower one first, that are one number of 16 bytes
  std::string declared;      // of a function event: the type as it was written; else empty
  bool of_entry = false;     // missing in records that lack something: an entry record, a thread's data

  // Whether its elements are values of their own.
  bool is_list() const { return count != 0 && !is_text && !is_wide; }
};

struct EventLayout {
  std::string group;
  std::string event;
  bool is_return = false;  // another address @16, __probe_ret_ip
  Style style = Style::event;
  std::string place;          // "function+0x4", for the other styles; empty: unknown
  std::string function = {};  // "PATH:0xOFFSET" of the function whose entry or return it is; empty: of no function
  std::string print_format =
      {};  // of printf's: how its fields print as text (engine/lex/print_format.h); empty: by their names
  std::uint32_t fixed_bytes = 16;
  std::vector<Field> fields;  // in argument order
};

// The name of the field at offset 8, the address of the hit.
inline std::string_view head_name(const EventLayout& layout) {
  if (layout.is_return) return "__probe_func";
  return layout.style == Style::function ? "__ip" : "__probe_ip";
}

// For an error about an unknown field: which there are.
std::string fields_help(const EventLayout& layout);

// Data of another mapped file; see spec::Argument.
struct ObjectData {
  std::string path;
  std::string exported;
  std::uint64_t exported_address = 0;
};

// A compiled definition: the agent's program and the layout by which the reader prints.
struct EventProgram {
  EventLayout layout;
  std::vector<shared::Insn> insns;   // ends with Op::end; store_text immediates are offsets into `text`
  std::string text;                  // constant strings, each with its NUL; then the filter's texts
  std::vector<shared::Test> filter;  // empty: every hit is recorded
  std::vector<shared::Insn> note;    // run at the entry of a function, for its return; empty: no entry record
  EventLayout noted;                 // of the entry record
  Thinning thinning;
  bool sums_calls = false;  // shared::Event::sum
  std::vector<ObjectData>
      objects;  // load_object counts in this list, until the session has given them numbers of its own
};

}  // namespace uprobe::program
