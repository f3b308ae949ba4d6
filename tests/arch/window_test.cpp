// SPDX-License-Identifier: MIT
// Copies of several instructions: byte by byte, and run in place of the originals.
#include "arch/code/window.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "arch/code/scan.h"
#include "tests/arch/hex.h"

extern "C" {
extern std::uint8_t window_subject_begin[], window_subject_end[];
long window_arithmetic(long, long);
long window_red_zone(long, long);
long window_loops(long, long);
long window_calls(long, long);
long window_strings(long, long);
}

namespace uprobe::arch::test {
namespace {

constexpr Addr kFrom{0x100000};
constexpr Addr kTo{0x180000};

struct Row {
  const char* window;
  const char* copy;
};

class WindowForms : public testing::TestWithParam<Row> {};

TEST_P(WindowForms, BytesOut) {
  const auto window = from_hex(GetParam().window);
  const auto copy = displace_window(window, kFrom, kTo);
  ASSERT_TRUE(copy) << copy.error().text;
  EXPECT_EQ(to_hex(copy->bytes), to_hex(from_hex(GetParam().copy)));
}

// Only the jump after the last one differs.
TEST_P(WindowForms, GoesOnElsewhere) {
  const auto window = from_hex(GetParam().window);
  const Addr next = kTo + 0x1234;
  const auto copy = displace_window(window, kFrom, kTo), other = displace_window(window, kFrom, kTo, next);
  ASSERT_TRUE(copy && other);
  EXPECT_EQ(other->marks, copy->marks);
  ASSERT_EQ(other->bytes.size(), copy->bytes.size());
  if (copy->marks.back().original != kFrom + window.size() || copy->bytes == other->bytes) return;
  const std::size_t end = copy->bytes.size() - sizeof(std::int32_t);
  EXPECT_TRUE(
      std::equal(copy->bytes.begin(), copy->bytes.begin() + static_cast<std::ptrdiff_t>(end), other->bytes.begin()));
  std::int32_t distance = 0;
  std::memcpy(&distance, &other->bytes[end], sizeof distance);
  EXPECT_EQ(kTo + copy->bytes.size() + static_cast<std::uint64_t>(std::int64_t{distance}), next);
}

TEST(WindowCopy, GoesOnWhereItIsTold) {
  const auto copy = displace_window(from_hex("f5 48 ff c3"), kFrom, kTo, kTo + 0x100);
  ASSERT_TRUE(copy);
  EXPECT_EQ(to_hex(copy->bytes), to_hex(from_hex("f5 48 ff c3 e9 f7 00 00 00")));
  EXPECT_EQ(copy->marks.back(), (CopyMark{4, 0, kFrom + 4}));
}

TEST_P(WindowForms, MarksNameEveryInstruction) {
  const auto window = from_hex(GetParam().window);
  const auto copy = displace_window(window, kFrom, kTo);
  ASSERT_TRUE(copy);
  ASSERT_FALSE(copy->marks.empty());
  EXPECT_EQ(copy->marks.front(), (CopyMark{0, 0, kFrom}));
  for (std::size_t i = 1; i < copy->marks.size(); ++i) EXPECT_LT(copy->marks[i - 1].offset, copy->marks[i].offset);
  for (std::size_t at = 0; at < window.size();) {
    const bool is_named = std::any_of(copy->marks.begin(), copy->marks.end(),
                                      [&](const CopyMark& mark) { return mark.original == kFrom + at; });
    EXPECT_TRUE(is_named) << at;
    at += decode(Bytes(window).subspan(at), kFrom + at)->length;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WindowForms,
                         testing::Values(
                             // push %rbp; mov %rsp,%rbp; push %rbx
                             Row{"55 48 89 e5 53", "55 48 89 e5 53 e9 fb ff f7 ff"},
                             // one instruction is a window too
                             Row{"b8 01 00 00 00", "b8 01 00 00 00 e9 fb ff f7 ff"},
                             // xor %eax,%eax; mov 0x10(%rip),%rdx
                             Row{"31 c0 48 8b 15 10 00 00 00", "31 c0 48 8b 15 10 00 f8 ff e9 fb ff f7 ff"},
                             // test %edi,%edi; je +0x20; ret
                             Row{"85 ff 74 20 c3", "85 ff 0f 84 1c 00 f8 ff c3"},
                             // dec %eax; jmp -2, to the first: another hit
                             Row{"ff c8 eb fc", "ff c8 e9 f9 ff f7 ff"},
                             // push %rax; call +0x100: the return address is the original one
                             Row{"50 e8 00 01 00 00",
                                 "50 ff 35 09 00 00 00 e9 fa 00 f8 ff cc cc cc cc 06 00 10 00 00 00 00 00 cc cc cc"},
                             // nop; jrcxz +0x10; nop; nop
                             Row{"90 e3 10 90 90", "90 e3 05 e9 05 00 00 00 e9 06 00 f8 ff 90 90 e9 f1 ff f7 ff"}));

struct Refusal {
  const char* window;
  const char* reason;
};

TEST(WindowRefusals, HaveReasons) {
  const Refusal refusals[] = {
      {"", "no window"},
      {"90 90 06", "the bytes are not an instruction"},
      {"ff d0 90 90 90", "a call returns into the window"},
      {"e8 00 01 00 00 90", "a call returns into the window"},
      {"31 c0 0f 05 90", "a system call beside other instructions"},
      {"0f 05 90 90 90", "a system call beside other instructions"},
      {"90 90 0f 05", "a system call beside other instructions"},
      {"74 01 90 90 90", "a branch inside of the window"},
      {"90 90 eb fd", "a branch inside of the window"},
      {"c3 90 90 90 90", "control does not reach the end of the window"},
      {"90 90 cc", "a breakpoint instruction"},
      {"90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90", "no window"},
  };
  for (const Refusal& refusal : refusals) {
    const auto copy = displace_window(from_hex(refusal.window), kFrom, kTo);
    ASSERT_FALSE(copy) << refusal.window;
    EXPECT_EQ(copy.error().code, Code::refused);
    EXPECT_NE(copy.error().text.find(refusal.reason), std::string::npos) << refusal.window << ": " << copy.error().text;
  }
}

TEST(WindowRefusals, OutOfReach) {
  const auto copy = displace_window(from_hex("31 c0 48 8b 15 10 00 00 00"), kFrom, Addr{0x7000'0000'0000});
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, Code::refused);
}

// The subject's page, with a page for copies in reach.
class Patched : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(mprotect(window_subject_begin, kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    const std::uint64_t wanted = address(window_subject_begin).value - (64UL << 20);
    void* made = mmap(reinterpret_cast<void*>(wanted), kPage, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(made, MAP_FAILED);
    copies_ = static_cast<std::uint8_t*>(made);
  }
  void TearDown() override { munmap(copies_, kPage); }

  static Addr address(const void* place) { return Addr{reinterpret_cast<std::uint64_t>(place)}; }

  // Instructions from `at` up to five bytes or more; 0 if control leaves before.
  static std::size_t window_at(const std::uint8_t* at) {
    std::size_t size = 0;
    while (size < 5) {
      Scanned insn;
      if (!scan(Bytes(at + size, kMaxInsnBytes), address(at + size), insn)) return 0;
      size += insn.length;
      if (size < 5 && !insn.falls_through) return 0;
    }
    return size;
  }

  // Whether a branch of the subject, or a return, arrives inside.
  static bool is_entered(const std::uint8_t* begin, std::size_t size) {
    for (const std::uint8_t* at = window_subject_begin; at < window_subject_end;) {
      Scanned insn;
      if (!scan(Bytes(at, kMaxInsnBytes), address(at), insn)) return true;
      const bool is_call = insn.leads == Leads::call || insn.leads == Leads::call_indirect;
      at += insn.length;
      const auto inside = [&](std::uint64_t a) { return a > address(begin).value && a < address(begin).value + size; };
      if (inside(insn.target) || (is_call && inside(address(at).value)) || (insn.is_address_of && inside(insn.operand)))
        return true;
    }
    return false;
  }

  static constexpr std::size_t kPage = 4096;
  std::uint8_t* copies_ = nullptr;
};

// gtest's own calls of memcpy and the like are not in the page.
TEST_F(Patched, ReturnsTheSame) {
  std::mt19937_64 random(7);
  unsigned windows = 0;
  for (auto* function : {window_arithmetic, window_red_zone, window_loops, window_calls, window_strings}) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(function);
    for (std::uint8_t* at = const_cast<std::uint8_t*>(begin); at[0] != 0xc3;) {
      const std::size_t size = window_at(at);
      const std::size_t step = decode(Bytes(at, kMaxInsnBytes), address(at))->length;
      const auto copy = displace_window(Bytes(at, size), address(at), address(copies_));
      if (size == 0 || is_entered(at, size) || !copy) {
        at += step;
        continue;
      }
      ++windows;
      std::memcpy(copies_, copy->bytes.data(), copy->bytes.size());
      std::uint8_t kept[kMaxWindowBytes], jump[5] = {0xe9};
      std::memcpy(kept, at, size);
      const auto distance = static_cast<std::int32_t>(copies_ - (at + 5));
      std::memcpy(jump + 1, &distance, sizeof distance);
      for (int round = 0; round < 50; ++round) {
        const long a = static_cast<long>(random()), b = static_cast<long>(random());
        const long expected = function(a, b);
        std::memset(at, 0xcc, size);  // nothing of the window may run
        std::memcpy(at, jump, sizeof jump);
        const long got = function(a, b);
        std::memcpy(at, kept, size);
        ASSERT_EQ(got, expected) << "window at " << at - window_subject_begin << " of " << size;
      }
      at += step;
    }
  }
  EXPECT_GT(windows, 25U);
}

}  // namespace
}  // namespace uprobe::arch::test
