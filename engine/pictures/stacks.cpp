// SPDX-License-Identifier: MIT
#include "engine/pictures/stacks.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/output/escape.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostStackBytes = std::size_t{64} << 20, kMostFrameName = 200;

}  // namespace

std::vector<StackFrame> frames_of(const trace::EventRecord& record, Symbols* symbols) {
  if (record.stack.empty()) return {};
  return symbols == nullptr ? linked_frames(record) : symbols->frames_of(record);
}

bool StackCounts::is_full() const { return bytes_ > kMostStackBytes; }

// A semicolon ends a frame.
void StackCounts::add_frame(std::string_view text) {
  if (!stack_.empty()) stack_ += ';';
  std::string shown = escaped(text);
  std::replace(shown.begin(), shown.end(), ';', ':');
  stack_ += shown;
}

// The function without the distance: all places of a function are one frame.
std::string StackCounts::frame_name(const trace::EventRecord& record, const StackFrame& frame) const {
  const std::uint64_t address = frame.address - (frame.is_return ? 1 : 0);
  const CodePlace place = symbols_ == nullptr ? CodePlace{} : symbols_->place_of(&record, address);
  if (!place.name.empty()) return place.name.substr(0, kMostFrameName);
  return place.path.empty() ? hex(frame.address) : "[" + place.path.substr(place.path.rfind('/') + 1) + "]";
}

void StackCounts::add(const trace::EventRecord& record, std::string_view comm, std::string_view event) {
  stack_.clear();
  add_frame(comm);
  const std::size_t task = stack_.size();
  const std::vector<StackFrame> frames = frames_of(record, symbols_);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) add_frame(frame_name(record, *frame));
  if (frames.empty()) add_frame(event);
  if (is_full() && !counts_.contains(stack_)) {
    stack_.resize(task);
    add_frame("[other stacks]");
  }
  const auto [at, is_new] = counts_.try_emplace(stack_, 0);
  ++at->second;
  if (is_new) bytes_ += stack_.size() + sizeof *at;
}

std::vector<std::pair<std::string_view, std::uint64_t>> StackCounts::sorted() const {
  std::vector<std::pair<std::string_view, std::uint64_t>> lines(counts_.begin(), counts_.end());
  std::sort(lines.begin(), lines.end());
  return lines;
}

void StackCounts::clear() {
  counts_.clear();
  bytes_ = 0;
}

}  // namespace uprobe::format
