// SPDX-License-Identifier: MIT
// Instruction boundaries over all functions of real programs: nearly each boundary that decoding finds is accepted, no place
// between two is; and the same over data in text.
#include <gtest/gtest.h>
#include <unistd.h>

#include "arch/code/relocate.h"
#include "engine/elf/image.h"
#include "engine/flow/boundary.h"
#include "engine/plan/resolve.h"

namespace uprobe::plan {
namespace {

struct Counts {
  std::size_t functions = 0, starts = 0, unknown = 0, inside = 0;
};

std::shared_ptr<const elf::ElfFile> open(const std::string& path) {
  auto file = elf::ElfFile::open(path);
  EXPECT_TRUE(file) << path;
  return file ? std::make_shared<const elf::ElfFile>(file.take()) : nullptr;
}

// Walks a function by its bytes; a function that does not decode to its end is skipped from there on.
void check_function(const elf::ElfFile& file, Boundaries& boundaries, const elf::Range& range, Counts& counts) {
  const auto offset = file.offset_of_address(range.begin);
  if (!offset || *offset + (range.end - range.begin) > file.bytes().size()) return;
  const auto code = file.bytes().subspan(*offset, range.end - range.begin);
  ++counts.functions;
  for (std::size_t at = 0; at < code.size();) {
    const auto insn = arch::decode(code.subspan(at), Addr{range.begin + at});
    if (!insn) return;
    const Boundary start = boundaries.find(range.begin + at);
    EXPECT_EQ(start.known, start.is_start) << std::hex << range.begin + at;
    ++(start.known ? counts.starts : counts.unknown);
    for (unsigned byte = 1; start.known && byte < insn->length; byte += 2) {
      const Boundary inside = boundaries.find(range.begin + at + byte);
      EXPECT_TRUE(inside.known && !inside.is_start) << std::hex << range.begin + at + byte;
      EXPECT_EQ(inside.before, range.begin + at);
      EXPECT_EQ(inside.after, range.begin + at + insn->length);
      ++counts.inside;
    }
    at += insn->length;
  }
}

// Every `step`th function whose range contains no other.
Counts check_file(const std::string& path, std::size_t step) {
  Counts counts;
  const auto file = open(path);
  if (!file) return counts;
  FlowCache flows;
  Boundaries boundaries(file, flows);
  const auto ranges = file->function_ranges();
  for (std::size_t i = 0; i < ranges.size(); i += step) {
    const bool alone = (i == 0 || ranges[i - 1].end <= ranges[i].begin) &&
                       (i + 1 == ranges.size() || ranges[i].end <= ranges[i + 1].begin);
    if (alone && ranges[i].end - ranges[i].begin < 4096) check_function(*file, boundaries, ranges[i], counts);
  }
  return counts;
}

TEST(Boundary, OfAllFunctionsOfAProgramWithSymbols) {
  const Counts counts = check_file(SUBJECT, 1);
  EXPECT_GT(counts.functions, 5U);
  EXPECT_GT(counts.inside, 20U);
  EXPECT_EQ(counts.unknown, 0U);
}

TEST(Boundary, OfASampleOfLargeProgramsFunctions) {
  for (const char* path : {"/proc/self/exe", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"}) {
    if (::access(path, R_OK) != 0) continue;
    const Counts counts = check_file(path, 97);
    EXPECT_GT(counts.functions, 10U) << path;
    EXPECT_GT(counts.starts, 500U) << path;
    EXPECT_LE(counts.unknown * 500, counts.starts) << path;
  }
}

// The subject's own list of its places.
class Places : public testing::TestWithParam<const char*> {};

TEST_P(Places, AreCodeWhereControlLeads) {
  const auto file = open(std::string(PLACES_SUBJECTS) + "/places_" + GetParam());
  ASSERT_TRUE(file);
  const auto image = elf::Image::parse(elf::BytesView(file->bytes()));
  ASSERT_TRUE(image);
  const elf::Section* text = image->find_section(SHT_PROGBITS, ".text");
  const elf::Section* places = image->find_section(SHT_PROGBITS, ".places");
  ASSERT_TRUE(text != nullptr && places != nullptr);
  FlowCache flows;
  Boundaries boundaries(file, flows);
  const elf::BytesView entries = image->bytes().slice(places->header.sh_offset, places->header.sh_size);
  for (std::uint64_t at = 0; entries.holds(at, 16); at += 16) {
    const std::uint64_t address = text->header.sh_addr + *entries.read<std::uint64_t>(at);
    const bool is_start = *entries.read<std::uint64_t>(at + 8) != 0;
    const Boundary found = boundaries.find(address);
    EXPECT_EQ(found.known && found.is_start, is_start)
        << std::hex << address << " " << symbol_near(*file, address) << " place " << std::dec << at / 16;
  }
}

INSTANTIATE_TEST_SUITE_P(, Places, testing::Values("library", "fixed", "stripped"));

TEST(Boundary, NothingIsKnownWhereThereIsNoCode) {
  const auto file = open(SUBJECT);
  ASSERT_TRUE(file);
  FlowCache flows;
  Boundaries boundaries(file, flows);
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const Boundary boundary = boundaries.find(address);
    EXPECT_FALSE(boundary.known) << std::hex << address;
    EXPECT_FALSE(boundary.is_start);
  }
  for (const elf::Segment& s : file->segments())
    if (!s.executable) {
      const Boundary boundary = boundaries.find(s.address + 1);
      EXPECT_FALSE(boundary.known && boundary.is_start && s.address != 0) << std::hex << s.address;
    }
}

}  // namespace
}  // namespace uprobe::plan
