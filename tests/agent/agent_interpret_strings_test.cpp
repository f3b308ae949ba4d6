// SPDX-License-Identifier: MIT
// Strings of event programs in the agent: where they end, where they cannot be read, and where there is no room for them.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/agent/interpreting.h"

namespace uprobe::test {
namespace {

TEST_F(Interpret, StringsOfEveryLengthAndAlignment) {
  std::vector<char> text(64, 0);
  for (std::size_t skip = 0; skip < 9; ++skip)
    for (std::size_t length = 0; length < 20; ++length) {
      std::fill(text.begin(), text.end(), '\0');
      for (std::size_t i = 0; i < length; ++i) text[skip + i] = static_cast<char>('\x80' + static_cast<char>(i));
      const Outcome outcome = run({begin(), constant(word_of(text.data())), string(16, skip), insn(Op::end)}, 20);
      EXPECT_EQ(outcome.dynamic(16), std::string(text.data() + skip, length + 1)) << skip << " " << length;
      EXPECT_EQ(outcome.at<u32>(16) & 0xffff, 20U);
    }
}

TEST_F(Interpret, AStringMayEndRightBeforeAHole) {
  const HoleyMemory memory(2);
  for (std::size_t length = 0; length < 20; ++length) {
    const std::string text(length, 'x');
    const u64 at = memory.put_at_end(text.c_str(), length + 1);
    EXPECT_EQ(run({begin(), constant(at), string(16), insn(Op::end)}, 20).dynamic(16),
              std::string(text.c_str(), length + 1));
  }
}

TEST_F(Interpret, AStringWithoutItsEndIsAFault) {
  const HoleyMemory memory(2);
  std::memset(memory.begin(), 'x', 2 * kPage);
  for (const u32 readable : {0u, 1u, 7u, 8u, 9u, 100u}) {
    const Outcome outcome = run({begin(), constant(word_of(memory.end()) - readable), string(16), insn(Op::end)}, 20);
    EXPECT_EQ(outcome.built, Built::ok);
    EXPECT_EQ(outcome.dynamic(16), "(fault)");
    EXPECT_EQ(outcome.at<u32>(16), 20U) << "the locator of a fault has length 0 and the place of the next data";
    EXPECT_EQ(outcome.payload.size(), 20U);
  }
}

// In a strict session: the longest string that fits after the head and its own locator, one more, and the limits of the string
// itself.
TEST_F(Interpret, LongStrings) {
  const HoleyMemory memory(4);
  const auto with_length = [&](std::size_t length) {
    std::memset(memory.begin(), 'y', 4 * kPage);
    memory.begin()[length] = 0;
    return run({begin(), constant(word_of(memory.begin())), string(16), insn(Op::end)}, 20);
  };
  const std::size_t most = shared::kMaxPayload - 20;
  EXPECT_EQ(with_length(most - 1).dynamic(16).size(), most);
  EXPECT_EQ(with_length(most).built, Built::too_big);
  EXPECT_EQ(with_length(shared::kMaxStringBytes - 1).built, Built::too_big);
  const Outcome beyond = with_length(shared::kMaxStringBytes);
  EXPECT_EQ(beyond.built, Built::ok);
  EXPECT_EQ(beyond.dynamic(16), "(fault)");
}

// What the reader is to make of the string at `offset`: its characters, with three dots if it was cut.
std::string shown(const Outcome& outcome, u32 offset) {
  const auto size = static_cast<u32>(outcome.payload.size());
  const shared::StringData data = shared::string_in(outcome.payload.data(), size, 16, outcome.at<u32>(offset));
  if (data.at == nullptr) return "(fault)";
  return std::string(reinterpret_cast<const char*>(data.at), data.size) + (data.is_cut ? "..." : "");
}

TEST_F(Interpret, StringsThatAreTooLongAreCut) {
  area_.header.string_limit = 100;
  const auto program = [](const std::string& text) {
    return std::vector<Insn>{begin(), constant(word_of(text.c_str())), string(16), insn(Op::end)};
  };
  for (const std::size_t length : {0u, 1u, 99u, 100u}) {
    const std::string text(length, 'y');
    const Outcome outcome = run(program(text), 20);
    EXPECT_EQ(outcome.built, Built::ok);
    EXPECT_EQ(shown(outcome, 16), text);
    EXPECT_EQ(outcome.payload.size(), 20 + length + 1);
  }
  for (const std::size_t length : {101u, 4095u, 100000u}) {
    const std::string text(length, 'y');
    const Outcome outcome = run(program(text), 20);
    EXPECT_EQ(outcome.built, Built::ok);
    EXPECT_EQ(shown(outcome, 16), std::string(100, 'y') + "...");
    EXPECT_EQ(outcome.payload.size(), 120U);
  }
}

// A text of a length: no NUL ends it, and bytes after it are not shown.
TEST_F(Interpret, TextsOfALength) {
  area_.header.string_limit = 100;
  const auto program = [](const void* at, u64 length) {
    return std::vector<Insn>{
        begin(),      constant(length), insn(Op::keep), constant(word_of(at)), insn(Op::store_string, 0, 1, 16),
        insn(Op::end)};
  };
  const std::string text(300, 'y');
  for (const u64 length : {0u, 1u, 99u, 100u}) {
    const Outcome outcome = run(program(text.data(), length), 20);
    EXPECT_EQ(shown(outcome, 16), text.substr(0, length));
    EXPECT_EQ(outcome.payload.size(), 20 + length + 1);
  }
  for (const u64 length : {101ull, 300ull, 70000ull, ~0ull, 1ull << 63})
    EXPECT_EQ(shown(run(program(text.data(), length), 20), 16), std::string(100, 'y') + "...");
  EXPECT_EQ(shown(run(program(nullptr, 0), 20), 16), "");
  for (const u64 length : {1ull, 100ull, 1ull << 40, ~0ull}) {
    const Outcome outcome = run(program(reinterpret_cast<const void*>(kNonCanonical), length), 20);
    EXPECT_EQ(outcome.dynamic(16), "(fault)");
    EXPECT_EQ(outcome.payload.size(), 20u);
  }
}

TEST_F(Interpret, ALengthThatCannotBeReadIsAFault) {
  area_.header.string_limit = 100;
  const Outcome outcome = run({begin(), constant(kNonCanonical), dereference(), insn(Op::keep),
                               constant(word_of("text")), insn(Op::store_string, 0, 1, 16), insn(Op::end)},
                              20);
  EXPECT_EQ(outcome.dynamic(16), "(fault)");
}

// Of the longest strings the length has no room for the NUL.
TEST_F(Interpret, TheLongestStringsAreWhole) {
  area_.header.string_limit = shared::kMostString;
  most_ = shared::kMostPayload;
  for (const std::size_t length : {65533u, 65534u, 65535u, 65536u, 200000u}) {
    const std::string text(length, 'y');
    const Outcome outcome =
        run({begin(), constant(word_of(text.c_str())), string(16), insn(Op::end)}, 20, shared::kMostPayload);
    ASSERT_EQ(outcome.built, Built::ok);
    EXPECT_EQ(shown(outcome, 16), length <= shared::kMostString ? text : text.substr(0, shared::kMostString) + "...")
        << length;
  }
}

// A string is a fault if it meets an unreadable page before its end, or before it is known to be too long.
TEST_F(Interpret, ACutStringIsReadable) {
  const HoleyMemory memory(2);
  std::memset(memory.begin(), 'x', 2 * kPage);
  const auto at_end = [&](u32 readable, u32 limit) {
    area_.header.string_limit = limit;
    return shown(run({begin(), constant(word_of(memory.end()) - readable), string(16), insn(Op::end)}, 20), 16);
  };
  EXPECT_EQ(at_end(100, 99), std::string(99, 'x') + "...");
  EXPECT_EQ(at_end(100, 100), "(fault)");
  EXPECT_EQ(at_end(0, 1), "(fault)");
  EXPECT_EQ(at_end(2000, 200), std::string(200, 'x') + "...");
}

// Later strings are cut to what the earlier ones have left; whatever there is, the record is built, and nothing is a fault.
TEST_F(Interpret, SeveralLongStringsShareTheRecord) {
  const std::string text(200000, 'z'), name = "a name";
  for (const u32 most : {shared::kMaxPayload, 8168u, 65512u, shared::kMostPayload})
    for (const u32 limit : {50u, 4096u, shared::kMostString}) {
      most_ = most;
      area_.header.string_limit = limit;
      const u64 pointers[3] = {word_of(text.c_str()), word_of(name.c_str()), word_of(text.c_str())};
      const Outcome outcome = run({begin(), constant(word_of(text.c_str())), insn(Op::store_string, 5, 0, 16), begin(),
                                   constant(word_of(text.c_str())), insn(Op::store_string, 4, 0, 20), begin(),
                                   constant(word_of(pointers)), insn(Op::store_string_array, 1, 3, 24), begin(),
                                   constant(word_of(name.c_str())), insn(Op::store_string, 0, 0, 36), insn(Op::end)},
                                  40, most);
      ASSERT_EQ(outcome.built, Built::ok) << most << " " << limit;
      u32 all = 0;
      for (const u32 at : {16u, 20u, 24u, 28u, 32u, 36u}) {
        const std::string seen = shown(outcome, at);
        const std::string& whole = at == 28 || at == 36 ? name : text;
        const std::size_t size = seen.ends_with("...") ? seen.size() - 3 : seen.size();
        EXPECT_EQ(seen.substr(0, size), whole.substr(0, size)) << at;
        EXPECT_EQ(seen.ends_with("..."), size != whole.size()) << at;
        EXPECT_LE(size, limit);
        const std::size_t least = most < 65512 ? 3 : std::min<std::size_t>(50, whole.size());
        EXPECT_GE(size, least) << at << " of " << most;
        all += static_cast<u32>(size);
      }
      EXPECT_LE(outcome.payload.size(), most);
      EXPECT_LE(all, most);
    }
}

TEST_F(Interpret, TextsAndNamesAreCutWhereNothingIsLeft) {
  const std::string text(5000, 'z');
  std::memcpy(area_.text, "constant", 9);
  area_.header.string_limit = 4096;
  most_ = 100;
  const Outcome outcome =
      run({begin(), constant(word_of(text.c_str())), string(16), begin(), insn(Op::store_text, 0, 9, 20, 0), begin(),
           insn(Op::store_comm, 0, 0, 24), insn(Op::end)},
          28, 100);
  ASSERT_EQ(outcome.built, Built::ok);
  EXPECT_EQ(shown(outcome, 16), std::string(71, 'z') + "...");
  EXPECT_EQ(shown(outcome, 20), "c...");
  EXPECT_EQ(shown(outcome, 24), "...");
}

TEST_F(Interpret, AHitThatOnlyNeedsMoreRoomIsToldFromOneThatIsTooBig) {
  const std::string text(100, 'z');
  const auto program = {begin(), constant(word_of(text.c_str())), string(16), insn(Op::end)};
  EXPECT_EQ(run(program, 20, 20 + 101).built, Built::ok);
  EXPECT_EQ(run(program, 20, 20 + 100).built, Built::no_room);
  EXPECT_EQ(run(program, 20, 19).built, Built::no_room);
  EXPECT_EQ(run(program, 20, 0).built, Built::no_room);
  std::vector<Insn> many;
  const std::string long_text(2000, 'z');
  for (u32 i = 0; i < 3; ++i)
    many.insert(many.end(), {begin(), constant(word_of(long_text.c_str())), string(16 + 4 * i)});
  EXPECT_EQ(run(many, 28, 2500).built, Built::too_big) << "too big for any ring, however little room there is";
}

}  // namespace
}  // namespace uprobe::test
