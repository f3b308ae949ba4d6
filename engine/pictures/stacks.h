// SPDX-License-Identifier: MIT
// Counts equal stacks of hits: "task;outermost;...;innermost". A hit without a stack counts for its event, as if that were the only
// frame.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/output/formatter.h"

namespace uprobe::format {

// The frames of a record with a stack, the innermost first.
std::vector<StackFrame> frames_of(const trace::EventRecord& record, Symbols* symbols);

class StackCounts {
 public:
  explicit StackCounts(Symbols* symbols) : symbols_(symbols) {}

  // All stacks that are new after it is full count as one for each task.
  void add(const trace::EventRecord& record, std::string_view comm, std::string_view event);
  bool is_full() const;
  // In order of the text. They are valid until the next call.
  std::vector<std::pair<std::string_view, std::uint64_t>> sorted() const;
  void clear();

 private:
  void add_frame(std::string_view text);
  std::string frame_name(const trace::EventRecord& record, const StackFrame& frame) const;

  Symbols* const symbols_;
  std::unordered_map<std::string, std::uint64_t> counts_;
  std::size_t bytes_ = 0;  // of the stacks
  std::string stack_;      // of the record at hand
};

}  // namespace uprobe::format
