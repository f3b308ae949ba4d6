// SPDX-License-Identifier: MIT
// The filter of an event: the tests that decide whether a record is published.
//
// The tool compiles a filter (engine/program/filter.h) to a list of tests. A test that holds leads to its target, otherwise the
// next test follows; every path leads forward and ends at `pass` or `drop`. The agent runs the tests over the payload that it
// has built in a ring, and publishes records that pass. Where it does not know the task's name it publishes the record with the
// mark kRecordJudgeLater, and the reader runs the same tests. It does the same where a test asks for common_pid in another PID
// namespace than the tool's: that is the tool's number, and the agent knows it only for the first thread of a process. This
// code trusts nothing that it reads: a list of tests that makes no sense passes every record.
#pragma once

#include "engine/shared/string_data.h"
#include "engine/shared/task_number.h"

namespace uprobe::shared {

// The agent runs all this inside its rseq section, which calls nothing outside.
#define UPROBE_ALWAYS_INLINE [[gnu::always_inline]]

enum class TestOp : u8 {
  pass,
  drop,
  go_on,  // always holds
  // Numbers of `size` bytes: the payload's against the low bytes of `value`.
  equal,
  not_equal,
  below,  // unsigned
  not_below,
  above,
  not_above,
  less,  // signed
  not_less,
  greater,
  not_greater,
  any_bit,
  no_bit,
  // The number of a CPU, cut to 32 bits, in a set: a bit for each CPU, in the session's texts.
  in_set,
  not_in_set,
  // A string, an array of characters up to its first NUL, or the task's name, compared with a text of the session; `size` is a
  // TextMatch.
  text,
  not_text,
};
inline constexpr u8 kTestOpCount = 19;

enum class TextMatch : u8 { full, front, middle, end, glob };
inline constexpr u8 kTextMatchCount = 5;

// In place of an offset in the payload: the CPU of the hit, 4 bytes; the task's name.
inline constexpr u32 kTestCpu = ~u32{0}, kTestName = ~u32{1};

struct Test {
  TestOp op;
  u8 size;     // 1, 2, 4, 8; a TextMatch
  u16 target;  // index of a later test, the next one if this one holds
  u32 offset;  // in the payload: of the number, of the string's locator, or of the characters
  u64 value;  // of texts and sets: offset in the session's texts, length << 32, number of characters in the record << 48
};
static_assert(sizeof(Test) == 16);

// 0: a string with a locator.
UPROBE_ALWAYS_INLINE constexpr u32 characters_of(const Test& test) { return static_cast<u32>(test.value >> 48); }
UPROBE_ALWAYS_INLINE constexpr u32 text_bytes_of(const Test& test) { return test.value >> 32 & 0xffff; }

UPROBE_ALWAYS_INLINE constexpr bool is_number_test(TestOp op) { return op >= TestOp::equal && op <= TestOp::no_bit; }
UPROBE_ALWAYS_INLINE constexpr bool is_set_test(TestOp op) { return op == TestOp::in_set || op == TestOp::not_in_set; }
UPROBE_ALWAYS_INLINE constexpr bool is_text_test(TestOp op) { return op == TestOp::text || op == TestOp::not_text; }

inline constexpr u32 kNameBytes = 16;  // TASK_COMM_LEN

struct FilterInput {
  const u8* payload;
  u32 bytes;
  u32 cpu;
  const u8* name;             // kNameBytes, zeroes after the end; null: not known
  bool is_elsewhere = false;  // the payload does not hold common_pid; `pid` does
  u32 pid = 0;                // 0: not known here
};

// `unknown`: the tests need the name. `later`: the agent cannot tell, the reader can.
enum class Verdict : u8 { pass, drop, unknown, later };

UPROBE_ALWAYS_INLINE constexpr bool number_holds(TestOp op, u32 size, u64 number, u64 value) {
  const u32 unused = 64 - 8 * size;
  const u64 a = number << unused, b = value << unused;  // order and sign are those of the bytes that count
  switch (op) {
    case TestOp::equal:
      return a == b;
    case TestOp::not_equal:
      return a != b;
    case TestOp::below:
      return a < b;
    case TestOp::not_below:
      return a >= b;
    case TestOp::above:
      return a > b;
    case TestOp::not_above:
      return a <= b;
    case TestOp::less:
      return static_cast<i64>(a) < static_cast<i64>(b);
    case TestOp::not_less:
      return static_cast<i64>(a) >= static_cast<i64>(b);
    case TestOp::greater:
      return static_cast<i64>(a) > static_cast<i64>(b);
    case TestOp::not_greater:
      return static_cast<i64>(a) <= static_cast<i64>(b);
    case TestOp::any_bit:
      return (a & b) != 0;
    case TestOp::no_bit:
      return (a & b) == 0;
    default:
      return false;
  }
}

struct Text {
  const u8* at;
  u32 size;

