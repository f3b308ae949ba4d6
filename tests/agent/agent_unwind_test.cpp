// SPDX-License-Identifier: MIT
// How the agent unwinds: this program's own stack as libc's backtrace() does, programs of unwind tables byte by byte, and any bytes.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "preload/stack_walk.h"
#include "preload/unwind_rules.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using agent::CallersLink;
using agent::FrameBase;
using agent::UnwindRule;
using shared::CodeFile;
using shared::i64;
using shared::Reg;

constexpr u32 kMost = shared::kHistogramFrames;

class Unwinding : public testing::Test {
 protected:
  Unwinding() : block_(empty_block()), files_(code_files_of(block_)) { install_agent_handlers(); }

  shared::ProcessBlock& block_;
  CodeFile* files_;
};

// ---- stacks

// The return addresses of one place, by the agent and by libc.
struct Seen {
  std::vector<u64> ours, theirs;
};
Seen g_seen;

[[gnu::noinline]] std::vector<u64> unwind(const ucontext_t& context) {
  shared::Registers r{};
  r[Reg::ip] = static_cast<u64>(context.uc_mcontext.gregs[REG_RIP]);
  r[Reg::sp] = static_cast<u64>(context.uc_mcontext.gregs[REG_RSP]);
  r[Reg::bp] = static_cast<u64>(context.uc_mcontext.gregs[REG_RBP]);
  const shared::Point point{};
  const agent::Hit hit{agent::uprobe_block, &point, &r, 1, true, true};
  std::vector<u64> frames(kMost);
  frames.resize(agent::unwind_stack(hit, shared::Event{}, frames.data(), kMost));
  return frames;
}

[[gnu::noinline]] void look() {
  ucontext_t context;
  ::getcontext(&context);
  g_seen.ours = unwind(context);
  void* frames[kMost];
  const int count = ::backtrace(frames, kMost);
  g_seen.theirs.assign(reinterpret_cast<u64*>(frames), reinterpret_cast<u64*>(frames) + count);
  // What the two saw of this function itself are two places in it.
  for (auto* seen : {&g_seen.ours, &g_seen.theirs}) seen->erase(seen->begin());
}

void expect_same() {
  ASSERT_GE(g_seen.theirs.size(), 5U);
  EXPECT_EQ(g_seen.ours, g_seen.theirs);
}

using Next = void (*)(int);
Next g_deeper;

[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] void plain(int depth) {
  volatile int words[16] = {depth};
  depth == 0 ? look() : g_deeper(depth - 1);
  words[1] = words[0];
}
[[gnu::noinline]] void with_variable_frame(int depth) {
  volatile char* const room = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(16 + depth * 100)));
  room[0] = 1;
  plain(depth);
  room[1] = room[0];
}
[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] void with_aligned_frame(int depth) {
  alignas(64) volatile char room[128] = {};
  volatile char* const more = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(16 + depth)));
  more[0] = room[0];
  with_variable_frame(depth);
  room[1] = more[0];
}
int compare(const void* a, const void* b) {
  const int left = *static_cast<const int*>(a), right = *static_cast<const int*>(b);
  if (left + right == 3) with_aligned_frame(g_deeper == plain ? 3 : 0);
  return left - right;
}

TEST_F(Unwinding, GoesTheWayOfLibc) {
  list_own_code(block_);
  g_deeper = plain;
  plain(7);
  expect_same();
  g_deeper = with_aligned_frame;
  with_aligned_frame(9);
  expect_same();
}

TEST_F(Unwinding, GoesThroughLibrariesWithoutFramePointers) {
  list_own_code(block_);
  for (const Next deeper : {&plain, &with_aligned_frame}) {
    g_deeper = deeper;
    int numbers[] = {2, 1, 9};
    std::qsort(numbers, 3, sizeof numbers[0], compare);
    expect_same();
  }
}

TEST_F(Unwinding, GoesThroughTheFrameOfASignal) {
  list_own_code(block_);
  g_deeper = plain;
  ::signal(SIGUSR1, [](int) { with_aligned_frame(2); });
  ::raise(SIGUSR1);
  ::signal(SIGUSR1, SIG_DFL);
  expect_same();
}

TEST_F(Unwinding, HasNoMoreFramesThanAreWanted) {
  list_own_code(block_);
  g_deeper = plain;
  plain(200);
  EXPECT_EQ(g_seen.ours.size() + 1, kMost);
  EXPECT_TRUE(std::equal(g_seen.ours.begin(), g_seen.ours.end(), g_seen.theirs.begin()));
}

