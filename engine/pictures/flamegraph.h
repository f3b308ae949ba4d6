// SPDX-License-Identifier: MIT
// A flame graph of stacks (stacks.h): one SVG that needs nothing else. A click on a frame zooms, "search" marks frames by their text.
// The width of a frame is its share of the hits. Frames that are narrower than can be seen are drawn together, and counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/pictures/stacks.h"

namespace uprobe::format {

// Adds the element <svg> without the script (page_files.h).
void add_flame_graph(const StackCounts& stacks, Buffer& out);
// Text for XML and HTML; control characters as escape.h writes them.
void add_xml_text(Buffer& out, std::string_view text);

class FlameGraphFormatter final : public Formatter {
 public:
  explicit FlameGraphFormatter(const Options& options) : stacks_(options.symbols) {}

  void add(const program::EventLayout& layout) override { events_.push_back(layout.event); }
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  std::vector<std::string> events_;
  StackCounts stacks_;
};

}  // namespace uprobe::format
