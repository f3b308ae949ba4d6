// SPDX-License-Identifier: MIT
// Damaged debug information: every question has an answer, and no answer is one that a fetch cannot have.
#include <algorithm>
#include <cstdlib>

#include "engine/base/fd.h"
#include "engine/dwarf/debug_info.h"
#include "engine/spec/fetch.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_argument(const spec::Argument& argument) {
  require(!argument.steps.empty() && argument.steps.size() < static_cast<std::size_t>(spec::kKernelEndSlot));
  require(argument.size == 1 || argument.size == 2 || argument.size == 4 || argument.size == 8);
  require(argument.bit_width + argument.bit_offset <= 8 * argument.size);
  require(argument.sink == spec::Sink::value || argument.sink == spec::Sink::memory);
}

void ask_at(const dwarf::DebugInfo& debug, std::uint64_t address) {
  (void)debug.after_prologue(address);
  (void)debug.lines_of(address);
  (void)debug.variables_at(address);
  for (const char* name : {"word", "word->first", "word->flag", "other.in.inner[1]", "*word->next", "word->text",
                           "&sum", "scale", "step", "copy.next->in.inner[3]", "global_count"}) {
    spec::Argument argument{.variable = name};
    if (debug.find_variable(address, argument)) check_argument(argument);
  }
}

void ask_of_copies(const dwarf::DebugInfo& debug, const char* name) {
  const auto copies = debug.copies_of(name);
  if (!copies) return;
  require(copies->size() <= dwarf::kMostCopies);
  (void)debug.lines_of_copies();
  for (std::size_t i = 0; i < std::min<std::size_t>(copies->size(), 4); ++i) {
    require((*copies)[i].number == i && (*copies)[i].problem.empty() == ((*copies)[i].address != 0));
    (void)debug.variables_of_copy((*copies)[i].number);
    spec::Argument argument{.variable = "word->first"};
    if (debug.find_copys_variable((*copies)[i].number, argument)) check_argument(argument);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = elf::ElfFile::parse("input", {data, size});
  if (!file) return 0;
  const auto debug = dwarf::DebugInfo::open(*file);
  if (!debug) return 0;
  for (const char* name : {"weigh", "begin", "twice"}) (void)debug->declaration_of(name);
  for (const int line : {1, 27, 29, 36}) (void)debug->find_line("described.cpp", line);
  for (const char* name : {"weigh", "begin", "twice", "inner"}) ask_of_copies(*debug, name);
  std::size_t left = 4;
  for (const elf::Range& range : file->function_ranges()) {
    if (left-- == 0) break;
    ask_at(*debug, range.begin);
    ask_at(*debug, range.begin + (range.end - range.begin) / 2);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"described_O0_4", "described_O2_4", "described_O0_5", "described_O2_5"}) {
    auto text = read_file(std::string(UPROBE_FUZZ_FIXTURES) + "/" + name);
    if (text) seeds.push_back(text.take());
  }
  return seeds;
}