// Code without a description is left by the frame pointer, which leads to code or nowhere.
TEST_F(Unwinding, TakesNoDataForAFrame) {
  list_own_code(block_);
  static const u64 bare[2] = {1, 1};
  u64 stack[8] = {};
  stack[2] = word_of(&stack[4]);
  shared::Registers r{};
  r[Reg::ip] = word_of(bare), r[Reg::sp] = word_of(stack), r[Reg::bp] = word_of(&stack[2]);
  const shared::Point point{};
  const agent::Hit hit{agent::uprobe_block, &point, &r, 1, true, true};
  u64 frames[kMost];
  for (const u64 data : {u64{0x80000002}, ~u64{0}, u64{0x6174735f6d726f74}, u64{0}}) {
    stack[3] = data;
    EXPECT_EQ(agent::unwind_stack(hit, shared::Event{}, frames, kMost), 1U) << data;
  }
  stack[3] = word_of(bare) + 8;
  EXPECT_EQ(agent::unwind_stack(hit, shared::Event{}, frames, kMost), 2U);
}

// ---- tables

// One function of 64 bytes with its description: an .eh_frame_hdr with one entry, a CIE and an FDE.
class Tables : public Unwinding {
 protected:
  static constexpr u32 kCode = 64, kCieAt = 24, kProgramBytes = 200;

  Tables() { files_[0] = {code(), code() + kCode, word_of(table_)}, block_.code_file_count = 1; }

  static u64 code() { return word_of(code_); }
  static void put(std::size_t at, u32 value) { std::memcpy(table_ + at, &value, sizeof value); }
  static u32 distance(u64 to, std::size_t from) { return static_cast<u32>(to - word_of(table_ + from)); }

  // `common` and `own`: instructions; nops follow.
  void describe(const std::vector<u8>& common, const std::vector<u8>& own, const char* letters = "zR") {
    std::memset(table_, 0, sizeof table_);
    std::vector<u8> cie = {1};  // the version
    cie.insert(cie.end(), letters, letters + std::strlen(letters) + 1);
    // Units of 1 and -8, the return address is register 16, one more byte of data
    for (const int byte : {1, 0x78, 16, 1, 0x1b}) cie.push_back(static_cast<u8>(byte));
    cie.insert(cie.end(), common.begin(), common.end());
    const std::size_t fde_at = kCieAt + 8 + kProgramBytes;
    put(0, 0x3b031b01), put(8, 1), put(12, distance(code(), 0)), put(16, static_cast<u32>(fde_at));
    put(kCieAt, 4 + kProgramBytes), put(kCieAt + 4, 0);
    std::memcpy(table_ + kCieAt + 8, cie.data(), cie.size());
    put(fde_at, 4 + 8 + kProgramBytes), put(fde_at + 4, static_cast<u32>(fde_at + 4 - kCieAt));
    put(fde_at + 8, distance(code(), fde_at + 8)), put(fde_at + 12, kCode);
    table_[fde_at + 16] = 0;  // no more data
    std::memcpy(table_ + fde_at + 17, own.data(), own.size());
  }
  UnwindRule rule(u32 offset) {
    ++block_.code_changes;
    return agent::unwind_rule(block_, code() + offset);
  }

  static inline u8 code_[kCode + 8];
  static inline u8 table_[1024];
};

const std::vector<u8> kAtEntry = {0x0c, 7, 8, 0x90, 1};  // def_cfa sp+8; the return address is right below

TEST_F(Tables, SayHowAFrameGrows) {
  // +1: push of the frame pointer. +4: it becomes the frame's. +40: it is gone again.
  describe(kAtEntry, {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x64, 0xc6, 0x0c, 7, 8, 0x41, 0x0b});
  EXPECT_EQ(rule(0).base, FrameBase::stack);
  EXPECT_EQ(rule(0).distance, 8);
  EXPECT_EQ(rule(0).link, CallersLink::kept);
  EXPECT_EQ(rule(1).distance, 16);
  EXPECT_EQ(rule(1).link, CallersLink::below_frame);
  EXPECT_EQ(rule(1).link_at, -16);
  for (const u32 at : {4U, 39U, 41U, 63U}) {
    EXPECT_EQ(rule(at).base, FrameBase::frame) << at;
    EXPECT_EQ(rule(at).distance, 16) << at;
    EXPECT_EQ(rule(at).link_at, -16) << at;
  }
  EXPECT_EQ(rule(40).base, FrameBase::stack);
  EXPECT_EQ(rule(40).distance, 8);
  EXPECT_EQ(rule(40).link, CallersLink::kept);
  EXPECT_EQ(rule(64).base, FrameBase::unknown) << "after the function";
}

