// SPDX-License-Identifier: MIT
#include "engine/pairs/pair_stacks.h"

#include <utility>

#include "engine/base/text.h"
#include "engine/output/escape.h"

namespace uprobe::format {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20, kMostFrameName = 200;
constexpr std::uint32_t kOthers = 1;

void add_word(std::string& text, std::uint64_t word) { text.append(reinterpret_cast<const char*>(&word), sizeof word); }

}  // namespace

std::vector<std::string> PairStacks::name(const trace::EventRecord& record,
                                          const std::vector<StackFrame>& frames) const {
  std::vector<std::string> names;
  names.reserve(frames.size());
  for (const StackFrame& frame : frames) {
    const std::uint64_t address = frame.address - (frame.is_return ? 1 : 0);
    const CodePlace place = symbols_ == nullptr ? CodePlace{} : symbols_->place_of(&record, address);
    const std::string file =
        place.path.empty() ? hex(frame.address) : "[" + place.path.substr(place.path.rfind('/') + 1) + "]";
    names.push_back(escaped(place.name.empty() ? file : place.name.substr(0, kMostFrameName)));
  }
  return names;
}

std::uint32_t PairStacks::number_of_names(std::vector<std::string> names) {
  std::string all;
  for (const std::string& one : names) all += one + '\n';
  const auto known = by_names_.find(all);
  if (known != by_names_.end()) return known->second;
  bytes_ += 2 * all.size() + names.size() * sizeof(std::string);
  const auto number = static_cast<std::uint32_t>(stacks_.size());
  by_names_.emplace(std::move(all), number);
  stacks_.push_back(std::move(names));
  return number;
}

std::uint32_t PairStacks::number_of(const trace::EventRecord& record, std::uint32_t pid, std::uint32_t program) {
  if (record.stack.empty()) return kNone;
  const std::vector<StackFrame> frames = symbols_ == nullptr ? linked_frames(record) : symbols_->frames_of(record);
  if (frames.empty()) return kNone;
  std::string addresses;
  add_word(addresses, std::uint64_t{pid} << 32 | program);
  for (const StackFrame& frame : frames) add_word(addresses, frame.address);
  const auto known = by_addresses_.find(addresses);
  if (known != by_addresses_.end()) return known->second;
  if (bytes_ > kMostBytes) return kOthers;
  bytes_ += addresses.size();
  return by_addresses_.emplace(std::move(addresses), number_of_names(name(record, frames))).first->second;
}

}  // namespace uprobe::format
