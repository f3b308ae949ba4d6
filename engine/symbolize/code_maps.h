// SPDX-License-Identifier: MIT
// Which file's code lay where in the processes of a session, for names of addresses that are read when the process may be gone.
//
// Whatever becomes executable of a file is shown to the tool before it runs (preload/mappings.cpp), so a look at each such moment
// sees all files' code. Of generated code nobody tells, nor of what is unmapped: what a process has at an address is believed of
// moments before the last look alone. What has been unmapped stays in the book: an address that two have had is nobody's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/target/maps.h"

namespace uprobe::control {

// What CodeMapping::path is of the kernel's own code in each process.
inline constexpr std::string_view kVdso = "[vdso]";

// An executable mapping of a file, or of the vDSO (inode 0).
struct CodeMapping {
  std::uint64_t begin = 0, end = 0, offset = 0, inode = 0;
  std::string path;

  bool holds(std::uint64_t address) const { return begin <= address && address < end; }
  std::uint64_t offset_of(std::uint64_t address) const { return address - begin + offset; }
  bool operator==(const CodeMapping&) const = default;
};

// For two threads: one notes, one asks.
class CodeMaps {
 public:
  // Reads the process's mappings, if it is there.
  void note(pid_t pid);
  // The same of a thread's process, unless that has been done since `moment` (nanoseconds of CLOCK_MONOTONIC).
  void note_since(pid_t tid, std::uint64_t moment);

  // A code address of which it is known what lies there.
  struct Anchor {
    std::uint64_t address = 0, offset = 0, inode = 0;
  };
  // What has lain at an address of a process that has the anchor where it says. `pid` may be a thread's id, which no process
  // has; then any process counts. Each file and offset once; none where generated code has lain too.
  std::vector<CodeMapping> at(pid_t pid, const Anchor& anchor, std::uint64_t address) const;

  // Whether code has lain at an address of such a process, be it in no file.
  bool has_code(pid_t pid, const Anchor& anchor, std::uint64_t address) const;

  // In any process; each file and offset once.
  std::vector<CodeMapping> anywhere(std::uint64_t address) const;

  // Grows with each change.
  std::uint64_t generation() const;

  // How many processes have mapped more than is kept of one: none of their addresses has a name then.
  std::size_t overfull() const;

 private:
  struct Book {
    std::uint64_t noted = 0;  // when the last look began
    std::vector<CodeMapping> files;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> generated;  // code without a file: begin and end
    std::size_t bytes = 0;                                           // of memory, about
    bool is_full = false;                                            // something that was mapped is not in it
  };
  void add_file(Book& book, CodeMapping mapping);
  void forget_oldest(pid_t but);
  static bool has_generated(const Book& book, std::uint64_t address);
  pid_t process_of(pid_t tid);
  static bool add_generated(Book& book, std::uint64_t begin, std::uint64_t end);
  template <class Visit>
  void each_book(pid_t pid, const Anchor& anchor, const Visit& visit) const;

  mutable std::mutex lock_;
  std::map<pid_t, Book> books_;
  std::map<pid_t, pid_t> processes_;  // of threads
  std::size_t bytes_ = 0, overfull_ = 0;
  bool has_forgotten_ = false;  // books: a process without one is not like another
  std::uint64_t generation_ = 0;
};

}  // namespace uprobe::control
