// SPDX-License-Identifier: MIT
// Instructions that the kernel's uprobes accept are displaced here as well, and most that they refuse.
// tests/data/kernel-insns.tsv has a 6.18 kernel's answers to one instruction after the other; its bytes end after seven, zeros
// follow.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "arch/code/relocate.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

struct Row {
  std::string name;
  std::string bytes;
  bool is_accepted = false;
};

std::vector<Row> rows() {
  std::ifstream file(UPROBE_TEST_DATA "/kernel-insns.tsv");
  std::vector<Row> found;
  std::string line;
  std::getline(file, line);  // the column titles
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Row row;
    std::string text, answer;
    std::getline(words, row.name, '\t');
    std::getline(words, row.bytes, '\t');
    std::getline(words, text, '\t');
    std::getline(words, answer, '\t');
    row.is_accepted = answer == "ok";
    found.push_back(row);
  }
  return found;
}

bool is_displaced(const Row& row) {
  auto bytes = from_hex(row.bytes);
  bytes.resize(kMaxInsnBytes);
  return static_cast<bool>(can_displace(bytes, Addr{0x100000}));
}

TEST(KernelList, WhatTheKernelAcceptsIsDisplaced) {
  unsigned accepted = 0;
  for (const Row& row : rows()) {
    if (!row.is_accepted) continue;
    ++accepted;
    // No 64-bit program comes back from it.
    EXPECT_EQ(is_displaced(row), row.name != "i_sysenter") << row.name << ' ' << row.bytes;
  }
  EXPECT_GT(accepted, 70U);
}

TEST(KernelList, OfTheRestOnlyTheseAreRefused) {
  std::set<std::string> refused;
  for (const Row& row : rows())
    if (!row.is_accepted && !is_displaced(row)) refused.insert(row.name);
  const std::set<std::string> expected = {"i_call66", "i_jmp66",   "i_jcc66", "i_int3", "i_int1",    "i_into",
                                          "i_mov_ss", "i_push_es", "i_aam",   "i_salc", "i_grp1_82", "i_callf"};
  EXPECT_EQ(refused, expected);
}

}  // namespace
}  // namespace uprobe::arch::test
