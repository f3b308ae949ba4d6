// Where the formats get the names of code addresses from.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/trace/event_record.h"

namespace uprobe::format {

// The function around an address: "name+distance/size".
struct NamedAddress {
  std::string_view name;  // empty: not known
  std::uint64_t distance = 0, size = 0;
};

class Symbols {
 public:
  Symbols() = default;
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  virtual ~Symbols() = default;

  // In the process that made the record. The name is valid until the next call.
  virtual NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) = 0;
};

}  // namespace uprobe::format
