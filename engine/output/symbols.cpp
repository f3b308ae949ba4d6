// SPDX-License-Identifier: MIT
#include "engine/output/symbols.h"

#include "engine/base/text.h"
#include "engine/trace/stack_copy.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostName = 200;  // limits the length of a line

}  // namespace

std::vector<StackFrame> linked_frames(const trace::EventRecord& record) {
  std::vector<StackFrame> frames;
  const auto stack = trace::parse_stack(record.stack);
  if (!stack) return frames;
  for (const auto& frame : stack->frames) frames.push_back({frame.address, !frames.empty()});
  return frames;
}

std::string frame_text(Symbols* symbols, const trace::EventRecord* record, std::uint64_t address, bool is_return) {
  const std::uint64_t call_byte = is_return ? 1 : 0;
  const CodePlace place = symbols == nullptr ? CodePlace{} : symbols->place_of(record, address - call_byte);
  if (!place.name.empty())
    return place.name.substr(0, kMostName) + "+" + hex(place.distance + call_byte) + "/" + hex(place.size);
  if (!place.path.empty()) return place.path + "[+" + hex(place.offset + call_byte) + "]";
  return hex(address);
}

}  // namespace uprobe::format
