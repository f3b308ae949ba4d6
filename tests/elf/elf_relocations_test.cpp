// SPDX-License-Identifier: MIT
// Relocations: agreement with readelf, with and without section headers, false tables.
#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/elf/relocations.h"
#include "tests/elf/fixture.h"
#include "tests/elf/made_elf.h"
#include "tests/elf/readelf.h"

namespace uprobe::elf {
namespace {

using Row = std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>;

std::vector<Row> our_rows(const ElfFile& file) {
  std::vector<Row> rows;
  for (const Relocation& one : relocations_of(file)) rows.emplace_back(one.place, one.type, one.addend);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// Lines of the form "0000000000003df8  0000000000000008 R_X86_64_RELATIVE  1130".
std::vector<Row> readelf_rows(const std::string& path) {
  std::vector<Row> rows;
  for (const Words& words : readelf("-r", path)) {
    if (words.size() != 4 || (words[2] != "R_X86_64_RELATIVE" && words[2] != "R_X86_64_IRELATIVE")) continue;
    const std::uint32_t type = words[2] == "R_X86_64_RELATIVE" ? kRelative : kIrelative;
    rows.emplace_back(std::stoull(words[0], nullptr, 16), type, std::stoull(words[3], nullptr, 16));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(Relocations, AgreeWithReadelf) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  for (const std::string& path : {std::string("/lib/x86_64-linux-gnu/libc.so.6"), fixture("elf_pie"),
                                  fixture("elf_static"), fixture("elf_static_pie"), fixture("elf_overloads")}) {
    const std::vector<Row> theirs = readelf_rows(path);
    EXPECT_FALSE(theirs.empty()) << path;
    EXPECT_EQ(our_rows(must_open(path)), theirs) << path;
  }
}

// By name of what it leads to; a word without a name leads to all data of its object.
std::vector<std::string> thread_words(const ElfFile& file) {
  std::vector<std::string> words;
  for (const ThreadWord& word : thread_words_of(file)) {
    EXPECT_EQ(word.place % 8, 0u);
    words.push_back(std::string(word.is_distance ? "distance" : "module") +
                    (word.is_by_name ? " of a symbol of " + std::to_string(word.size) + " at " : " from ") +
                    std::to_string(word.data));
  }
  std::sort(words.begin(), words.end());
  return words;
}

TEST(Relocations, WordsThatLeadToAThreadsData) {
  const std::vector<std::string> dynamic{"module from 0", "module of a symbol of 8 at 24"};
  const std::vector<std::string> fixed{"distance from 0", "distance of a symbol of 8 at 24"};
  EXPECT_EQ(thread_words(must_open(fixture("elf_global-dynamic"))), dynamic);
  EXPECT_EQ(thread_words(must_open(fixture("elf_initial-exec"))), fixed);
  EXPECT_EQ(thread_words(must_parse(without_sections(bytes_of(fixture("elf_global-dynamic"))))), dynamic);
  EXPECT_EQ(thread_words(must_open(fixture("elf_pie"))), std::vector<std::string>{});
}

TEST(Relocations, NeedNoSectionHeaders) {
  for (const char* name : {"elf_pie", "elf_static_pie", "elf_ifunc"}) {
    const ElfFile bare = must_parse(without_sections(bytes_of(fixture(name))));
    EXPECT_EQ(our_rows(bare), our_rows(must_open(fixture(name)))) << name;
    EXPECT_FALSE(our_rows(bare).empty()) << name;
  }
}

Bytes with_dynamic(std::uint64_t address, std::uint64_t size) {
  MadeElf made;
  made.add_part(PT_DYNAMIC, 0x800, 3 * sizeof(Elf64_Dyn));
  made.put(0x800, Elf64_Dyn{.d_tag = DT_RELA, .d_un = {.d_val = address}});
  made.put(0x810, Elf64_Dyn{.d_tag = DT_RELASZ, .d_un = {.d_val = size}});
  made.put(0x900, Elf64_Rela{.r_offset = 0x400100, .r_info = kRelative, .r_addend = 0x400200});
  made.put(0x918, Elf64_Rela{.r_offset = 0x400108, .r_info = R_X86_64_64, .r_addend = 1});
  made.put(0x930, Elf64_Rela{.r_offset = 0x400110, .r_info = kIrelative, .r_addend = 0x401000});
  return made.bytes();
}

TEST(Relocations, OnlyTheTwoKinds) {
  const std::vector<Row> wanted{{0x400100, kRelative, 0x400200}, {0x400110, kIrelative, 0x401000}};
  EXPECT_EQ(our_rows(must_parse(with_dynamic(MadeElf::kBase + 0x900, 72))), wanted);
  EXPECT_EQ(our_rows(must_parse(with_dynamic(MadeElf::kBase + 0x900, 71))).size(), 1U) << "the last one is cut off";
}

// Only if the file says that its code is changed, and only in code.
TEST(Relocations, CodeThatTheLoaderChanges) {
  constexpr std::uint64_t kPlace = MadeElf::kBase + MadeElf::kCode + 16;
  const auto file_with = [&](std::int64_t tag, std::uint64_t value) {
    MadeElf made;
    made.add_part(PT_DYNAMIC, 0x800, 4 * sizeof(Elf64_Dyn));
    made.put(0x800, Elf64_Dyn{.d_tag = DT_RELA, .d_un = {.d_val = MadeElf::kBase + 0x900}});
    made.put(0x810, Elf64_Dyn{.d_tag = DT_RELASZ, .d_un = {.d_val = sizeof(Elf64_Rela)}});
    made.put(0x820, Elf64_Dyn{.d_tag = tag, .d_un = {.d_val = value}});
    made.put(0x900, Elf64_Rela{.r_offset = kPlace, .r_info = R_X86_64_64, .r_addend = 1});
    return must_parse(made.bytes());
  };
  for (const auto& [tag, value] : {std::pair<std::int64_t, std::uint64_t>{DT_TEXTREL, 0}, {DT_FLAGS, DF_TEXTREL}}) {
    const ElfFile file = file_with(tag, value);
    EXPECT_TRUE(file.is_relocated_code(kPlace, 1));
    EXPECT_TRUE(file.is_relocated_code(kPlace - 2, 3));
    EXPECT_TRUE(file.is_relocated_code(kPlace + 7, 1));
    EXPECT_FALSE(file.is_relocated_code(kPlace - 2, 2));
    EXPECT_FALSE(file.is_relocated_code(kPlace + 8, 1));
  }
  EXPECT_FALSE(file_with(DT_FLAGS, DF_BIND_NOW).is_relocated_code(kPlace, 1));
}

TEST(Hostile, SizesAndPlaces) {
  for (const std::uint64_t address :
       {std::uint64_t{0}, MadeElf::kBase - 1, MadeElf::kBase + MadeElf::kSize, UINT64_MAX})
    EXPECT_TRUE(our_rows(must_parse(with_dynamic(address, 72))).empty()) << address;
  EXPECT_TRUE(our_rows(must_parse(with_dynamic(MadeElf::kBase + 0x900, 0))).empty());
  // No further than the end of the segment.
  EXPECT_EQ(our_rows(must_parse(with_dynamic(MadeElf::kBase + 0x900, UINT64_MAX))).size(), 2U);
  EXPECT_LE(our_rows(must_parse(with_dynamic(MadeElf::kBase + MadeElf::kSize - 1, UINT64_MAX))).size(), 0U);
}

// Many sections with the same bytes: all of them together give no more than the file can hold.
TEST(Hostile, OverlappingTablesAreBounded) {
  constexpr std::uint16_t kSections = 20000;
  MadeElf made;
  made.header().e_shoff = MadeElf::kSize;
  made.header().e_shnum = kSections;
  made.header().e_shentsize = sizeof(Elf64_Shdr);
  for (std::uint64_t at = MadeElf::kCode; at + sizeof(Elf64_Rela) <= MadeElf::kSize; at += sizeof(Elf64_Rela))
    made.put(at, Elf64_Rela{.r_offset = 0, .r_info = kRelative, .r_addend = 0});
  Bytes bytes = made.bytes();
  for (int i = 0; i < kSections; ++i)
    put(bytes, bytes.size(),
        Elf64_Shdr{.sh_name = 0,
                   .sh_type = i == 0 ? std::uint32_t{SHT_NULL} : std::uint32_t{SHT_RELA},
                   .sh_flags = SHF_ALLOC,
                   .sh_addr = 0,
                   .sh_offset = MadeElf::kCode,
                   .sh_size = 4080,
                   .sh_link = 0,
                   .sh_info = 0,
                   .sh_addralign = 8,
                   .sh_entsize = sizeof(Elf64_Rela)});
  const std::size_t found = our_rows(must_parse(bytes)).size();
  EXPECT_GE(found, 170U);
  EXPECT_LE(found, bytes.size() / sizeof(Elf64_Rela));
}

}  // namespace
}  // namespace uprobe::elf
