// SPDX-License-Identifier: MIT
// The interface by which formats get the names of addresses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/event_record.h"

namespace uprobe::format {

// As `distance`: the address stands for what the name says (a type of Go), so the name is shown alone.
inline constexpr std::uint64_t kStandsAlone = ~std::uint64_t{0};

// The function or data around an address: "name+distance/size".
struct NamedAddress {
  std::string_view name;  // empty: not known
  std::uint64_t distance = 0, size = 0;
};

// The function at an address or, if that is not known, the file.
struct CodePlace {
  std::string name;  // empty: not known
  std::uint64_t distance = 0, size = 0;
  std::string path;           // empty: not known either
  std::uint64_t offset = 0;   // in the file
  std::string build_id = {};  // of the file, in hexadecimal; empty: not known
};

// One line of a stack.
struct StackFrame {
  std::uint64_t address = 0;
  bool is_return = false;  // the call is before the address
};

class Symbols {
 public:
  Symbols() = default;
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  virtual ~Symbols() = default;

  // The name in the process that made the record, valid until the next call.
  virtual NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) = 0;
  // The place in the process that made the record; null: in any process, and not known where processes have different code
  // there.
  virtual CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) = 0;
  // The frames of a record with a stack, the place of the hit first.
  virtual std::vector<StackFrame> frames_of(const trace::EventRecord& record) = 0;
};

// The frames by frame pointers alone.
std::vector<StackFrame> linked_frames(const trace::EventRecord& record);

// "function+0x4/0x20", "/file[+0x1040]", "0x7f00"; for a return address, the text for the call before it.
std::string frame_text(Symbols* symbols, const trace::EventRecord* record, std::uint64_t address, bool is_return);

}  // namespace uprobe::format
