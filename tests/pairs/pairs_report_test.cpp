// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/pairs/pairs.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

// The address is the name.
class Names final : public Symbols {
 public:
  NamedAddress name_of(const trace::EventRecord&, std::uint64_t) override { return {}; }
  CodePlace place_of(const trace::EventRecord*, std::uint64_t address) override {
    return {.name = address == 9 ? "" : "f" + std::to_string(address) + "\n", .path = "/lib/a.so"};
  }
  std::vector<StackFrame> frames_of(const trace::EventRecord& record) override { return linked_frames(record); }
};

Record named(const std::string& group, const std::string& event, bool is_return, const std::string& function) {
  Record record(event, is_return);
  record.layout.group = group, record.layout.function = function, record.layout.place = event;
  return record;
}

Record opening(const std::string& group, std::uint64_t key, std::uint64_t size,
               const std::vector<std::uint64_t>& stack) {
  Record record = named(group, "malloc", true, "libc:0x10");
  record.field("key", Kind::hex, key).field("size", Kind::unsigned_decimal, size);
  if (!stack.empty()) record.add_stack(stack);
  return record;
}

Record closing(const std::string& group, std::uint64_t key) {
  return named(group, "free", false, "libc:0x20").field("key", Kind::hex, key);
}

template <class Formatter>
std::string report(std::vector<Record> records, const std::vector<Total>& totals = {}, Names* names = nullptr) {
  Formatter formatter({.symbols = names});
  Buffer out;
  for (const Record& record : records) formatter.add(record.layout);
  for (std::size_t i = 0; i < records.size(); ++i) {
    trace::EventRecord event = records[i].event(1000 * i);
    event.type = static_cast<std::uint16_t>(i);
    formatter.append(event, "zsh", out);
  }
  formatter.end(totals, out);
  return std::string(out.view());
}

// A story of one opening and one closing event: "oc" opens and closes.
template <class Formatter>
std::string same_events(const Record& open, const Record& close, const std::string& steps, Names* names = nullptr) {
  Formatter formatter({.symbols = names});
  Buffer out;
  formatter.add(open.layout);
  formatter.add(close.layout);
  std::uint64_t ns = 0;
  for (const char step : steps) {
    Record record = step == 'o' ? open : close;
    trace::EventRecord event = record.event(ns += 1500);
    event.type = step == 'o' ? 0 : 1;
    formatter.append(event, "zsh", out);
  }
  formatter.end({}, out);
  return std::string(out.view());
}

TEST(Pairs, StacksOfWhatIsHeld) {
  Names names;
  EXPECT_EQ(report<PairsFormatter>({opening("leak", 16, 1234, {3, 10})}, {}, &names),
            "leak: process 12 (zsh): 1,234 bytes in 1 block not freed, of 1 allocated\n"
            "  1,234 bytes in 1 block\n    f3\\n\n    [a.so]\n");
}

TEST(Pairs, NothingIsHeld) {
  EXPECT_EQ(same_events<PairsFormatter>(opening("leak", 16, 5, {}), closing("leak", 16), "oc"),
            "leak: process 12 (zsh): 0 bytes in 0 blocks not freed, of 1 allocated\n");
  EXPECT_EQ(same_events<PairsFormatter>(opening("leak", 16, 5, {}), closing("leak", 16), ""),
            "leak: no block was allocated\n");
}

TEST(Pairs, EventsOfOtherNamesAreNone) {
  EXPECT_EQ(report<PairsFormatter>({Record("e"), Record("f", true)}), "");
  EXPECT_EQ(report<PairsJsonFormatter>({Record("e")}), "[]\n");
}

TEST(Pairs, LossesAreSaid) {
  const std::string text = report<PairsFormatter>({opening("leak", 16, 5, {}), closing("leak", 32)},
                                                  {{.name = "leak/malloc", .recorded = 1, .lost = 1200, .missed = 1},
                                                   {.name = "other/malloc", .recorded = 1, .lost = 7, .missed = 0}});
  EXPECT_NE(text.find("  1 block freed that was not seen to be allocated: before the tracing, by a parent, or for an "
                      "allocator's cache\n"
                      "leak: 1,200 records lost: the report may be wrong\n"
                      "leak: 1 return could not be followed: the report may be wrong\n"),
            std::string::npos)
      << text;
}

