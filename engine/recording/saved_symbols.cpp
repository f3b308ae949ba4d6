// SPDX-License-Identifier: MIT
#include "engine/recording/saved_symbols.h"

#include "engine/program/layout.h"
#include "engine/recording/words.h"

namespace uprobe::recording {

namespace {

// More than a hit can have.
constexpr std::size_t kMostNames = std::size_t{256} * program::kMaxElements, kMostFrames = 128;

}  // namespace

bool SavedSymbols::take_names(std::string_view bytes) {
  Parser parser(bytes);
  names_.clear();
  while (parser.is_good() && !parser.is_at_end()) {
    Name name{.address = parser.number<std::uint64_t>(), .named = {}};
    name.named.distance = parser.number<std::uint64_t>(), name.named.size = parser.number<std::uint64_t>();
    name.named.name = parser.text();
    if (names_.size() == kMostNames) return false;
    names_.push_back(name);
  }
  return parser.is_good();
}

bool SavedSymbols::take_frames(std::string_view bytes) {
  Parser parser(bytes);
  frames_.clear(), places_.clear();
  while (parser.is_good() && !parser.is_at_end()) {
    format::StackFrame frame{.address = parser.number<std::uint64_t>()};
    frame.is_return = parser.number<std::uint32_t>() != 0;
    format::CodePlace place;
    place.distance = parser.number<std::uint64_t>(), place.size = parser.number<std::uint64_t>();
    place.offset = parser.number<std::uint64_t>();
    place.name = parser.text(), place.path = parser.text(), place.build_id = parser.text();
    if (frames_.size() == kMostFrames) return false;
    frames_.push_back(frame), places_.push_back(std::move(place));
  }
  return parser.is_good();
}

void SavedSymbols::clear() { names_.clear(), frames_.clear(), places_.clear(); }

format::NamedAddress SavedSymbols::name_of(const trace::EventRecord&, std::uint64_t address) {
  for (const Name& name : names_)
    if (name.address == address) return name.named;
  return {};
}

format::CodePlace SavedSymbols::place_of(const trace::EventRecord*, std::uint64_t address) {
  for (std::size_t i = 0; i < frames_.size(); ++i)
    if (frames_[i].address - (frames_[i].is_return ? 1 : 0) == address) return places_[i];
  return {};
}

}  // namespace uprobe::recording
