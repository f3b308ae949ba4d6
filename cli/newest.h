// SPDX-License-Identifier: MIT
// The newest lines of a trace, for --overflow=overwrite: a flight recorder, which is written when it is asked for, and at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace uprobe::cli {

class NewestLines {
 public:
  // Keeps `limit` bytes of lines, and besides them the first lines: those that begin with '#', or, with `has_names`, one line with the
  // names of columns.
  NewestLines(std::size_t limit, bool has_names) : limit_(limit), has_names_(has_names) {}

  // Whole lines. The oldest that are beyond the limit are dropped.
  void add(std::string_view lines);
  // The first lines, if they have not been taken yet, and the newest. Later calls go on from here.
  std::string take();
  // How many lines have been dropped.
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::string_view without_first_lines(std::string_view lines);
  void drop_oldest();

  std::size_t limit_;
  bool has_names_, has_begun_ = false;
  std::string first_;
  std::deque<std::string> parts_;
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace uprobe::cli
