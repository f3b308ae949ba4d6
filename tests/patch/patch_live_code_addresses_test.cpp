// SPDX-License-Identifier: MIT
// The code addresses to which the threads of a stopped process may return.
#include <gtest/gtest.h>

#include "engine/patch/live_code_addresses.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::LiveCodeAddresses;

constexpr Addr kCode{0x400000}, kStack{0x7fff0000};
constexpr std::uint64_t kStackBytes = 1 << 20;

class Held : public FakeTarget {
 public:
  Held() {
    Mapping code;
    code.begin = kCode, code.end = kCode + 4096, code.readable = code.executable = true;
    map(code);
    map_anonymous(kStack, kStackBytes);
  }
  bool is_held() const override { return true; }
  std::vector<target::ThreadPlace> places() const override { return threads; }
  void put(Addr at, Addr word) { static_cast<void>(write(at, &word.value, sizeof word.value)); }
  LiveCodeAddresses kept() { return LiveCodeAddresses::of(*this, *maps()); }

  std::vector<target::ThreadPlace> threads;
};

bool has(const LiveCodeAddresses& kept, Addr address) { return kept.has_in(address, address + 1); }

TEST(LiveCodeAddresses, WhereThreadsStand) {
  Held held;
  const Addr sp = kStack + 0x8000;
  held.threads = {{kCode.value + 0x10, sp.value}, {kCode.value + 0x20, sp.value}};
  const auto kept = held.kept();
  EXPECT_TRUE(has(kept, kCode + 0x10));
  EXPECT_TRUE(has(kept, kCode + 0x20));
  EXPECT_FALSE(has(kept, kCode + 0x11));
  EXPECT_TRUE(kept.has_in(kCode + 0xd, kCode + 0x11));
  EXPECT_FALSE(kept.has_in(kCode + 0x11, kCode + 0x20));  // the end is not part of it
}

TEST(LiveCodeAddresses, WordsOfStacks) {
  Held held;
  const Addr sp = kStack + 0x8004;  // may be in any frame
  held.threads = {{0, sp.value}};
  held.put(kStack + 0x8008, kCode + 0x30);        // above
  held.put(kStack + 0x8004 - 120, kCode + 0x41);  // not aligned: no frame's
  held.put(kStack + 0x8000 - 120, kCode + 0x40);  // in the red zone
  held.put(kStack + 0x8000 - 256, kCode + 0x50);  // below: no frame's
  held.put(kStack + 0x8010, Addr{0x1234});        // no code
  const auto kept = held.kept();
  EXPECT_TRUE(has(kept, kCode + 0x30));
  EXPECT_TRUE(has(kept, kCode + 0x40));
  EXPECT_FALSE(has(kept, kCode + 0x50));
  EXPECT_FALSE(has(kept, Addr{0x1234}));
}

TEST(LiveCodeAddresses, TheEndOfAStackIsItsMappings) {
  Held held;
  held.threads = {{0, kStack.value + kStackBytes - 8}};
  held.put(kStack + (kStackBytes - 8), kCode + 0x60);
  EXPECT_TRUE(has(held.kept(), kCode + 0x60));
}

TEST(LiveCodeAddresses, WhatIsNotKnownMayBeAnywhere) {
  Held held;
  EXPECT_FALSE(has(held.kept(), kCode));
  held.threads = {{0, 0x10}};  // no stack is there
  EXPECT_TRUE(has(held.kept(), kCode));
  FakeTarget runs;
  EXPECT_TRUE(has(LiveCodeAddresses::of(runs, {}), kCode));
}

}  // namespace
}  // namespace uprobe::test
