// SPDX-License-Identifier: MIT
// The values of a record, one by one, for the formats that are not ftrace's text (text.cpp reads them itself, for speed).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/output/buffer.h"
#include "engine/output/formatter.h"
#include "engine/output/symbols.h"
#include "engine/program/layout.h"
#include "engine/trace/event_record.h"

namespace uprobe::format {

struct Value {
  enum class Kind : std::uint8_t {
    unsigned_decimal,
    signed_decimal,
    hex,
    floating,
    text,     // a string, a character, or an array of characters
    symbol,   // a code address
    fault,    // could not be read
    missing,  // of the function's entry, which was not seen
  };
  Kind kind = Kind::fault;
  bool is_single = false;    // a floating number of 4 bytes
  bool is_cut = false;       // the text goes on
  bool is_wide = false;      // a number of 16 bytes: `upper` and `number`
  std::uint64_t number = 0;  // of a signed one the two's complement
  std::uint64_t upper = 0;
  double floating = 0;
  std::string_view text;  // bytes of the record, or of the session's memory
};

// An event, and the size of its payload without strings.
struct KnownEvent {
  explicit KnownEvent(const program::EventLayout& of);

  // Those that a line shows by name: a function event has its caller at the beginning.
  std::span<const program::Field> fields() const;

  program::EventLayout layout;
  std::uint32_t needed = 0;
};

// Elements of a field to print: one, unless it is an array of numbers.
std::uint32_t elements_of(const program::Field& field);

// Of one record. The strings of all values together are no longer than the payload, although hostile locators could name the same
// bytes again and again; so each value is to be asked for once.
class Values {
 public:
  // All must outlive it. `padded`: memory for a payload that is too short.
  Values(const KnownEvent& event, const trace::EventRecord& record, const Options& options,
         std::vector<std::uint8_t>& padded);

  Value at(const program::Field& field, std::uint32_t element = 0);
  std::uint64_t address() const;         // of the hit; of a return, the function's
  std::uint64_t return_address() const;  // of a return
  std::uint64_t caller() const;          // of a function event: the return address

 private:
  Value string_at(const std::uint8_t* locator);

  const KnownEvent& event_;
  const trace::EventRecord& record_;
  const Options& options_;
  std::span<const std::uint8_t> bytes_;
  std::size_t string_budget_;
};

// The longest text of add_number().
inline constexpr std::size_t kNumberBytes = 48;
// "12", "-3", "0x1f", "0.5": a number as ftrace's text has it, without escapes.
void add_number(Buffer& out, const Value& value);
void add_decimal(Buffer& out, std::uint64_t number);
// "name+0x4", or "0x401000" where no name is known.
void add_symbol(Buffer& out, Symbols* symbols, const trace::EventRecord& record, std::uint64_t address);
// All elements of a field in the characters of ftrace's text; a string as it is, or in quotes.
void add_field(Buffer& out, const program::Field& field, Values& values, const trace::EventRecord& record,
               const Options& options, bool has_quotes);
// With control bytes escaped, if the user wants that.
void add_text(Buffer& out, std::string_view text, const Options& options);
// The seconds, with nine digits after the point.
void add_time(Buffer& out, std::uint64_t ns);

}  // namespace uprobe::format
