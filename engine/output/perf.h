// SPDX-License-Identifier: MIT
// The text of `perf script`, as importers of stacks read it (stackcollapse-perf.pl, speedscope, Firefox Profiler):
//
//   zsh 10064/10064 [001] 1370.652542: uprobes:e: (564be9bf4d41) u=1 str="two words"
//           564be9bf4d41 zalloc+0x0 (/bin/zsh)
//
// The frames are there if a stack was recorded; an empty line follows them.
#pragma once

#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

class PerfFormatter final : public Formatter {
 public:
  explicit PerfFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override { events_.emplace_back(layout); }
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;

 private:
  void add_task(const trace::EventRecord& record, std::string_view comm, Buffer& out) const;
  void add_frame(const trace::EventRecord& record, const StackFrame& frame, Buffer& out) const;

  const Options options_;
  std::vector<KnownEvent> events_;
  std::vector<std::uint8_t> padded_;
};

}  // namespace uprobe::format