TEST_F(Tables, SayWhereAlignedFramesAre) {
  // The caller's frame is where the word 8 below the frame pointer says; the caller's link is where the frame pointer points.
  describe(kAtEntry, {0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 0x06});
  EXPECT_EQ(rule(5).base, FrameBase::word);
  EXPECT_EQ(rule(5).distance, -8);
  EXPECT_EQ(rule(5).link, CallersLink::from_link);
  EXPECT_EQ(rule(5).link_at, 0);
}

TEST_F(Tables, SayWhereAStackEnds) {
  describe(kAtEntry, {0x07, 16});
  EXPECT_EQ(rule(0).base, FrameBase::outermost);
  describe(kAtEntry, {}, "zRS");
  EXPECT_EQ(rule(0).base, FrameBase::signal);
}

TEST_F(Tables, OfOtherKindsAreLeftAlone) {
  const std::vector<std::vector<u8>> programs = {
      {0x0c, 10, 0},                      // by r10
      {0x0f, 2, 0x77, 8},                 // an expression of the stack pointer
      {0x0f, 4, 0x76, 0x78, 0x06, 0},     // one that goes on
      {0x09, 16, 3},                      // the return address is in a register
      {0x09, 6, 3},                       // so is the link
      {0x90, 2},                          // it is not right below
      {0x0b},                             // nothing is remembered
      {0x0a, 0x0a, 0x0a, 0x0a, 0x0a},     // too much is
      {0x01, 0, 0, 0, 0},                 // set_loc
      {0x3f},                             // no instruction
      {0x0e, 0xff, 0xff, 0xff, 0xff, 1},  // larger than any stack
  };
  for (const auto& program : programs) {
    describe(kAtEntry, program);
    EXPECT_EQ(rule(0).base, FrameBase::unknown) << ::testing::PrintToString(program);
  }
}

TEST_F(Tables, AreReadOnceForEachPlaceUntilTheListOfFilesChanges) {
  describe(kAtEntry, {});
  EXPECT_EQ(rule(0).base, FrameBase::stack);
  files_[0].unwind_header = 0;
  EXPECT_EQ(agent::unwind_rule(block_, code()).base, FrameBase::stack);
  ++block_.code_changes;
  EXPECT_EQ(agent::unwind_rule(block_, code()).base, FrameBase::unknown);
}

TEST_F(Tables, WithoutMemoryAreNone) {
  describe(kAtEntry, {});
  EXPECT_EQ(rule(0).base, FrameBase::stack);
  for (const u64 wrong : {u64{0}, u64{4096}, ~u64{0} - 4}) {
    files_[0].unwind_header = wrong;
    EXPECT_EQ(rule(0).base, FrameBase::unknown) << wrong;
  }
}

// Walks by rules of any bytes read nothing but memory that is there.
void look_from(u64 address) {
  ucontext_t context;
  ::getcontext(&context);
  context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(address);
  EXPECT_GE(unwind(context).size(), 1U);
}

// Every read of a table is checked, and so is the length of every walk over one.
TEST_F(Tables, MayHoldAnything) {
  std::mt19937 random(7);
  constexpr i64 kMostDistance = i64{1} << 27;
  for (int round = 0; round < 20000; ++round) {
    std::vector<u8> own(random() % 60);
    for (u8& byte : own) byte = static_cast<u8>(random() % 4 == 0 ? random() : random() % 24);
    describe(kAtEntry, own);
    for (auto i = random() % 6; i > 0; --i) table_[8 + random() % 500] = static_cast<u8>(random());
    const UnwindRule found = rule(static_cast<u32>(random() % kCode));
    EXPECT_LE(static_cast<int>(found.base), static_cast<int>(FrameBase::outermost));
    EXPECT_LT(std::abs(i64{found.distance}), kMostDistance);
    EXPECT_LT(std::abs(i64{found.link_at}), kMostDistance);
    look_from(code() + random() % kCode);
  }
}

}  // namespace
}  // namespace uprobe::test
