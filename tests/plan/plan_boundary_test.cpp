// Instruction boundaries over all functions of real programs: each that decoding finds is accepted, nothing between two
// is.
#include <gtest/gtest.h>

#include "arch/x86/code/relocate.h"
#include "engine/plan/boundary.h"

namespace uprobe::plan {
namespace {

struct Counts {
  std::size_t functions = 0, starts = 0, inside = 0;
};

// Walks a function as its bytes say; a function that does not decode to its end is left out from there on.
void check_function(const elf::ElfFile& file, const elf::Range& range, Counts& counts) {
  const auto offset = file.offset_of_address(range.begin);
  if (!offset || *offset + (range.end - range.begin) > file.bytes().size()) return;
  const auto code = file.bytes().subspan(*offset, range.end - range.begin);
  ++counts.functions;
  for (std::size_t at = 0; at < code.size();) {
    const auto insn = x86::decode(code.subspan(at), Addr{range.begin + at});
    if (!insn) return;
    const Boundary start = find_boundary(file, range.begin + at);
    EXPECT_TRUE(start.known && start.is_start) << std::hex << range.begin + at;
    ++counts.starts;
    for (unsigned byte = 1; byte < insn->length; byte += 2) {
      const Boundary inside = find_boundary(file, range.begin + at + byte);
      EXPECT_TRUE(inside.known && !inside.is_start) << std::hex << range.begin + at + byte;
      EXPECT_EQ(inside.before, range.begin + at);
      EXPECT_EQ(inside.after, range.begin + at + insn->length);
      ++counts.inside;
    }
    at += insn->length;
  }
}

// Every `step`th function whose range holds no other.
Counts check_file(const std::string& path, std::size_t step) {
  const auto file = elf::ElfFile::open(path);
  EXPECT_TRUE(file) << path;
  Counts counts;
  const auto ranges = file->function_ranges();
  for (std::size_t i = 0; i < ranges.size(); i += step) {
    const bool alone = (i == 0 || ranges[i - 1].end <= ranges[i].begin) &&
                       (i + 1 == ranges.size() || ranges[i].end <= ranges[i + 1].begin);
    if (alone && ranges[i].end - ranges[i].begin < 4096) check_function(*file, ranges[i], counts);
  }
  return counts;
}

TEST(Boundary, OfAllFunctionsOfAProgramWithSymbols) {
  const Counts counts = check_file(SUBJECT, 1);
  EXPECT_GT(counts.functions, 5U);
  EXPECT_GT(counts.inside, 20U);
}

TEST(Boundary, OfASampleOfALargeProgramsFunctions) {
  const Counts counts = check_file("/proc/self/exe", 97);
  EXPECT_GT(counts.functions, 10U);
  EXPECT_GT(counts.starts, 500U);
}

TEST(Boundary, NothingIsKnownWhereThereIsNoCode) {
  const auto file = elf::ElfFile::open(SUBJECT);
  ASSERT_TRUE(file);
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const Boundary boundary = find_boundary(*file, address);
    EXPECT_FALSE(boundary.known) << std::hex << address;
    EXPECT_FALSE(boundary.is_start);
  }
  for (const elf::Segment& s : file->segments())
    if (!s.executable) {
      const Boundary boundary = find_boundary(*file, s.address + 1);
      EXPECT_FALSE(boundary.known && boundary.is_start && s.address != 0) << std::hex << s.address;
    }
}

}  // namespace
}  // namespace uprobe::plan
