// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>

#include "engine/output/json.h"
#include "engine/output/json_text.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

using std::string_literals::operator""s;

constexpr auto kHead =
    R"({"time":12.345678901,"cpu":1,"pid":12,"tid":13,"comm":"zsh","group":"uprobes","event":"e","address":"0x401136")";

std::string text_of(std::string_view text) {
  Buffer out;
  add_json_text(out, text);
  return std::string(out.view());
}

std::string arguments_of(Record record) {
  const std::string line = line_of<JsonFormatter>(std::move(record));
  const std::string begin = kHead + R"(,"args":{)"s;
  EXPECT_EQ(line.substr(0, begin.size()), begin);
  return line.substr(begin.size(), line.size() - begin.size() - "\n"s.size());
}

TEST(Json, AnObjectOfEachRecord) {
  Record record;
  record.text("name", "a").field("k", Kind::signed_decimal, 3).array("v", Kind::signed_decimal, std::vector{1, -2, 3});
  EXPECT_EQ(line_of<JsonFormatter>(record), kHead + R"(,"args":{"name":"a","k":3,"v":[1,-2,3]}})"s + "\n");
}

// Its first field is the return address, which shows as the caller.
TEST(Json, AFunctionEventHasItsStrings) {
  Record record;
  record.field("", Kind::hex, std::uint64_t{0x402000}).text("s", "foo").text("t", "a longer string").text("u", "");
  record.layout.style = program::Style::function;
  const std::string line = line_of<JsonFormatter>(record);
  EXPECT_NE(line.find(R"("args":{"s":"foo","t":"a longer string","u":""}})"), std::string::npos) << line;
}

TEST(Json, AReturnHasBothAddresses) {
  EXPECT_EQ(line_of<JsonFormatter>(Record("e", true)), kHead + R"(,"return_address":"0x402000","args":{}})"s + "\n");
}

TEST(Json, AProcessThatIsNotKnownIsNull) {
  Record record;
  JsonFormatter formatter({});
  formatter.add(record.layout);
  trace::EventRecord event = record.event();
  event.pid = 0;
  Buffer out;
  formatter.append(event, "zsh", out);
  EXPECT_NE(out.view().find(R"("pid":null,"tid":13)"), std::string_view::npos);
}