  UPROBE_ALWAYS_INLINE constexpr u8 operator[](u32 i) const { return i < size ? at[i] : u8{0}; }
};

UPROBE_ALWAYS_INLINE constexpr bool begins_with(Text text, u32 from, Text pattern) {
  if (from > text.size || pattern.size > text.size - from) return false;
  for (u32 i = 0; i < pattern.size; ++i)
    if (text.at[from + i] != pattern.at[i]) return false;
  return true;
}

// Whether one part of a pattern matches a character, and where the next part begins; 0: there is no such part.
struct GlobPart {
  bool holds;
  u32 next;
};

// "[a-z]", "[!a-z]"; `from` is after the opening bracket. The first character may be the closing bracket.
UPROBE_ALWAYS_INLINE constexpr GlobPart glob_set(Text pattern, u32 from, u8 character) {
  const bool inverted = pattern[from] == '!';
  bool found = false;
  for (u32 at = from + (inverted ? 1 : 0), first = at;;) {
    const u8 low = pattern[at++];
    if (low == ']' && at - 1 != first) return {found != inverted, at};
    u8 high = low;
    if (pattern[at] == '-' && pattern[at + 1] != ']') high = pattern[at + 1], at += 2;
    if (low == 0 || high == 0) return {false, 0};
    found = found || (low <= character && character <= high);
  }
}

// A set without a closing bracket is an ordinary character '['.
UPROBE_ALWAYS_INLINE constexpr GlobPart glob_part(Text pattern, u32 at, u8 character) {
  if (pattern[at] == '?') return {true, at + 1};
  if (pattern[at] == '[') {
    const GlobPart set = glob_set(pattern, at + 1, character);
    if (set.next != 0) return set;
  }
  if (pattern[at] == '\\') ++at;
  return {pattern[at] == character && at < pattern.size, at + 1};
}

// The kernel's glob_match: * ? [set] [!set], and a backslash before a character that stands for itself. Goes back to the last
// asterisk only, so it takes no longer than the product of the lengths.
UPROBE_ALWAYS_INLINE constexpr bool glob_holds(Text text, Text pattern) {
  constexpr u32 kNone = ~u32{0};
  u32 at = 0, place = 0, after_star = kNone, star_place = 0;
  for (;;) {
    if (pattern[at] == '*') {
      after_star = ++at, star_place = place;
      if (at == pattern.size) return true;
      continue;
    }
    const bool ends = at == pattern.size || (pattern[at] == '\\' && at + 1 == pattern.size);
    if (place == text.size) return ends;
    const GlobPart part = ends ? GlobPart{false, 0} : glob_part(pattern, at, text.at[place]);
    if (part.holds) {
      at = part.next, ++place;
      continue;
    }
    if (after_star == kNone) return false;
    at = after_star, place = ++star_place;
  }
}

UPROBE_ALWAYS_INLINE constexpr bool text_holds(TextMatch match, Text text, Text pattern) {
  switch (match) {
    case TextMatch::full:
      return text.size == pattern.size && begins_with(text, 0, pattern);
    case TextMatch::front:
      return begins_with(text, 0, pattern);
    case TextMatch::middle:
      for (u32 from = 0; from <= text.size; ++from)
        if (begins_with(text, from, pattern)) return true;
      return false;
    case TextMatch::end:
      return text.size >= pattern.size && begins_with(text, text.size - pattern.size, pattern);
    case TextMatch::glob:
      return glob_holds(text, pattern);
  }
  return false;
}

UPROBE_ALWAYS_INLINE constexpr u64 bytes_at(const u8* at, u32 size) {
  u64 value = 0;
  for (u32 i = 0; i < size; ++i) value |= u64{at[i]} << (8 * i);
  return value;
}

UPROBE_ALWAYS_INLINE constexpr Text up_to_nul(Text text) {
  u32 size = 0;
  while (size < text.size && text.at[size] != 0) ++size;
  return {text.at, size};
}

UPROBE_ALWAYS_INLINE constexpr bool is_of_task(u32 offset, u32 size) {
  return offset == kTaskOffset && size == kTaskBytes;
}

// A list of tests and the texts that they name.
struct Filter {
  const Test* tests;
  u32 count;
  const u8* texts;
  u32 text_bytes;

