// SPDX-License-Identifier: MIT
// The writes of patch_running, their order, and the bytes that it leaves alone; in a process that exists only in memory.
#include <gtest/gtest.h>

#include "engine/patch/patch.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Patch;
using control::Patched;
using Bytes = std::vector<std::uint8_t>;

constexpr Addr kText{0x400000};
constexpr std::array<std::uint8_t, 5> kOriginal = {0x48, 0x89, 0x5c, 0x24, 0x08},
                                      kJump = {0xe9, 0x12, 0x34, 0x56, 0x78};

// Serializes by writing a line into the target's list of writes: one without bytes.
class Serializing : public control::Serializer {
 public:
  explicit Serializing(FakeTarget& target) : target_(target) {}
  Status serialize() override {
    if (on_call) on_call(++calls);
    if (calls > works) return Error{.code = Code::refused, .text = "not here"};
    target_.writes.push_back({});
    return ok();
  }
  int works = 100;
  int calls = 0;
  std::function<void(int)> on_call = [](int) {};

 private:
  FakeTarget& target_;
};

class PatchOrder : public testing::Test {
 protected:
  PatchOrder() {
    target::Mapping m;
    m.begin = kText, m.end = kText + 0x2000, m.readable = m.executable = true;
    target_.map(m, Bytes(0x2000, 0x90));
  }
  void put(Addr at, const Bytes& bytes) { ASSERT_TRUE(target_.write(at, bytes.data(), bytes.size())); }
  Bytes text(Addr at, std::size_t size = 5) {
    Bytes bytes(size);
    EXPECT_TRUE(target_.read(at, bytes.data(), size));
    return bytes;
  }
  Patch to_jump(Addr at) {
    put(at, {kOriginal.begin(), kOriginal.end()});
    return {.at = at, .size = 5, .before = kOriginal, .after = kJump};
  }
  std::vector<Patched> run(const std::vector<Patch>& patches) {
    target_.writes.clear();
    return control::patch_running(target_, patches, serializer_);
  }
  // "400000 cc | ...": every write, a bar where the processors were serialized.
  std::string log() {
    std::string text;
    for (const FakeTarget::Write& w : target_.writes) {
      if (w.bytes.empty()) text += "| ";
      if (w.bytes.empty()) continue;
      char word[32];
      std::snprintf(word, sizeof word, "%llx:", static_cast<unsigned long long>(w.at.value));
      text += word;
      for (const std::uint8_t byte : w.bytes) std::snprintf(word, sizeof word, "%02x", byte), text += word;
      text += " ";
    }
    return text;
  }

  FakeTarget target_;
  Serializing serializer_{target_};
};

