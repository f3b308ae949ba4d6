// SPDX-License-Identifier: MIT
// An event as trace.dat has it: a format file as the kernel's, and records by it, which libtraceevent reads, prints and filters.
//
// Integers and their arrays are as in the record. What ftrace or libtraceevent has no type for is a string with the text's
// characters: characters, floating numbers, names of code addresses, arrays of strings, the caller of a function event. A record that lacks the values of its
// function's entry has a format of its own, with "(missing)" in their place, under the same name; and so has one of a hit at which a
// trigger has changed the program: its line ends in "(changed)", as the text's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

class RawEvent {
 public:
  struct Form {
    bool lacks_entry = false, is_changed = false;
  };

  explicit RawEvent(const program::EventLayout& layout);

  // An identifier.
  const std::string& group() const { return whole_.layout.group; }
  Form form_of(const trace::EventRecord& record) const;
  // The number by which records name the form; 0: it has none yet.
  std::uint16_t& id(Form form) { return shape(form).ids[form.is_changed ? 1 : 0]; }
  std::string format_file(Form form) const;
  // The bytes of a record; empty: they would be more than the 64 KiB that a string's locator can reach. Valid until the next call.
  std::string_view encode(const trace::EventRecord& record, const Options& options);

 private:
  struct Shape {
    program::EventLayout layout;         // as it is written
    std::array<std::uint16_t, 2> ids{};  // of a hit as it was, and of a changed one
    std::uint32_t fixed = 0;             // bytes before the strings
    std::vector<std::uint32_t> places;   // of the locators of strings, by field; 0: the field is in its place
    std::uint32_t caller = 0;            // likewise, of a function event
    std::uint32_t strings = 0;
  };

  Shape& shape(Form form) { return form.lacks_entry ? without_entry_ : whole_; }
  const Shape& shape(Form form) const { return form.lacks_entry ? without_entry_ : whole_; }
  Shape make_shape(bool lacks_entry) const;
  void add_string(std::uint32_t place, std::string_view text);

  KnownEvent event_;
  Shape whole_, without_entry_;
  std::vector<std::uint8_t> padded_;
  std::string bytes_;          // of the record at hand
  std::uint32_t to_come_ = 0;  // strings that still need room in it
};

}  // namespace uprobe::format
