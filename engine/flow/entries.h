// SPDX-License-Identifier: MIT
// The ways into functions that the code of a file shows: who jumps from one function into another, and what is called. For
// those who ask to whom a return belongs.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/flow/flow.h"

namespace uprobe::plan {

// A direct branch from one function into another, or out of code that is in none.
struct Crossing {
  std::uint64_t target = 0, source = 0;
  auto operator<=>(const Crossing&) const = default;
};

class FunctionEntries {
 public:
  // One pass over all code, some 20 M instructions a second. Nothing of `flow` is kept.
  explicit FunctionEntries(const FileFlow& flow);

  // By target: jumps, and the calls that lead past the first instruction of a function (their own function's, too).
  std::span<const Crossing> into(const elf::Range& range) const;
  // Whether a direct call leads to the address.
  bool is_called(std::uint64_t address) const;
  // Whether a pointer in data, or an address that code makes, leads past the first instruction of a function without unwind
  // information, to a place in the range.
  bool is_pointed_into(const elf::Range& range) const;

 private:
  void read(const FileFlow& flow, const elf::Range& code);
  void note_called(std::uint64_t address);
  void note_pointer(const FileFlow& flow, std::uint64_t value);

  std::vector<Crossing> crossings_;     // sorted
  std::vector<std::uint64_t> called_;   // beginnings of functions; sorted, each once
  std::vector<std::uint64_t> pointed_;  // sorted, each once
  std::size_t sorted_ = 0;              // how many there were when they were sorted the last time
};

}  // namespace uprobe::plan
