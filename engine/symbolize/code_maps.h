// SPDX-License-Identifier: MIT
// Remembers which file's code was at which addresses in the processes of a session, for the names of addresses that are printed
// when the process may be gone.
//
// A process reports each file mapping that becomes executable before its code runs (preload/mappings.cpp), so a look at each of
// these moments sees all files' code. Generated code and unmapping are not reported: what a process has at an address is known
// only for times before the last look. Unmapped code stays in the book, and an address that two files have had gets no name.
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

// The CodeMapping::path of the kernel's own code in each process.
inline constexpr std::string_view kVdso = "[vdso]";

// An executable mapping of a file, or of the vDSO (inode 0).
struct CodeMapping {
  std::uint64_t begin = 0, end = 0, offset = 0, inode = 0;
  std::string path;

  bool holds(std::uint64_t address) const { return begin <= address && address < end; }
  std::uint64_t offset_of(std::uint64_t address) const { return address - begin + offset; }
  bool operator==(const CodeMapping&) const = default;
};

// For two threads: one adds, one asks.
class CodeMaps {
 public:
  // Reads the process's mappings, if it still exists.
  void note(pid_t pid);
  // The same for the process of a thread, unless it was done after `moment` (nanoseconds of CLOCK_MONOTONIC).
  void note_since(pid_t tid, std::uint64_t moment);

  // A code address whose file is known.
  struct Anchor {
    std::uint64_t address = 0, offset = 0, inode = 0;
  };
  // The files that were at an address, in the book of the process that has the anchor at its place. If no process has the id
  // `pid`, which may be a thread's, the books of all processes with that anchor count. Each file and offset once; none where
  // generated code was, too.
  std::vector<CodeMapping> at(pid_t pid, const Anchor& anchor, std::uint64_t address) const;

  // Whether code was at the address in such a process, of a file or not.
  bool has_code(pid_t pid, const Anchor& anchor, std::uint64_t address) const;

  // The same for all processes; each file and offset once.
  std::vector<CodeMapping> anywhere(std::uint64_t address) const;

  // Changes with every change of the books.
  std::uint64_t generation() const;

  // How many processes have mapped more than one book holds: none of their addresses gets a name.
  std::size_t overfull() const;

 private:
  struct Book {
    std::uint64_t noted = 0;  // when the last look began
    std::vector<CodeMapping> files;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> generated;  // code without a file: begin and end
    std::size_t bytes = 0;                                           // memory, approximately
    bool is_full = false;                                            // some mapping is not in it
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
  std::map<pid_t, pid_t> processes_;  // by thread
  std::size_t bytes_ = 0, overfull_ = 0;
  bool has_forgotten_ = false;  // some books were dropped, so a process without a book cannot use all the others
  std::uint64_t generation_ = 0;
};

}  // namespace uprobe::control