  UPROBE_ALWAYS_INLINE constexpr bool text_of(const Test& test, Text& text) const {
    const u32 place = static_cast<u32>(test.value), size = text_bytes_of(test);
    text = {texts + place, size};
    return place <= text_bytes && size <= text_bytes - place;
  }
};

// The value as loaded once: where other processes can write, a second load could give another value.
UPROBE_ALWAYS_INLINE constexpr u32 loaded_once(u32 value) {
  if (!__builtin_is_constant_evaluated()) __asm__("" : "+r"(value));
  return value;
}

UPROBE_ALWAYS_INLINE constexpr bool load_number(const Test& test, const FilterInput& input, u64& number) {
  const bool is_pid = input.is_elsewhere && is_of_task(test.offset, test.size);
  number = is_pid ? input.pid : input.cpu;
  if (is_pid || test.offset == kTestCpu) return true;
  if (test.size > 8 || test.offset > input.bytes || test.size > input.bytes - test.offset) return false;
  number = bytes_at(input.payload + test.offset, test.size);
  return true;
}

UPROBE_ALWAYS_INLINE constexpr bool set_holds(Text set, u64 number) {
  const u32 cpu = static_cast<u32>(number);
  return (set[cpu / 8] >> (cpu & 7) & 1) != 0;
}

UPROBE_ALWAYS_INLINE constexpr bool characters_hold(const Test& test, const FilterInput& input, Text pattern) {
  const u32 count = characters_of(test);
  if (test.offset > input.bytes || input.bytes - test.offset < count) return false;
  return text_holds(static_cast<TextMatch>(test.size), up_to_nul({input.payload + test.offset, count}), pattern);
}

// Whether a string matches of which only the beginning is known: where its end would decide it does not.
UPROBE_ALWAYS_INLINE constexpr bool beginning_holds(TextMatch match, Text text, Text pattern) {
  const u32 last = pattern.size - 1;
  switch (match) {
    case TextMatch::full:
    case TextMatch::end:
      return false;
    case TextMatch::glob:
      return pattern.size != 0 && pattern[last] == '*' && (last == 0 || pattern[last - 1] != '\\') &&
             glob_holds(text, pattern);
    default:
      return text_holds(match, text, pattern);
  }
}

// A string that could not be read matches no text.
UPROBE_ALWAYS_INLINE constexpr bool string_holds(const Test& test, const FilterInput& input, Text pattern) {
  if (characters_of(test) != 0) return characters_hold(test, input, pattern);
  if (test.offset > input.bytes || input.bytes - test.offset < 4) return false;
  const u32 locator = loaded_once(static_cast<u32>(bytes_at(input.payload + test.offset, 4)));
  const StringData data = string_in(input.payload, input.bytes, 0, locator);
  if (data.at == nullptr) return false;
  const auto match = static_cast<TextMatch>(test.size);
  const Text text{data.at, data.size};
  return data.is_cut ? beginning_holds(match, text, pattern) : text_holds(match, text, pattern);
}

// The kernel looks for the end of a name as if all its 15 characters were in use.
UPROBE_ALWAYS_INLINE constexpr bool name_holds(TextMatch match, const u8* name, Text pattern) {
  const Text whole{name, kNameBytes - 1};
  return text_holds(match, match == TextMatch::end ? whole : up_to_nul(whole), pattern);
}

enum class Answer : u8 { no, yes, unknown, later, nonsense };
UPROBE_ALWAYS_INLINE constexpr Answer answer(bool yes) { return yes ? Answer::yes : Answer::no; }

UPROBE_ALWAYS_INLINE constexpr Answer ask_number(const Filter& filter, const Test& test, const FilterInput& input) {
  u64 number = 0;
  Text set{};
  if (test.size == 0 || !load_number(test, input, number)) return Answer::nonsense;
  if (input.is_elsewhere && input.pid == 0 && is_of_task(test.offset, test.size)) return Answer::later;
  if (is_number_test(test.op)) return answer(number_holds(test.op, test.size, number, test.value));
  if (!filter.text_of(test, set)) return Answer::nonsense;
  return answer(set_holds(set, number) == (test.op == TestOp::in_set));
}

UPROBE_ALWAYS_INLINE constexpr Answer ask_text(const Filter& filter, const Test& test, const FilterInput& input) {
  Text text{};
  if (!filter.text_of(test, text)) return Answer::nonsense;
  const bool wanted = test.op == TestOp::text;
  if (test.offset != kTestName) return answer(string_holds(test, input, text) == wanted);
  if (input.name == nullptr) return Answer::unknown;
  return answer(name_holds(static_cast<TextMatch>(test.size), input.name, text) == wanted);
}

UPROBE_ALWAYS_INLINE constexpr Verdict run_filter(const Filter& filter, const FilterInput& input) {
  for (u32 at = 0; at < filter.count;) {
    const Test test = filter.tests[at];
    if (test.op == TestOp::drop) return Verdict::drop;
    const Answer answer = test.op == TestOp::go_on                          ? Answer::yes
                          : is_number_test(test.op) || is_set_test(test.op) ? ask_number(filter, test, input)
                          : is_text_test(test.op)                           ? ask_text(filter, test, input)
                                                                            : Answer::nonsense;
    if (answer == Answer::unknown) return Verdict::unknown;
    if (answer == Answer::later) return Verdict::later;
    if (answer == Answer::nonsense || (answer == Answer::yes && test.target <= at)) return Verdict::pass;
    at = answer == Answer::yes ? test.target : at + 1;
  }
  return Verdict::pass;
}

}  // namespace uprobe::shared
