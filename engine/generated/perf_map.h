// SPDX-License-Identifier: MIT
// /tmp/perf-PID.map: the functions that a program has generated, a line for each, "START SIZE NAME" in hexadecimal numbers. The
// program writes the file and adds to it as it runs, so all of it may be false: an address from it is looked at before it is used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace uprobe::control {

struct GeneratedFunction {
  std::uint64_t address = 0, bytes = 0;
  std::string_view name;
};

// Nothing where the line is none, or no address of a program.
std::optional<GeneratedFunction> parse_perf_map_line(std::string_view line);

// The file of one process, read from where the last look ended. It is that of the process's own /tmp, with the number that the
// process has in its own PID namespace; a regular file of the process's user or of root, reached without a link.
class PerfMap {
 public:
  explicit PerfMap(pid_t pid) : pid_(pid) {}

  // Shows the functions that were added, as many as `budget`, in bytes, allows; what was read is taken from it. False: there is no
  // such file. If it is another file by now, or was rewritten, `begins_anew` is called first: what earlier looks showed counts no
  // more.
  bool read(std::uint64_t& budget, const std::function<void()>& begins_anew,
            const std::function<void(const GeneratedFunction&)>& show);
  // The next look begins at the beginning.
  void rewind();
  // Whether the file has more than is ever read of one.
  bool is_cut() const { return at_ >= kMostBytes; }

  static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

 private:
  bool goes_on(const Fd& file) const;
  bool read_part(const Fd& file, std::uint64_t& budget, const std::function<void(const GeneratedFunction&)>& show);

  pid_t pid_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint64_t at_ = 0;  // where the next look begins
  std::string end_;       // what stands before that
};

}  // namespace uprobe::control
