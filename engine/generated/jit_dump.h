// SPDX-License-Identifier: MIT
// jit-PID.dump: the functions that a program has generated, in perf's format (linux/tools/perf/Documentation/jitdump-specification.txt):
// a header, and records of code that was made (with its name and bytes) or moved. The program maps the beginning of the file as
// executable memory, by which it is found. It writes the file as it runs, so all of it may be false: an address from it is looked at
// before it is used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/regular_file.h"
#include "engine/generated/perf_map.h"

namespace uprobe::control {

// Code of a function that the program has moved.
struct MovedFunction {
  std::uint64_t from = 0, to = 0, bytes = 0;
};

// What one record says. `bytes`: its length in the file.
struct JitRecord {
  std::uint64_t bytes = 0;
  std::optional<GeneratedFunction> made;  // its name is in the text that was parsed
  std::optional<MovedFunction> moved;
};

// The length of the header: where the first record begins. Nothing: it is no header of this machine's byte order and version.
std::optional<std::uint64_t> parse_jit_header(std::string_view text);

// How much of a record parse_jit_record wants to see; at the end of the file there may be less.
inline constexpr std::size_t kJitRecordSeen = 16 + 40 + 4096 + 1;

// The record at the beginning of the text. Nothing: what is there is no record. Addresses that no program has, and names that are
// empty or too long, are left out.
std::optional<JitRecord> parse_jit_record(std::string_view text);

// The file of one process, read from where the last look ended.
class JitDump {
 public:
  explicit JitDump(pid_t pid) : pid_(pid) {}

  // As PerfMap::read; code that was moved is shown as such.
  void read(const std::function<void()>& begins_anew, const std::function<void(const GeneratedFunction&)>& show,
            const std::function<void(const MovedFunction&)>& move);
  // The next look begins at the beginning.
  void rewind();

 private:
  using Show = std::function<void(const GeneratedFunction&)>;
  using Move = std::function<void(const MovedFunction&)>;
  std::optional<RegularFile> open();
  bool read_part(const RegularFile& file, const Show& show, const Move& move);

  pid_t pid_;
  std::string path_;  // in the process's file system; empty: not found yet
  unsigned looks_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint64_t at_ = 0;  // where the next look begins; 0: the header has not been read
  bool is_damaged_ = false;
};

}  // namespace uprobe::control
