// SPDX-License-Identifier: MIT
// Where libc's __errno_location finds errno, by the code that compilers make of it.
#include "arch/code/errno_access.h"

#include <gtest/gtest.h>

#include "tests/arch/hex.h"

namespace uprobe::arch {
namespace {

constexpr Addr kAt{0x1000};

std::optional<ErrnoAccess> read(const std::string& hex) { return errno_access(test::from_hex(hex), kAt); }

// mov 0x1ab779(%rip),%rax; add %fs:0,%rax; ret, as in Debian's glibc; with a landing pad it lies four bytes further.
TEST(ErrnoAccess, ReadsAWordThatTheLinkerFills) {
  const auto plain = read("488b0579b71a00 6448030425 00000000 c3");
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->is_in_word);
  EXPECT_EQ(plain->value, kAt.value + 7 + 0x1ab779);
  const auto with_pad = read("f30f1efa 488b05f0ffffff 6448030425 00000000 c3");
  ASSERT_TRUE(with_pad);
  EXPECT_EQ(with_pad->value, kAt.value + 11 - 16);
  const auto added = read("64488b0425 00000000 48030510000000 c3");
  ASSERT_TRUE(added);
  EXPECT_EQ(added->value, kAt.value + 16 + 16);
}

// musl; static glibc.
TEST(ErrnoAccess, ReadsConstants) {
  const std::pair<const char*, std::int64_t> rows[] = {
      {"64488b0425 00000000 4883c034 c3", 0x34},      {"64488b0425 00000000 48 05 80ffffff c3", -128},
      {"64488b0425 00000000 488d40c0 c3", -64},       {"64488b0425 00000000 488d8000ffffff c3", -256},
      {"48c7c0c0ffffff 6448030425 00000000 c3", -64},
  };
  for (const auto& [code, offset] : rows) {
    const auto found = read(code);
    ASSERT_TRUE(found) << code;
    EXPECT_FALSE(found->is_in_word) << code;
    EXPECT_EQ(static_cast<std::int64_t>(found->value), offset) << code;
  }
}

TEST(ErrnoAccess, LeavesOtherFunctionsAlone) {
  for (const char* code :
       {"", "c3", "488b0579b71a00", "488b0579b71a00 6448030425 00000000", "488b0579b71a00 6448030425 08000000 c3",
        "64488b0425 00000000 4883c034 90", "64488b0425 00000000 c3", "488b0d79b71a00 6448030425 00000000 c3",
        "f30f1efa", "64488b0425 00000000 4883"})
    EXPECT_FALSE(read(code)) << code;
}

}  // namespace
}  // namespace uprobe::arch
