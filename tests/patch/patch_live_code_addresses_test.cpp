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

constexpr std::uint64_t kToInformation = 136, kSigTrap = 5,
                        kKernel = 0x80;  // bytes from a frame's ip; SIGTRAP, SI_KERNEL

// Of a handler of a breakpoint: `ip` is after it, `sp` that of the interrupted code.
void put_trap_frame(Held& held, Addr at_ip, Addr ip, Addr sp) {
  held.put(at_ip, ip);
  held.put(at_ip - 8, sp);
  held.put(at_ip + kToInformation, Addr{kSigTrap});
  held.put(at_ip + kToInformation + 8, Addr{kKernel});
}

TEST(LiveCodeAddresses, OneThreadInAHandlerOfABreakpoint) {
  Held held;
  constexpr Addr kOther{0x7ffe0000};
  held.map_anonymous(kOther, 0x8000);
  const Addr sp = kStack + 0x8000;
  put_trap_frame(held, sp + 0x100, kCode + 0x31, kOther + 0x4000);
  held.put(sp + 0x800, kCode + 0x40);
  held.put(kOther + 0x4100, kCode + 0x50);  // on the stack that it was on
  bool is_seen = false;
  const auto kept = LiveCodeAddresses::of_thread(held, *held.maps(), {kCode.value + 0x10, sp.value}, [&] {
    is_seen = true;
    held.put(sp + 0x900, kCode + 0x60);  // it runs on
  });
  EXPECT_TRUE(is_seen);
  EXPECT_TRUE(has(kept, kCode + 0x10));
  EXPECT_FALSE(has(kept, kCode + 0x31)) << "it goes on in the copy";
  EXPECT_TRUE(has(kept, kCode + 0x40));
  EXPECT_TRUE(has(kept, kCode + 0x50));
  EXPECT_FALSE(has(kept, kCode + 0x60));
}

TEST(LiveCodeAddresses, OneThreadWhoseStackIsNotKnown) {
  Held held;
  const auto kept = LiveCodeAddresses::of_thread(held, *held.maps(), {kCode.value, 0x1000}, [] {});
  EXPECT_TRUE(has(kept, kCode + 0x70));
}

}  // namespace
}  // namespace uprobe::test
