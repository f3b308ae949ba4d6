// SPDX-License-Identifier: MIT
// Which pieces of text are written at once, in a process that exists only in memory.
#include <gtest/gtest.h>

#include "engine/patch/batched_patch.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::TextPiece;
using Bytes = std::vector<std::uint8_t>;

constexpr Addr kText{0x400000};
constexpr std::array<std::uint8_t, 1> kBreakpoint = {0xcc};
constexpr std::array<std::uint8_t, 5> kJump = {0xe9, 1, 2, 3, 4};

class Batched : public testing::Test {
 protected:
  Batched() {
    target::Mapping m;
    m.begin = kText, m.end = kText + 0x4000, m.readable = m.executable = true;
    target_.map(m, Bytes(0x4000, 0x90));
  }
  void write(const std::vector<TextPiece>& pieces) {
    target_.reads.clear(), target_.writes.clear();
    ASSERT_TRUE(control::write_in_runs(target_, pieces));
  }
  Bytes text(Addr at, std::size_t size) {
    Bytes bytes(size);
    EXPECT_TRUE(target_.read(at, bytes.data(), size));
    return bytes;
  }

  FakeTarget target_;
};

TEST_F(Batched, PiecesOnOnePageAreWrittenAtOnce) {
  write({{kText + 0xf00, kJump}, {kText + 0x10, kJump}});
  EXPECT_EQ(target_.writes.size(), 1U);
  EXPECT_EQ(text(kText + 0x0f, 7), (Bytes{0x90, 0xe9, 1, 2, 3, 4, 0x90}));
  EXPECT_EQ(text(kText + 0xeff, 7), (Bytes{0x90, 0xe9, 1, 2, 3, 4, 0x90}));
}

TEST_F(Batched, BreakpointsComeAfterJumps) {
  write({{kText + 0xf00, kJump}, {kText + 0x10, kBreakpoint}});
  ASSERT_EQ(target_.writes.size(), 2U);
  EXPECT_EQ(target_.writes[0].bytes.size(), kJump.size());
  EXPECT_EQ(text(kText + 0x0f, 3), (Bytes{0x90, 0xcc, 0x90}));
  EXPECT_EQ(text(kText + 0xeff, 7), (Bytes{0x90, 0xe9, 1, 2, 3, 4, 0x90}));
}

TEST_F(Batched, APageWithoutAPieceIsNotWritten) {
  write({{kText + 0x10, kBreakpoint}, {kText + 0x2f00, kBreakpoint}});
  ASSERT_EQ(target_.writes.size(), 2U);
  for (const FakeTarget::Write& one : target_.writes) EXPECT_EQ(one.bytes.size(), 1U);
}

TEST_F(Batched, NearPiecesOnTwoPagesAreWrittenAtOnce) {
  write({{kText + 0xff0, kBreakpoint}, {kText + 0x1008, kBreakpoint}});
  EXPECT_EQ(target_.writes.size(), 1U);
  EXPECT_EQ(text(kText + 0xff0, 2), (Bytes{0xcc, 0x90}));
  EXPECT_EQ(text(kText + 0x1007, 2), (Bytes{0x90, 0xcc}));
}

TEST_F(Batched, OnePieceIsWrittenWithoutBeingRead) {
  write({{kText + 0x10, kJump}});
  EXPECT_TRUE(target_.reads.empty());
  EXPECT_EQ(text(kText + 0x10, 5), (Bytes{0xe9, 1, 2, 3, 4}));
}

TEST_F(Batched, OverlappingPiecesAreWrittenOneAfterTheOther) {
  write({{kText + 0x10, kJump}, {kText + 0x12, kBreakpoint}});
  EXPECT_EQ(target_.writes.size(), 2U);
  EXPECT_EQ(text(kText + 0x10, 5), (Bytes{0xe9, 1, 0xcc, 3, 4}));
}

}  // namespace
}  // namespace uprobe::test
