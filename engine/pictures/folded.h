// SPDX-License-Identifier: MIT
// Folded stacks, for flame graphs: "task;outermost;...;innermost COUNT", a line for each different stack. A hit without a stack
// counts for its event, as if that were the only frame.
//
// The lines are written when the session ends. There may be any number of stacks: whenever those at hand take much memory they are
// written, and begin again at zero; a reader adds up lines that are the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

class FoldedFormatter final : public Formatter {
 public:
  explicit FoldedFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override { events_.emplace_back(layout); }
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void end(std::span<const Total>, Buffer& out) override { write(out); }

 private:
  void add_frame(std::string_view text);
  std::string frame_name(const trace::EventRecord& record, const StackFrame& frame) const;
  void write(Buffer& out);

  const Options options_;
  std::vector<KnownEvent> events_;
  std::unordered_map<std::string, std::uint64_t> counts_;
  std::size_t bytes_ = 0;  // of the stacks in `counts_`
  std::string stack_;      // of the record at hand
};

}  // namespace uprobe::format
