// SPDX-License-Identifier: MIT
// Where the formats get the names of code addresses from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/event_record.h"

namespace uprobe::format {

// The function around an address: "name+distance/size".
struct NamedAddress {
  std::string_view name;  // empty: not known
  std::uint64_t distance = 0, size = 0;
};

// What is known of an address: the function, or at least the file.
struct CodePlace {
  std::string name;  // empty: not known
  std::uint64_t distance = 0, size = 0;
  std::string path;          // empty: not known either
  std::uint64_t offset = 0;  // in the file
};

// One line of a stack.
struct StackFrame {
  std::uint64_t address = 0;
  bool is_return = false;  // the call is in front of it
};

class Symbols {
 public:
  Symbols() = default;
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  virtual ~Symbols() = default;

  // In the process that made the record. The name is valid until the next call.
  virtual NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) = 0;
  // In the process that made the record; null: in any, but where processes differ in what they have there nothing is known.
  virtual CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) = 0;
  // Of a record with a stack, the place of the hit first.
  virtual std::vector<StackFrame> frames_of(const trace::EventRecord& record) = 0;
};

// By frame pointers alone.
std::vector<StackFrame> linked_frames(const trace::EventRecord& record);

// "function+0x4/0x20", "/file[+0x1040]", "0x7f00"; of a return address as of the call in front of it.
std::string frame_text(Symbols* symbols, const trace::EventRecord* record, std::uint64_t address, bool is_return);

}  // namespace uprobe::format