TEST(Pairs, AKeyThatIsNoNumberIsCounted) {
  Record text = named("leak", "malloc", true, "libc:0x10");
  text.text("key", "x");
  EXPECT_EQ(report<PairsFormatter>({text}),
            "leak: no block was allocated\nleak: 1 record without a key that could be read: the report may be wrong\n");
}

TEST(Pairs, WhatGivesNothingOut) {
  for (const std::uint64_t key : {std::uint64_t{0}, ~std::uint64_t{0}})
    EXPECT_EQ(report<PairsFormatter>({opening("leak", key, 5, {})}), "leak: no block was allocated\n");
  Record failed = opening("leak", 16, 5, {});
  failed.field("failed", Kind::signed_decimal, std::int32_t{12});
  EXPECT_EQ(report<PairsFormatter>({failed}), "leak: no block was allocated\n");
  for (const auto& [number, text] : {std::pair(0, "1 key not closed, of 1 opened"), {-1, "no key was opened"}}) {
    Record open = named("pair", "open", true, "libc:0x30");
    open.field("key", Kind::signed_decimal, std::int32_t{number});
    EXPECT_NE(report<PairsFormatter>({open}).find(text), std::string::npos) << number;
  }
}

TEST(Pairs, SizesTimesCounts) {
  Record calloc = opening("leak", 16, 7, {});
  calloc.field("count", Kind::unsigned_decimal, std::uint64_t{3});
  EXPECT_NE(report<PairsFormatter>({calloc}).find("21 bytes in 1 block not freed"), std::string::npos);
}

TEST(Pairs, HeldTimes) {
  const Record open = named("pair", "open", true, "libc:0x30").field("key", Kind::signed_decimal, std::int32_t{3});
  const Record close = named("pair", "close", false, "libc:0x40").field("key", Kind::signed_decimal, std::int32_t{3});
  EXPECT_EQ(same_events<PairsFormatter>(open, close, "ococ"),
            "pair: process 12 (zsh): 0 keys not closed, of 2 opened\n  0x3 held 2 times, 3.000 us in all, 1.500 us at "
            "most\n");
}

TEST(Pairs, AsJson) {
  Names names;
  const std::string text =
      same_events<PairsJsonFormatter>(opening("leak", 16, 5, {3}), closing("leak", 16), "oco", &names);
  EXPECT_EQ(text,
            "[\n "
            "{\"pair\":\"leak\",\"pid\":12,\"command\":\"zsh\",\"opened\":2,\"closed\":1,\"held\":1,\"bytes\":5,"
            "\"unknown\":0,"
            "\"missed\":0,\"dropped\":0,\"lost\":0,\"unfollowed\":0,\"unread\":0,\"stacks\":[{\"bytes\":5,\"count\":1,"
            "\"frames\":[\"f3\\\\n\"]}],\"keys\":[]}\n]\n");
}

TEST(Pairs, TwoEventsOfOneFunctionCountOnce) {
  const Record one = opening("leak", 16, 5, {});
  EXPECT_NE(report<PairsFormatter>({one, one}).find("5 bytes in 1 block not freed, of 1 allocated"), std::string::npos);
}

TEST(Pairs, MoreStacksThanAreShown) {
  PairsFormatter formatter({});
  Buffer out;
  formatter.add(opening("leak", 1, 1, {1}).layout);
  for (std::uint64_t i = 1; i <= 25; ++i) {
    Record record = opening("leak", i, i, {i});
    formatter.append(record.event(), "zsh", out);
  }
  formatter.end({}, out);
  const std::string text(out.view());
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 2 * 20 + 1);
  EXPECT_NE(text.find("  15 bytes in 5 blocks by 5 other stacks (--json has all)\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace uprobe::format
