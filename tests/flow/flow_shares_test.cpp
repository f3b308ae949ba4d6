// SPDX-License-Identifier: MIT
// Several threads find the same flow of a file as one does, and the same is found again where it has been kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/elf/rseq_sections.h"
#include "engine/facts/kept_facts.h"
#include "engine/flow/flow.h"
#include "engine/flow/system_calls.h"

namespace uprobe::plan {
namespace {

class Shares : public testing::TestWithParam<const char*> {};

void expect_same(const FileFlow& one, const FileFlow& many) {
  ASSERT_EQ(one.functions().size(), many.functions().size());
  ASSERT_GT(one.functions().size(), 100U);
  for (std::size_t i = 0; i < one.functions().size(); ++i) {
    const SweptFunction &a = one.functions()[i], &b = many.functions()[i];
    ASSERT_EQ(a.range, b.range) << std::hex << a.range.begin;
    ASSERT_EQ(a.trouble, b.trouble) << std::hex << a.range.begin;
    ASSERT_EQ(a.begins_at_call, b.begins_at_call) << std::hex << a.range.begin;
    ASSERT_EQ(a.leaves_by_table, b.leaves_by_table) << std::hex << a.range.begin;
    ASSERT_EQ(a.entered_by_table, b.entered_by_table) << std::hex << a.range.begin;
    ASSERT_EQ(a.takes_label, b.takes_label) << std::hex << a.range.begin;
    ASSERT_EQ(a.jumps_by_pointer, b.jumps_by_pointer) << std::hex << a.range.begin;
    ASSERT_EQ(a.jumps_anywhere, b.jumps_anywhere) << std::hex << a.range.begin;
    for (std::uint64_t at = a.range.begin; at < a.range.end; ++at) {
      ASSERT_EQ(one.is_start(at), many.is_start(at)) << std::hex << at;
      ASSERT_EQ(one.is_stop(at), many.is_stop(at)) << std::hex << at;
      ASSERT_EQ(one.is_padding(at), many.is_padding(at)) << std::hex << at;
      ASSERT_EQ(one.is_arrival(at), many.is_arrival(at)) << std::hex << at;
      ASSERT_EQ(one.is_entered(at), many.is_entered(at)) << std::hex << at;
      ASSERT_EQ(one.is_named_in(at, at + 1), many.is_named_in(at, at + 1)) << std::hex << at;
      ASSERT_EQ(one.is_pointer_jump(at), many.is_pointer_jump(at)) << std::hex << at;
    }
  }
  ASSERT_EQ(one.table_targets(), many.table_targets());
  ASSERT_EQ(one.block_rows(), many.block_rows());
  ASSERT_EQ(one.go(), many.go());
}

TEST_P(Shares, FindTheSame) {
  auto file = elf::ElfFile::open(GetParam());
  if (!file) GTEST_SKIP() << file.error().text;
  expect_same(FileFlow(*file, 1), FileFlow(*file, 5));
}

std::vector<std::pair<std::uint64_t, int>> offsets_of(const elf::ElfFile& file, bool ends) {
  std::vector<std::pair<std::uint64_t, int>> found;
  const auto sites = system_call_sites(file, ends);
  for (const SystemCallSite& site : sites ? *sites : std::vector<SystemCallSite>())
    found.emplace_back(site.offset, static_cast<int>(site.role) * 4 + site.is_signal_return * 2 + site.maps_memory);
  return found;
}

// Of an entry that is cut short, or another file's, nothing is taken.
TEST_P(Shares, AreFoundAgain) {
  std::string folder = testing::TempDir() + "uprobe-flow.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  facts::keep_facts_in(folder + "/uprobe-run");
  const auto file = elf::ElfFile::open(GetParam());
  if (!file) GTEST_SKIP() << file.error().text;
  const auto key = file->facts_key();
  ASSERT_TRUE(key) << "nothing is kept of it";
  const FileFlow found(*file);
  const auto kept = facts::find(*key, "flow");
  ASSERT_TRUE(kept);
  const auto same = elf::ElfFile::open(GetParam());
  expect_same(found, FileFlow(*same));
  const auto plain = elf::ElfFile::parse(GetParam(), file->bytes());
  for (int run = 0; run < 2; ++run) {
    const auto again = elf::ElfFile::open(GetParam());
    EXPECT_EQ(again->known_starts(), plain->known_starts());
    const auto ranges = again->function_ranges(), others = plain->function_ranges();
    EXPECT_TRUE(std::ranges::equal(ranges, others));
    for (const elf::Range& range : others) EXPECT_EQ(again->range_at(range.end - 1), plain->range_at(range.end - 1));
    EXPECT_TRUE(std::ranges::equal(again->rseq_sections(), plain->rseq_sections()));
    for (const bool ends : {false, true}) EXPECT_EQ(offsets_of(*again, ends), offsets_of(*plain, ends));
  }
  facts::keep(*key, "flow", kept->span().first(kept->size - 1));
  expect_same(found, FileFlow(*same));
  EXPECT_EQ(facts::find(*key, "flow")->size, kept->size) << "it is kept anew";
  facts::keep_facts_in("");
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(OfFiles, Shares,
                         testing::Values("/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
                                         "/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libcrypto.so.3"));

}  // namespace
}  // namespace uprobe::plan