TEST_F(PatchOrder, AJumpComesInThreeStepsWithEveryProcessorBetweenThem) {
  EXPECT_EQ(run({to_jump(kText)}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:cc | 400001:12345678 | 400000:e9 | ");
}

TEST_F(PatchOrder, AllPatchesTakeAStepTogetherInOrderOfAddress) {
  EXPECT_EQ(run({to_jump(kText + 16), to_jump(kText)}), (std::vector{Patched::done, Patched::done}));
  EXPECT_EQ(log(), "400000:cc 400010:cc | 400001:12345678 400011:12345678 | 400000:e9 400010:e9 | ");
}

TEST_F(PatchOrder, ABreakpointThatComesOrGoesIsOneWrite) {
  const Patch in{.at = kText, .before = {0x90}, .after = {0xcc}};
  const Patch out{.at = kText, .before = {0xcc}, .after = {0x90}};
  EXPECT_EQ(run({in}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:cc ");
  EXPECT_EQ(run({out}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:90 ");
}

TEST_F(PatchOrder, OneByteOfAnInstructionForAnotherTakesTheStepsToo) {
  EXPECT_EQ(run({{.at = kText, .before = {0x90}, .after = {0xc3}}}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:cc | | 400000:c3 | ");
}

TEST_F(PatchOrder, FromABreakpointToAJumpAndBackTheFirstByteStays) {
  put(kText, {0xcc, 1, 2, 3, 4});
  EXPECT_EQ(run({{.at = kText, .size = 5, .before = {0xcc, 1, 2, 3, 4}, .after = kJump}}), std::vector{Patched::done});
  EXPECT_EQ(log(), "| 400001:12345678 | 400000:e9 | ") << "others may have seen the breakpoint only just";
  EXPECT_EQ(run({{.at = kText, .size = 5, .before = kJump, .after = {0xcc, 1, 2, 3, 4}}}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:cc | 400001:01020304 | | ");
}

TEST_F(PatchOrder, TwoBytesOfAShortJump) {
  EXPECT_EQ(run({{.at = kText, .size = 2, .before = {0x90, 0x90}, .after = {0xeb, 0x10}}}), std::vector{Patched::done});
  EXPECT_EQ(log(), "400000:cc | 400001:10 | 400000:eb | ");
}

TEST_F(PatchOrder, WhatIsNotAsItShouldBeIsLeftAloneAndTheOthersGoOn) {
  const std::vector patches{to_jump(kText), to_jump(kText + 16), to_jump(kText + 32)};
  put(kText + 4, {0xcc});
  put(kText + 32, {0xcc});
  EXPECT_EQ(run(patches), (std::vector{Patched::refused, Patched::done, Patched::refused}));
  EXPECT_EQ(log(), "400010:cc | 400011:12345678 | 400010:e9 | ");
}

TEST_F(PatchOrder, WithoutPatchesNoThreadIsDisturbed) {
  EXPECT_TRUE(run({}).empty());
  Patch wrong = to_jump(kText);
  wrong.before[3] = 0;
  EXPECT_EQ(run({wrong}), std::vector{Patched::refused});
  EXPECT_EQ(log(), "");
}

TEST_F(PatchOrder, WhereTheProcessorsCannotBeReachedTheBreakpointStays) {
  serializer_.works = 0;
  EXPECT_EQ(run({to_jump(kText)}), std::vector{Patched::breakpoint});
  EXPECT_EQ(log(), "400000:cc ");
  serializer_.calls = 0, serializer_.works = 1;
  EXPECT_EQ(run({to_jump(kText)}), std::vector{Patched::breakpoint});
  EXPECT_EQ(log(), "400000:cc | 400001:12345678 ");
  serializer_.calls = 0, serializer_.works = 2;
  EXPECT_EQ(run({to_jump(kText)}), std::vector{Patched::done}) << "the last one only makes an end of late traps";
}

// Between the steps the program runs: it may close a library, and map another one in the same place.
TEST_F(PatchOrder, BytesThatAppearDuringThePatchAreNotOverwritten) {
  for (const int when : {1, 2}) {
    const std::vector patches{to_jump(kText), to_jump(kText + 16)};
    serializer_.calls = 0;
    serializer_.on_call = [&](int call) {
      if (call == when) put(kText, {0x55, 0x48, 0x89, 0xe5, 0xc3});
    };
    EXPECT_EQ(run(patches), (std::vector{Patched::refused, Patched::done}));
    EXPECT_EQ(text(kText), (Bytes{0x55, 0x48, 0x89, 0xe5, 0xc3}));
    EXPECT_EQ(text(kText + 16), Bytes(kJump.begin(), kJump.end()));
  }
}

TEST_F(PatchOrder, AForeignBreakpointInTheMiddleStays) {
  serializer_.on_call = [&](int call) {
    if (call == 1) put(kText + 3, {0xcc});
  };
  EXPECT_EQ(run({to_jump(kText)}), std::vector{Patched::breakpoint});
  EXPECT_EQ(text(kText), (Bytes{0xcc, 0x89, 0x5c, 0xcc, 0x08}));
}

TEST_F(PatchOrder, MemoryThatIsGoneDoesNotKeepTheOthers) {
  const std::vector patches{to_jump(kText), Patch{.at = Addr{0x1000}, .size = 5, .before = kOriginal, .after = kJump}};
  EXPECT_EQ(run(patches), (std::vector{Patched::done, Patched::failed}));
  serializer_.on_call = [&](int) { target_.unmap(kText); };
  EXPECT_EQ(run({to_jump(kText + 16)}), std::vector{Patched::failed});
}

// A target whose page ends within the bytes after the first: a part of them is written, then the write fails.
class HalfWritten : public FakeTarget {
 public:
  Status write(Addr to, const void* from, std::size_t bytes) override {
    if (bytes != 4 || fails == 0) return FakeTarget::write(to, from, bytes);
    --fails;
    EXPECT_TRUE(FakeTarget::write(to, from, 2));
    return Error{.code = Code::system, .text = "half of it"};
  }
  int fails = 0;
};

TEST(PatchUndo, AWriteThatFailsIsUndone) {
  HalfWritten target;
  target::Mapping m;
  m.begin = kText, m.end = kText + 0x1000;
  target.map(m, Bytes(kOriginal.begin(), kOriginal.end()));
  Serializing serializer(target);
  const std::vector<Patch> patches{{.at = kText, .size = 5, .before = kOriginal, .after = kJump}};
  target.fails = 1;
  EXPECT_EQ(control::patch_running(target, patches, serializer), std::vector{Patched::failed});
  EXPECT_EQ((target.get<std::array<std::uint8_t, 5>>(kText)), kOriginal);
  EXPECT_EQ(serializer.calls, 2) << "the first byte comes back only when everybody has seen the others back";
  target.fails = 2;
  EXPECT_EQ(control::patch_running(target, patches, serializer), std::vector{Patched::breakpoint});
  EXPECT_EQ(target.get<std::uint8_t>(kText), 0xcc) << "bytes that cannot be restored stay after the breakpoint";
}

}  // namespace
}  // namespace uprobe::test
