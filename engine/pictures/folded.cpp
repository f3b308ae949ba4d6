// SPDX-License-Identifier: MIT
#include "engine/pictures/folded.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/output/escape.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostStackBytes = std::size_t{64} << 20, kMostFrameName = 200;

}  // namespace

// A semicolon ends a frame.
void FoldedFormatter::add_frame(std::string_view text) {
  if (!stack_.empty()) stack_ += ';';
  std::string shown = escaped(text);
  std::replace(shown.begin(), shown.end(), ';', ':');
  stack_ += shown;
}

// The function without the distance: all places of a function are one frame.
std::string FoldedFormatter::frame_name(const trace::EventRecord& record, const StackFrame& frame) const {
  const std::uint64_t address = frame.address - (frame.is_return ? 1 : 0);
  const CodePlace place = options_.symbols == nullptr ? CodePlace{} : options_.symbols->place_of(&record, address);
  if (!place.name.empty()) return place.name.substr(0, kMostFrameName);
  return place.path.empty() ? hex(frame.address) : "[" + place.path.substr(place.path.rfind('/') + 1) + "]";
}

void FoldedFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  stack_.clear();
  add_frame(comm);
  std::vector<StackFrame> frames;
  if (!record.stack.empty())
    frames = options_.symbols == nullptr ? linked_frames(record) : options_.symbols->frames_of(record);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) add_frame(frame_name(record, *frame));
  if (frames.empty()) add_frame(events_[record.type].layout.event);
  const auto [at, is_new] = counts_.try_emplace(stack_, 0);
  ++at->second;
  if (is_new) bytes_ += stack_.size() + sizeof *at;
  if (bytes_ > kMostStackBytes) write(out);
}

void FoldedFormatter::write(Buffer& out) {
  std::vector<std::pair<std::string_view, std::uint64_t>> lines(counts_.begin(), counts_.end());
  std::sort(lines.begin(), lines.end());
  for (const auto& [stack, count] : lines) {
    out.add(stack);
    out.add(" ");
    add_decimal(out, count);
    out.add("\n");
  }
  counts_.clear();
  bytes_ = 0;
}

}  // namespace uprobe::format
