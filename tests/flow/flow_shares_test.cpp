// SPDX-License-Identifier: MIT
// Several threads find the same flow of a file as one does.
#include <gtest/gtest.h>

#include <string>

#include "engine/flow/flow.h"

namespace uprobe::plan {
namespace {

class Shares : public testing::TestWithParam<const char*> {};

TEST_P(Shares, FindTheSame) {
  auto file = elf::ElfFile::open(GetParam());
  if (!file) GTEST_SKIP() << file.error().text;
  const FileFlow one(*file, 1), many(*file, 5);
  ASSERT_EQ(one.functions().size(), many.functions().size());
  ASSERT_GT(one.functions().size(), 100U);
  for (std::size_t i = 0; i < one.functions().size(); ++i) {
    const SweptFunction &a = one.functions()[i], &b = many.functions()[i];
    ASSERT_EQ(a.trouble, b.trouble) << std::hex << a.range.begin;
    ASSERT_EQ(a.takes_label, b.takes_label) << std::hex << a.range.begin;
    ASSERT_EQ(a.jumps_by_pointer, b.jumps_by_pointer) << std::hex << a.range.begin;
    ASSERT_EQ(a.jumps_anywhere, b.jumps_anywhere) << std::hex << a.range.begin;
    for (std::uint64_t at = a.range.begin; at < a.range.end; ++at) {
      ASSERT_EQ(one.is_start(at), many.is_start(at)) << std::hex << at;
      ASSERT_EQ(one.is_stop(at), many.is_stop(at)) << std::hex << at;
      ASSERT_EQ(one.is_padding(at), many.is_padding(at)) << std::hex << at;
      ASSERT_EQ(one.is_arrival(at), many.is_arrival(at)) << std::hex << at;
      ASSERT_EQ(one.is_entered(at), many.is_entered(at)) << std::hex << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfFiles, Shares,
                         testing::Values("/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
                                         "/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libcrypto.so.3"));

}  // namespace
}  // namespace uprobe::plan
