// SPDX-License-Identifier: MIT
// Fuzzes the unwinding of a stack that a hostile target has recorded: head, frames, links, registers and words have any
// contents, and point into code with unwind tables or without. It ends, and stays inside.
//
// Input: the bytes after a record. Addresses are moved into the code of a small program.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/symbolize/stack_unwinder.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

constexpr std::uint64_t kStack = 0x7fff00001000, kCode = 0x500000000000, kBare = 0x600000000000, kBareBytes = 0x1000;

void require(bool condition) {
  if (!condition) std::abort();
}

const elf::ElfFile& program() {
  static const elf::ElfFile file = elf::ElfFile::open(std::string(UPROBE_FUZZ_FIXTURES) + "/described_O2_5").take();
  return file;
}

// The program's code at kCode, and code of no file at kBare.
CodeAt code_at(std::uint64_t address) {
  static elf::CallFrames tables(program().bytes());
  if (address - kBare < kBareBytes) return {.is_code = true};
  const std::uint64_t link = address - kCode;
  for (const elf::Segment& s : program().segments())
    if (s.executable && link - s.address < s.file_bytes)
      return {.is_code = true, .file = &program(), .tables = &tables, .link_address = link};
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto stack = trace::parse_stack({data, size});
  if (!stack) return 0;
  require(stack->frames.size() <= shared::kMaxFrames && stack->bytes.size() <= size);
  const auto frames = unwind(*stack, code_at);
  require(!frames.empty() && frames.size() <= kMostStackFrames);
  return 0;
}

namespace {

std::string recorded(const std::vector<std::uint64_t>& addresses, const std::vector<std::uint64_t>& words,
                     std::uint64_t bp) {
  shared::StackHead head{};
  head.frames = static_cast<std::uint32_t>(addresses.size()),
  head.copy_bytes = static_cast<std::uint32_t>(8 * words.size());
  head.copy_begin = kStack;
  head.registers[static_cast<std::size_t>(shared::Reg::ip)] = addresses[0];
  head.registers[static_cast<std::size_t>(shared::Reg::sp)] = kStack + 16;
  head.registers[static_cast<std::size_t>(shared::Reg::bp)] = bp;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  const auto add = [&](std::uint64_t word) { bytes.append(reinterpret_cast<const char*>(&word), sizeof word); };
  for (const std::uint64_t address : addresses) add(address);
  for (std::size_t i = 0; i < addresses.size(); ++i) add(i == 0 ? 0 : kStack + 24 * i);
  for (const std::uint64_t word : words) add(word);
  return bytes;
}

}  // namespace

// In a function with tables, in code without any, and with a chain of links.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  std::vector<std::uint64_t> words(96);
  std::size_t left = 6;
  for (const elf::Range& range : program().function_ranges()) {
    if (left-- == 0) break;
    const std::uint64_t inside = kCode + range.begin + (range.end - range.begin) / 2;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = i % 4 == 1 ? inside : kStack + 8 * i + 32;
    seeds.push_back(recorded({inside}, words, kStack + 64));
    seeds.push_back(recorded({kCode + range.begin, inside, inside}, words, kStack + 32));
  }
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i % 2 == 1 ? kBare + 8 * i : kStack + 8 * i + 16;
  seeds.push_back(recorded({kBare + 5, kBare + 9, kBare + 13}, words, kStack + 16));
  seeds.push_back(recorded({kBare + 5}, words, kStack + 32));
  return seeds;
}
