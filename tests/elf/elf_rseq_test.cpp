// SPDX-License-Identifier: MIT
// Restartable sequences: found by their section, and by the signature before their abort handlers.
#include "engine/elf/rseq_sections.h"
#include "tests/elf/fixture.h"

namespace uprobe::elf {
namespace {

class RseqSections : public testing::TestWithParam<const char*> {
 protected:
  // add_one: lea (7 bytes), mov (3), inc (3), ret, signature (7), abort handler. add_two: no lea, an add of 4.
  void expect_both(const ElfFile& file, std::uint64_t one, std::uint64_t two) {
    const auto sections = file.rseq_sections();
    ASSERT_EQ(sections.size(), 2U);
    EXPECT_EQ(sections[0], (RseqSection{.code = {one + 7, one + 13}, .abort = one + 21}));
    EXPECT_EQ(sections[1], (RseqSection{.code = {two, two + 7}, .abort = two + 15}));
  }
};

TEST_P(RseqSections, AreFound) {
  const ElfFile file = must_open(fixture(GetParam()));
  const std::uint64_t one = only_function(file, "add_one").address, two = only_function(file, "add_two").address;
  expect_both(file, one, two);
  expect_both(must_parse(without_sections(bytes_of(fixture(GetParam())))), one, two);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, RseqSections,
                         testing::Values("elf_rseq_library", "elf_rseq_global", "elf_rseq_packed", "elf_rseq_fixed"));

// A descriptor at any place; without one in the file, the function of its abort handler.
TEST_P(RseqSections, WithoutASectionOfTheirOwn) {
  const ElfFile file = must_open(fixture(std::string(GetParam()) + "_elsewhere"));
  const std::uint64_t one = only_function(file, "add_one").address, two = only_function(file, "add_two").address;
  const Symbol three = only_function(file, "add_three");
  const auto sections = file.rseq_sections();
  ASSERT_EQ(sections.size(), 3U);
  EXPECT_EQ(sections[0], (RseqSection{.code = {one + 7, one + 13}, .abort = one + 21}));
  EXPECT_EQ(sections[1], (RseqSection{.code = {two, two + 7}, .abort = two + 15}));
  EXPECT_EQ(sections[2].code, (Range{three.address, three.address + three.size}));
  EXPECT_FALSE(sections[2].is_exact);
}

// With a signature that the program has chosen: by the shape of their descriptors, which tables of functions do not have.
TEST_P(RseqSections, WithASignatureOfTheirOwn) {
  const ElfFile file = must_open(fixture(std::string(GetParam()) + "_own"));
  const std::uint64_t one = only_function(file, "add_one").address, two = only_function(file, "add_two").address;
  const auto sections = file.rseq_sections();
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0], (RseqSection{.code = {one + 7, one + 13}, .abort = one + 21, .is_likeness = true}));
  EXPECT_EQ(sections[1], (RseqSection{.code = {two, two + 7}, .abort = two + 15, .is_likeness = true}));
}

TEST(RseqSection, TouchesItsCodeAndItsSignature) {
  const RseqSection section{.code = {0x100, 0x110}, .abort = 0x200};
  EXPECT_FALSE(section.touches(0xf0, 0x100));
  EXPECT_TRUE(section.touches(0xf0, 0x101));
  EXPECT_TRUE(section.touches(0x10f, 0x114));
  EXPECT_FALSE(section.touches(0x110, 0x114));
  EXPECT_FALSE(section.touches(0x1f0, 0x1fc));
  EXPECT_TRUE(section.touches(0x1f0, 0x1fd));
  EXPECT_FALSE(section.touches(0x200, 0x204));
}

// glibc passes the signature to the kernel when it registers a thread's area: that is no abort handler.
TEST(RseqSection, RegisteringAnAreaIsNone) {
  for (const std::string& path : {fixture("elf_static"), std::string("/lib/x86_64-linux-gnu/libc.so.6")})
    EXPECT_TRUE(must_open(path).rseq_sections().empty()) << path;
}

TEST(RseqSection, MostFilesHaveNone) {
  for (const char* name : {"elf_pie", "elf_tiny"}) {
    EXPECT_TRUE(must_open(fixture(name)).rseq_sections().empty());
    EXPECT_TRUE(must_parse(without_sections(bytes_of(fixture(name)))).rseq_sections().empty());
  }
}

}  // namespace
}  // namespace uprobe::elf
