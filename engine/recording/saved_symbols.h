// SPDX-License-Identifier: MIT
// The names and the stack that a recording has for one hit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/output/symbols.h"

namespace uprobe::recording {

class SavedSymbols final : public format::Symbols {
 public:
  format::NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) override;
  format::CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) override;
  std::vector<format::StackFrame> frames_of(const trace::EventRecord&) override { return frames_; }

  // False: the bytes are not such an entry. They must live as long as the names are asked for.
  bool take_names(std::string_view bytes);
  bool take_frames(std::string_view bytes);
  void clear();

 private:
  struct Name {
    std::uint64_t address;
    format::NamedAddress named;
  };
  std::vector<Name> names_;
  std::vector<format::StackFrame> frames_;
  std::vector<format::CodePlace> places_;  // of the frames
};

}  // namespace uprobe::recording