TEST(Json, WhatHappensToAProcess) {
  using Change = ProcessEvent::Kind;
  const auto line_of_event = [](const ProcessEvent& event, trace::ClockKind clock = trace::ClockKind::mono) {
    Buffer out;
    JsonFormatter({.clock = clock}).process(event, out);
    return std::string(out.view());
  };
  EXPECT_EQ(line_of_event({.kind = Change::start, .pid = 7, .ns = 1'500'000'000, .parent = 6, .comm = "zsh"}),
            "{\"type\":\"start\",\"time\":1.500000000,\"pid\":7,\"parent\":6,\"comm\":\"zsh\"}\n");
  EXPECT_EQ(line_of_event({.kind = Change::start, .pid = 7, .ns = 15, .comm = "z\n\xff"}, trace::ClockKind::wall),
            R"({"type":"start","time":"15","pid":7,"comm":"z\u000a\\xff","escaped_comm":true})"s + "\n");
  EXPECT_EQ(line_of_event({.kind = Change::exec, .pid = 7, .comm = "ls", .exe = "/\xfe"}),
            R"({"type":"exec","time":0.000000000,"pid":7,"comm":"ls","exe":"/\\xfe","escaped_exe":true})"s + "\n");
  EXPECT_EQ(line_of_event({.kind = Change::end, .pid = 7, .comm = "ls", .exit = 0}),
            "{\"type\":\"end\",\"time\":0.000000000,\"pid\":7,\"comm\":\"ls\",\"exit\":0}\n");
  EXPECT_EQ(line_of_event({.kind = Change::end, .pid = 7, .comm = "ls", .signal = 9}),
            "{\"type\":\"end\",\"time\":0.000000000,\"pid\":7,\"comm\":\"ls\",\"signal\":9}\n");
}

TEST(Json, LossesUpToAMomentAreNoSums) {
  Buffer out;
  JsonFormatter({}).loss({.ns = 1'500'000'000, .name = "uprobes/e", .hits = 3, .returns = 1}, out);
  EXPECT_EQ(out.view(),
            "{\"type\":\"lost\",\"time\":1.500000000,\"name\":\"uprobes/e\",\"hits_so_far\":3,\"returns_so_far\":1}\n");
}

TEST(Json, IntegersThatADoubleCannotHoldAreStrings) {
  const std::uint64_t most = std::uint64_t{1} << 53;
  EXPECT_EQ(arguments_of(Record().field("k", Kind::unsigned_decimal, most)), R"("k":9007199254740992}})");
  EXPECT_EQ(arguments_of(Record().field("k", Kind::hex, most + 1)), R"("k":"9007199254740993"}})");
  EXPECT_EQ(arguments_of(Record().field("k", Kind::signed_decimal, -static_cast<std::int64_t>(most))),
            R"("k":-9007199254740992}})");
  EXPECT_EQ(arguments_of(Record().field("k", Kind::signed_decimal, std::numeric_limits<std::int64_t>::min())),
            R"("k":"-9223372036854775808"}})");
}

TEST(Json, FloatingNumbers) {
  EXPECT_EQ(arguments_of(Record().field("k", Kind::floating, 0.5)), R"("k":0.5}})");
  EXPECT_EQ(arguments_of(Record().field("k", Kind::floating, 0.1F)), R"("k":0.1}})");
  EXPECT_EQ(arguments_of(Record().field("k", Kind::floating, -std::numeric_limits<double>::infinity())),
            R"("k":"-inf"}})");
}

TEST(Json, Characters) { EXPECT_EQ(arguments_of(Record().field("c", Kind::character, '\n')), R"("c":"\u000a"}})"); }

TEST(Json, NumbersOfSixteenBytesAreStringsWhereTheyAreLarge) {
  const auto wide = [](Kind kind, std::uint64_t lower, std::uint64_t upper) {
    const std::string all = arguments_of(Record().wide("w", kind, lower, upper));
    return all.substr(4, all.size() - 6);
  };
  constexpr std::uint64_t kExact = 1ull << 53, kNone = ~0ull;
  EXPECT_EQ(wide(Kind::unsigned_decimal, kExact, 0), "9007199254740992");
  EXPECT_EQ(wide(Kind::unsigned_decimal, kExact + 1, 0), "\"9007199254740993\"");
  EXPECT_EQ(wide(Kind::unsigned_decimal, 0, 1), "\"18446744073709551616\"");
  EXPECT_EQ(wide(Kind::signed_decimal, kNone, kNone), "-1");
  EXPECT_EQ(wide(Kind::signed_decimal, 0 - kExact, kNone), "-9007199254740992");
  EXPECT_EQ(wide(Kind::signed_decimal, 0 - kExact - 1, kNone), "\"-9007199254740993\"");
  EXPECT_EQ(wide(Kind::signed_decimal, 0, kNone), "\"-18446744073709551616\"");
  EXPECT_EQ(wide(Kind::signed_decimal, 0, 1ull << 63), "\"-170141183460469231731687303715884105728\"");
  EXPECT_EQ(wide(Kind::hex, 16, 0), "16");
  EXPECT_EQ(wide(Kind::hex, 0, 1), "\"18446744073709551616\"");
}

TEST(Json, StringsThatAreCutOrNotThereAreMarked) {
  EXPECT_EQ(arguments_of(Record().text("s", "abc", true)), R"("s":"abc"},"cut":["s"]})");
  EXPECT_EQ(arguments_of(Record().field("s", Kind::string, std::uint32_t{0})), R"("s":null}})");
}

TEST(Json, TheLimitOfStringsCuts) {
  const std::string line = line_of<JsonFormatter>(Record().text("s", "abcdef"), {.string_limit = 2});
  EXPECT_NE(line.find(R"("s":"ab"},"cut":["s"])"), std::string::npos) << line;
}

TEST(Json, BytesThatAreNotUtf8AreMarked) {
  EXPECT_EQ(arguments_of(Record().text("s", "a\xff\\b")), R"("s":"a\\xff\\\\b"},"escaped":["s"]})");
  EXPECT_EQ(arguments_of(Record().text("s", "a\\xff")), R"("s":"a\\xff"}})");
}

TEST(Json, ValuesOfTheEntryThatAreMissingAreLeftOut) {
  Record record;
  record.field("a", Kind::hex, 1).field("b", Kind::hex, 2);
  record.layout.fields[0].of_entry = true;
  record.flags = shared::kRecordNoEntry;
  EXPECT_EQ(arguments_of(record), R"("b":2}})");
}

TEST(Json, Stacks) {
  Record record;
  record.add_stack({0x401136, 0x402000});
  EXPECT_EQ(arguments_of(record), R"(},"stack":["0x401136","0x402000"]})");
}

TEST(Json, AShortPayloadIsReadAsZeros) {
  Record record;
  record.field("k", Kind::hex, std::uint64_t{7});
  record.payload.resize(20);
  EXPECT_EQ(arguments_of(record), R"("k":7}})");
  record.payload.resize(16);
  EXPECT_EQ(arguments_of(record), R"("k":0}})");
}

TEST(Json, StringsTogetherAreNoLongerThanThePayload) {
  Record record;
  for (int i = 0; i < 40; ++i) record.field("s" + std::to_string(i), Kind::string, std::uint32_t{0});
  const auto first = static_cast<std::uint32_t>(record.payload.size());
  record.payload.resize(first + 600, 'x');
  const std::uint32_t locator = 600 << 16 | first;
  for (std::uint32_t i = 0; i < 40; ++i) std::memcpy(record.payload.data() + 16 + 4 * i, &locator, 4);
  const std::string line = line_of<JsonFormatter>(record);
  EXPECT_LT(std::count(line.begin(), line.end(), 'x'), 1000);
  EXPECT_NE(line.find(R"("s39":null)"), std::string::npos);
}

TEST(Json, EventsThatLostHits) {
  JsonFormatter formatter({});
  Buffer out;
  const std::vector<Total> totals{{.name = "uprobes/f", .recorded = 5}, {.name = "uprobes/g", .lost = 3, .missed = 1}};
  formatter.end(totals, out);
  EXPECT_EQ(out.view(), "{\"type\":\"lost\",\"name\":\"uprobes/g\",\"hits\":3,\"returns\":1}\n");
}

TEST(JsonText, NothingForgesALine) {
  EXPECT_EQ(text_of("a\"b\\c\n\x1b\x7f"s + '\0'), R"("a\"b\\c\u000a\u001b\u007f\u0000")");
  EXPECT_EQ(text_of("\xe2\x80\xa8\xe2\x80\xae\xc2\x9b\xef\xbb\xbf"), R"("\u2028\u202e\u009b\ufeff")");
  EXPECT_EQ(text_of("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\"");
}

TEST(JsonText, BrokenUtf8) {
  EXPECT_EQ(text_of("\xc3"), R"("\\xc3")");
  EXPECT_EQ(text_of("\xed\xa0\x80"), R"("\\xed\\xa0\\x80")");  // a surrogate
  EXPECT_EQ(text_of("\xc0\x80\n"), R"("\\xc0\\x80\u000a")");   // overlong
}

}  // namespace
}  // namespace uprobe::format
