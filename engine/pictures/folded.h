// SPDX-License-Identifier: MIT
// Folded stacks, for flame graphs: "task;outermost;...;innermost COUNT", a line for each different stack (stacks.h).
//
// The lines are written when the session ends. There may be any number of stacks: whenever those at hand take much memory they are
// written, and begin again at zero; a reader adds up lines that are the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/pictures/stacks.h"

namespace uprobe::format {

class FoldedFormatter final : public Formatter {
 public:
  explicit FoldedFormatter(const Options& options) : stacks_(options.symbols) {}

  void add(const program::EventLayout& layout) override { events_.push_back(layout.event); }
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void end(std::span<const Total>, Buffer& out) override { write(out); }

 private:
  void write(Buffer& out);

  std::vector<std::string> events_;
  StackCounts stacks_;
};

}  // namespace uprobe::format
