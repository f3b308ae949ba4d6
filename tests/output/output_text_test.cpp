// SPDX-License-Identifier: MIT
// Trace text: each kind of value from a hand-made payload against the exact line.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/output/text.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {
namespace {

using program::EventLayout;
using program::Field;
using program::Kind;
using std::string_literals::operator""s;

constexpr auto kUnsigned = Kind::unsigned_decimal;
constexpr auto kSigned = Kind::signed_decimal;

// A payload and its layout, built side by side.
class Sample {
 public:
  explicit Sample(bool is_return = false) {
    layout.event = "e";
    layout.is_return = is_return;
    put(shared::PayloadHead{.type = 0, .flags = 0, .preempt_count = 0, .pid = 10064, .ip = 0x564be9bf4d41});
    if (is_return) put(std::uint64_t{0x7f00deadbeef});
  }

  template <class T>
  void put(const T& value) {
    payload.resize(payload.size() + sizeof value);
    std::memcpy(payload.data() + payload.size() - sizeof value, &value, sizeof value);
    layout.fixed_bytes = static_cast<std::uint32_t>(payload.size());
  }
  template <class T>
  Sample& field(const std::string& name, Kind kind, T value) {
    layout.fields.push_back(
        {.name = name, .kind = kind, .size = sizeof value, .offset = layout.fixed_bytes, .count = 0});
    put(value);
    return *this;
  }
  template <class T>
  Sample& array(const std::string& name, Kind kind, const std::vector<T>& values) {
    layout.fields.push_back({.name = name,
                             .kind = kind,
                             .size = sizeof(T),
                             .offset = layout.fixed_bytes,
                             .count = static_cast<std::uint32_t>(values.size())});
    for (const T& value : values) put(value);
    return *this;
  }
  // Dynamic data; the locator gives its place. To be called after all fields.
  Sample& text(std::size_t locator_offset, const std::string& value) {
    const auto length = static_cast<std::uint32_t>(value.size() + 1);
    const std::uint32_t locator = length << 16 | static_cast<std::uint32_t>(payload.size());
    std::memcpy(payload.data() + locator_offset, &locator, sizeof locator);
    payload.insert(payload.end(), value.begin(), value.end());
    payload.push_back(0);
    return *this;
  }

  std::string line(Options options = {}) const {
    TextFormatter formatter(std::span(&layout, 1), options);
    Buffer out;
    const std::vector<std::uint8_t> frames = stack_bytes();
    formatter.append({.ns = 1370'652'542'000,
                      .tid = 10064,
                      .cpu = 1,
                      .type = 0,
                      .flags = flags,
                      .payload = payload,
                      .stack = frames},
                     "corpus-target", out);
    return std::string(out.view());
  }
  // The text after the place.
  std::string values(Options options = {}) const {
    const std::string all = line(options);
    const std::size_t place = all.find("41)");
    return place == std::string::npos || all.back() != '\n' ? all : all.substr(place + 3, all.size() - place - 4);
  }

  // As after a record: frames without places, nothing copied.
  std::vector<std::uint8_t> stack_bytes() const {
    if (stack.empty()) return {};
    shared::StackHead head{};
    head.frames = static_cast<std::uint32_t>(stack.size());
    std::vector<std::uint8_t> bytes(sizeof head + 16 * stack.size());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, stack.data(), 8 * stack.size());
    return bytes;
  }

  EventLayout layout;
  std::vector<std::uint8_t> payload;
  std::vector<std::uint64_t> stack;
  std::uint16_t flags = 0;
};

std::string line_of(std::uint32_t tid, std::string_view comm, std::uint16_t cpu, std::uint64_t ns,
                    Options options = {}) {
  const Sample sample;
  TextFormatter formatter(std::span(&sample.layout, 1), options);
  Buffer out;
  formatter.append({.ns = ns, .tid = tid, .cpu = cpu, .type = 0, .flags = 0, .payload = sample.payload}, comm, out);
  return std::string(out.view());
}

TEST(Text, HeaderIsTheKernels) {
  Buffer out;
  TextFormatter({}).header(out);
  EXPECT_EQ(out.view(),
            "# tracer: nop\n"
            "#\n"
            "#                                _-----=> irqs-off/BH-disabled\n"
            "#                               / _----=> need-resched\n"
            "#                              | / _---=> hardirq/softirq\n"
            "#                              || / _--=> preempt-depth\n"
            "#                              ||| / _-=> migrate-disable\n"
            "#                              |||| /     delay\n"
            "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
            "#              | |         |   |||||     |         |\n");
}

TEST(Text, ALineOfAnEntryEvent) {
  EXPECT_EQ(Sample().field("u", kUnsigned, std::uint32_t{1}).field("s", kSigned, std::int32_t{2}).line(),
            "   corpus-target-10064   [001] .....  1370.652542: e: (0x564be9bf4d41) u=1 s=2\n");
}

TEST(Text, ALineOfAReturnEvent) {
  EXPECT_EQ(Sample(true).field("arg1", Kind::hex, std::uint64_t{255}).line(),
            "   corpus-target-10064   [001] .....  1370.652542: e: (0x7f00deadbeef <- 0x564be9bf4d41) arg1=0xff\n");
}

// Names two addresses; counts the requests by record.
class FakeSymbols : public Symbols {
 public:
  NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) override {
    EXPECT_EQ(record.tid, 10064u);
    if (address == 0x4010) return {"reader", 0x10, 0x24};
    if (address == 0x5fff) return {"caller", 0xff, 0x100};
    if (address == 0x7000) return {long_name, 0, 1};
    return {};
  }
  CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) override {
    EXPECT_TRUE(record == nullptr || record->tid == 10064u);
    const NamedAddress found = address == 0x9000 || record == nullptr ? NamedAddress{} : name_of(*record, address);
    return {std::string(found.name), found.distance, found.size, address == 0x9000 ? "/lib/x" : "", 0x1040};
  }
  std::vector<StackFrame> frames_of(const trace::EventRecord& record) override { return linked_frames(record); }
  std::string long_name = std::string(10'000, 'n');
};

TEST(Text, SymbolsAreFunctionsAndDistances) {
  FakeSymbols symbols;
  const auto values = [&](std::uint64_t address) {
    return Sample().field("a", Kind::symbol, address).values({.symbols = &symbols});
  };
  EXPECT_EQ(values(0x4010), " a=reader+0x10");
  EXPECT_EQ(values(0x4011), " a=0x4011");
  EXPECT_EQ(values(0), " a=0x0");
  EXPECT_EQ(values(0x7000), " a=" + std::string(200, 'n') + "+0x0") << "no line grows without bound";
  EXPECT_EQ(Sample().field("a", Kind::symbol, std::uint64_t{0x4010}).values(), " a=0x4010") << "no symbols to look in";
  EXPECT_EQ(Sample().array<std::uint64_t>("a", Kind::symbol, {0x4010, 1}).values({.symbols = &symbols}),
            " a={reader+0x10,0x1}");
  EXPECT_EQ(Sample()
                .array<std::uint64_t>("a", Kind::symbol, std::vector<std::uint64_t>(64, 0x7000))
                .values({.symbols = &symbols})
                .size(),
            sizeof " a={" + 63 + 64 * 204u);
}

TEST(Text, AStackFollowsItsRecord) {
  FakeSymbols symbols;
  Sample sample;
  sample.stack = {0x4010, 0x6000, 0x9001, 0x7001, 0x77};
  const std::string head = "   corpus-target-10064   [001] .....  1370.652542: ";
  EXPECT_EQ(sample.line({.symbols = &symbols}), head + "e: (0x564be9bf4d41)\n" + head +
                                                    "<user stack trace>\n"
                                                    " => reader+0x10/0x24\n"
                                                    " => caller+0x100/0x100\n"
                                                    " => /lib/x[+0x1041]\n"
                                                    " => " +
                                                    std::string(200, 'n') + "+0x1/0x1\n => 0x77\n");
  EXPECT_TRUE(sample.line().ends_with(" => 0x4010\n => 0x6000\n => 0x9001\n => 0x7001\n => 0x77\n"));
}

TEST(Text, FloatingPointNumbers) {
  Sample sample;
  sample.field("a", Kind::floating, 1.5f).field("b", Kind::floating, -2.25).field("c", Kind::floating, 0.1);
  sample.field("d", Kind::floating, 0.1f).field("e", Kind::floating, -1.7976931348623157e308);
  sample.array<float>("g", Kind::floating, {0.f, -0.f, 1e30f}).field("h", Kind::floating, 1.0 / 3);
  EXPECT_EQ(sample.values(),
            " a=1.5 b=-2.25 c=0.1 d=0.1 e=-1.7976931348623157e+308 g={0,-0,1e+30} h=0.3333333333333333");
  const double bad[] = {__builtin_nan(""), __builtin_inf(), -__builtin_inf()};
  EXPECT_EQ(Sample().array<double>("a", Kind::floating, {bad[0], bad[1], bad[2]}).values(), " a={nan,inf,-inf}");
}

TEST(Text, NumbersOfSixteenBytes) {
  constexpr std::uint64_t kNone = ~0ull;
  const auto wide = [](Kind kind, std::uint64_t lower, std::uint64_t upper) {
    Sample sample;
    sample.array<std::uint64_t>("w", kind, {lower, upper});
    sample.layout.fields.back().is_wide = true;
    return sample.values().substr(3);
  };
  EXPECT_EQ(wide(kUnsigned, 0, 0), "0");
  EXPECT_EQ(wide(kUnsigned, 7, 5), "92233720368547758087");
  EXPECT_EQ(wide(kUnsigned, kNone, kNone), "340282366920938463463374607431768211455");
  EXPECT_EQ(wide(kUnsigned, 9'999'999'999'999'999'999u, 0), "9999999999999999999");
  EXPECT_EQ(wide(kUnsigned, 10'000'000'000'000'000'000u, 0), "10000000000000000000");
  EXPECT_EQ(wide(kUnsigned, 0x098a224000000000u, 0x4b3b4ca85a86c47au), "100000000000000000000000000000000000000")
      << "zeros inside";
  EXPECT_EQ(wide(kSigned, kNone, kNone), "-1");
  EXPECT_EQ(wide(kSigned, 0, 1ull << 63), "-170141183460469231731687303715884105728");
  EXPECT_EQ(wide(kSigned, kNone, kNone >> 1), "170141183460469231731687303715884105727");
  EXPECT_EQ(wide(Kind::hex, 7, 5), "0x50000000000000007");
  EXPECT_EQ(wide(Kind::hex, 0x1f, 0), "0x1f");
  EXPECT_EQ(wide(Kind::hex, kNone, kNone), "0x" + std::string(32, 'f'));
}

TEST(Text, EventsWithAFormatOfTheirOwn) {
  Sample sample;
  sample.field("fd", kSigned, std::int32_t{-19})
      .field("path", Kind::string, 0u)
      .field("took", kUnsigned, std::uint64_t{19000});
  sample.field("f", Kind::floating, 2.5f).field("c", Kind::character, '\n').field("h", Kind::hex, std::uint8_t{0xab});
  sample.text(sample.layout.fields[1].offset, "odd\n");
  sample.layout.print_format = "fd=%04d path=%-6s|%5llu ns 100%% %.2f '%2c' 0x%X\x1b[m\n";
  EXPECT_EQ(sample.values({.escape_control = true}), " fd=-019 path=odd\\n  |19000 ns 100% 2.50 ' \\n' 0xAB\\x1b[m");
  sample.layout.print_format = "%d %.2s %llu %f %c %X";
  EXPECT_EQ(sample.values(), " -19 od 19000 2.500000 \n AB");
  EXPECT_EQ(sample.values({.string_limit = 3}), " -19 od 19000 2.500000 \n AB");
  sample.layout.print_format = "%s %d %d %d %d %d";
  EXPECT_EQ(sample.values({.string_limit = 3}), " -19 odd... 19000 2.5 \n -85") << "a field prints as its kind";
  for (const char* other : {"%d", "", "%d %s %d %d %d %d %d", "%d %s %d %n %d %d"}) {
    sample.layout.print_format = other;
    EXPECT_TRUE(sample.values().starts_with(" fd=-19 path=\"odd")) << other;
  }
  Sample none;
  none.layout.print_format = "started";
  EXPECT_EQ(none.values(), " started");
}

TEST(Text, FunctionEvents) {
  FakeSymbols symbols;
  Sample sample;
  sample.layout.style = program::Style::function;
  sample.layout.place = "vfs_read";
  sample.field("__parent_ip", Kind::symbol, std::uint64_t{0x6000});
  EXPECT_TRUE(sample.line({.symbols = &symbols}).ends_with(": caller->vfs_read()\n"));
  EXPECT_TRUE(sample.line().ends_with(": 0x6000->vfs_read()\n"));
  sample.field("read", Kind::symbol, std::uint64_t{0x4010}).field("n", kSigned, std::int32_t{-5});
  sample.array<std::uint8_t>("x", Kind::hex, {0xb4, 5}).array<char>("c", Kind::character, {'a', 'b', '\0', 'z'});
  sample.layout.fields.back().is_text = true;
  sample.field("ch", Kind::character, 'q').field("h", Kind::hex, std::uint16_t{0x40});
  sample.field("s", Kind::string, std::uint32_t{0}).field("t", Kind::string, std::uint32_t{0});
  sample.text(sample.layout.fields[7].offset, "a b");
  EXPECT_TRUE(sample.line({.symbols = &symbols})
                  .ends_with(": caller->vfs_read(read=reader+0x10/0x24, n=-5, x=b4,5, c=ab, ch=q, h=40, s=a b, "
                             "t=(fault))\n"))
      << sample.line({.symbols = &symbols});
}

TEST(Text, TheKprobeTracerOf2009) {
  FakeSymbols symbols;
  for (const bool is_return : {false, true}) {
    Sample sample(is_return);
    sample.layout.style = program::Style::kprobes_2009;
    sample.layout.place = "do_open+4";
    if (is_return) {
      const std::uint64_t back = 0x6000;
      std::memcpy(sample.payload.data() + 16, &back, sizeof back);
    }
    sample.field("arg1", Kind::hex, std::uint64_t{0xff}).field("n", kUnsigned, std::uint32_t{7});
    EXPECT_EQ(sample.line({.symbols = &symbols}), std::string("   corpus-target-10064   [001] .....  1370.652542: ") +
                                                      (is_return ? "caller: <-do_open+4" : "do_open: @do_open+4") +
                                                      " 0xff 7\n");
  }
}

// For a record without an entry record, whatever the payload holds.
TEST(Text, ValuesOfAnEntryThatIsNotKnown) {
  Sample sample(true);
  sample.field("h", Kind::hex, std::uint64_t{255}).field("d", kSigned, std::int32_t{-1});
  sample.field("s", Kind::string, std::uint32_t{0}).array("a", kUnsigned, std::vector<std::uint8_t>{1, 2});
  sample.field("own", Kind::hex, std::uint8_t{7});
  EXPECT_EQ(sample.values(), " h=0xff d=-1 s=(fault) a={1,2} own=0x7");
  for (std::size_t i = 0; i < 4; ++i) sample.layout.fields[i].of_entry = true;
  EXPECT_EQ(sample.values(), " h=0xff d=-1 s=(fault) a={1,2} own=0x7");
  sample.flags = shared::kRecordNoEntry;
  EXPECT_EQ(sample.values(), " h=(missing) d=(missing) s=(missing) a={(missing)} own=0x7");
}

TEST(Text, TaskColumn) {
  EXPECT_EQ(line_of(5, "sh", 0, 0), "              sh-5       [000] .....     0.000000: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(4194304, "fifteen-letters", 0, 0),
            " fifteen-letters-4194304 [000] .....     0.000000: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(2147483647, "<...>", 0, 0),
            "           <...>-2147483647 [000] .....     0.000000: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(0xffffffff, "", 0, 0), "                --1      [000] .....     0.000000: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(5, "a-name-that-is-longer", 0, 0),
            "a-name-that-is-longer-5       [000] .....     0.000000: e: (0x564be9bf4d41)\n");
}

TEST(Text, CpuAndTimeColumns) {
  EXPECT_EQ(line_of(5, "sh", 12, 12'345'678'901'499),
            "              sh-5       [012] ..... 12345.678901: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(5, "sh", 128, 1'234'567'000'000'500),
            "              sh-5       [128] ..... 1234567.000001: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(5, "sh", 65535, 999'999'999),
            "              sh-5       [65535] .....     1.000000: e: (0x564be9bf4d41)\n");
  EXPECT_EQ(line_of(5, "sh", 9, ~0ull),
            "              sh-5       [009] ..... 18446744073.709552: e: (0x564be9bf4d41)\n");
}

TEST(Text, UnsignedAndSigned) {
  EXPECT_EQ(Sample()
                .field("a", kUnsigned, std::uint8_t{255})
                .field("b", kUnsigned, std::uint16_t{65535})
                .field("c", kUnsigned, std::uint32_t{4294967295})
                .field("d", kUnsigned, ~std::uint64_t{0})
                .field("e", kUnsigned, std::uint64_t{0})
                .values(),
            " a=255 b=65535 c=4294967295 d=18446744073709551615 e=0");
  EXPECT_EQ(Sample()
                .field("a", kSigned, std::int8_t{-128})
                .field("b", kSigned, std::int16_t{-32768})
                .field("c", kSigned, std::int32_t{-2147483647 - 1})
                .field("d", kSigned, std::int64_t{-9223372036854775807 - 1})
                .field("e", kSigned, std::int8_t{127})
                .values(),
            " a=-128 b=-32768 c=-2147483648 d=-9223372036854775808 e=127");
}

TEST(Text, Hexadecimal) {
  EXPECT_EQ(Sample()
                .field("a", Kind::hex, std::uint8_t{0})
                .field("b", Kind::hex, std::uint8_t{0x0f})
                .field("c", Kind::hex, std::uint16_t{0xfedc})
                .field("d", Kind::hex, std::uint32_t{0x10})
                .field("e", Kind::hex, ~std::uint64_t{0})
                .values(),
            " a=0x0 b=0xf c=0xfedc d=0x10 e=0xffffffffffffffff");
}

TEST(Text, CharactersAreRawBytes) {
  const std::string expected = " a='A' b=''' c='\n' d='\0' e='\xff'"s;
  Sample sample;
  sample.field("a", Kind::character, 'A').field("b", Kind::character, '\'').field("c", Kind::character, '\n');
  sample.field("d", Kind::character, '\0').field("e", Kind::character, '\xff');
  EXPECT_EQ(sample.values(), expected);
  EXPECT_EQ(sample.values({.escape_control = true}), " a='A' b=''' c='\\n' d='\\x00' e='\\xff'");
}

TEST(Text, Strings) {
  Sample sample;
  sample.field("a", Kind::string, 0u).field("b", Kind::string, 0u).field("c", Kind::string, 0u);
  sample.text(16, "two words").text(24, "q\"uo\\te\t");
  EXPECT_EQ(sample.values(), " a=\"two words\" b=(fault) c=\"q\"uo\\te\t\"");
  Sample empty;
  EXPECT_EQ(empty.field("a", Kind::string, 0u).text(16, "").values(), " a=\"\"");
}

TEST(Text, DotsFollowACutString) {
  Sample sample;
  sample.field("a", Kind::string, 0u).field("b", Kind::string, 4u << 16 | 34u);
  sample.field("c", Kind::string, shared::kCutToNothing);
  sample.text(16, "abcde");
  for (const char c : {'w', 'x', 'y', 'z'}) sample.payload.push_back(static_cast<std::uint8_t>(c));
  EXPECT_EQ(sample.values(), " a=\"abcde\" b=\"wxyz\"... c=\"\"...");
  EXPECT_EQ(sample.values({.string_limit = 4}), " a=\"abcd\"... b=\"wxyz\"... c=\"\"...");
  EXPECT_EQ(sample.values({.string_limit = 1}), " a=\"a\"... b=\"w\"... c=\"\"...");
}

// The NUL of the longest string is not in its length; without it the string was cut.
TEST(Text, TheLongestString) {
  Sample sample;
  sample.field("a", Kind::string, shared::kMostString << 16 | 20u);
  sample.payload.insert(sample.payload.end(), shared::kMostString, 'x');
  EXPECT_TRUE(sample.values().ends_with("x\"..."));
  sample.payload.push_back(0);
  EXPECT_EQ(sample.values(), " a=\"" + std::string(shared::kMostString, 'x') + "\"");
  sample.payload.back() = 'x';
  EXPECT_TRUE(sample.values().ends_with("x\"..."));
}

TEST(Text, AStringEndsAtItsNul) {
  Sample sample;
  EXPECT_EQ(sample.field("a", Kind::string, 0u).text(16, "ab\0cd"s).values(), " a=\"ab\"");
}

TEST(Text, AStringWithoutANulIsPrintedToItsLength) {
  Sample sample;
  sample.field("a", Kind::string, 0u).text(16, "abc");
  sample.payload.back() = 'd';
  EXPECT_EQ(sample.values(), " a=\"abcd\"...");
}

TEST(Text, LongString) {
  const std::string text(4000, 'x');
  Sample sample;
  EXPECT_EQ(sample.field("a", Kind::string, 0u).text(16, text).values(), " a=\"" + text + "\"");
  Sample control;
  const std::string bells(4000, '\a');
  std::string shown;
  for (int i = 0; i < 4000; ++i) shown += "\\x07";
  EXPECT_EQ(control.field("a", Kind::string, 0u).text(16, bells).values({.escape_control = true}),
            " a=\"" + shown + "\"");
}

TEST(Text, Arrays) {
  EXPECT_EQ(Sample()
                .array<std::uint16_t>("a", Kind::hex, {0x1111, 0, 0x2222})
                .array<std::int8_t>("b", kSigned, {-4, 0, 3})
                .array<std::uint64_t>("c", kUnsigned, {1, 1ull << 48})
                .array<char>("d", Kind::character, {'x', 'y'})
                .array<std::uint32_t>("e", kUnsigned, {7})
                .values(),
            " a={0x1111,0x0,0x2222} b={-4,0,3} c={1,281474976710656} d={'x','y'} e={7}");
}

TEST(Text, StringArrayWithAFaultInside) {
  Sample sample;
  sample.array<std::uint32_t>("a", Kind::string, {0, 0, 0}).field("t", Kind::string, 0u);
  sample.text(16, "hello").text(24, "").text(28, "inline");
  EXPECT_EQ(sample.values(), " a={\"hello\",(fault),\"\"} t=\"inline\"");
}

TEST(Text, LongNamesAndManyFields) {
  Sample sample;
  sample.layout.event = std::string(63, 'n');
  std::string expected =
      "   corpus-target-10064   [001] .....  1370.652542: " + std::string(63, 'n') + ": (0x564be9bf4d41)";
  for (int i = 0; i < 128; ++i) {
    const std::string name = std::string(29, 'a') + std::to_string(100 + i);
    sample.array<std::uint8_t>(name, Kind::character, std::vector<std::uint8_t>(24, 1));
    expected += " " + name + "={";
    for (int k = 0; k < 24; ++k) expected += k == 0 ? "'\\x01'" : ",'\\x01'";
    expected += "}";
  }
  EXPECT_EQ(sample.line({.escape_control = true}), expected + "\n");
}

TEST(Text, EscapingLeavesTextAlone) {
  const auto shown = [](const std::string& text) {
    Sample sample;
    return sample.field("a", Kind::string, 0u).text(16, text).values({.escape_control = true});
  };
  EXPECT_EQ(shown("plain \"quoted\" back\\slash"), " a=\"plain \"quoted\" back\\slash\"");
  EXPECT_EQ(shown("\n\t\r\x1b[31m\x7f"), " a=\"\\n\\t\\r\\x1b[31m\\x7f\"");
  EXPECT_EQ(shown("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            " a=\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
  EXPECT_EQ(shown("\xc2\x9b"
                  "31m"),
            " a=\"\\xc2\\x9b31m\"")
      << "CSI as one character";
  EXPECT_EQ(shown("\x9b \xff \xc3"), " a=\"\\x9b \\xff \\xc3\"");
  EXPECT_EQ(shown("\xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80"),
            " a=\"\\xe0\\x80\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80\"");
  EXPECT_EQ(line_of(5, "e\x1b]0;\a", 0, 0, {.escape_control = true}),
            "    e\\x1b]0;\\x07-5       [000] .....     0.000000: e: (0x564be9bf4d41)\n");
}

TEST(Text, SeveralEventsMayShareAName) {
  Sample first, second(true);
  first.field("a", kUnsigned, std::uint8_t{1});
  second.field("b", kUnsigned, std::uint8_t{2});
  const EventLayout layouts[] = {first.layout, second.layout};
  TextFormatter formatter(layouts);
  Buffer out;
  formatter.append({.ns = 0, .tid = 1, .cpu = 0, .type = 1, .flags = 0, .payload = second.payload}, "x", out);
  formatter.append({.ns = 0, .tid = 1, .cpu = 0, .type = 0, .flags = 0, .payload = first.payload}, "y", out);
  EXPECT_EQ(out.view(),
            "               x-1       [000] .....     0.000000: e: (0x7f00deadbeef <- 0x564be9bf4d41) b=2\n"
            "               y-1       [000] .....     0.000000: e: (0x564be9bf4d41) a=1\n");
}

// The prepared task column is not mixed up between tasks, nor kept when a task changes its name.
TEST(Text, TasksOfOneCacheSlot) {
  const Sample sample;
  TextFormatter formatter(std::span(&sample.layout, 1));
  for (int round = 0; round < 2; ++round)
    for (const std::uint32_t tid : {1u, 65u, 129u})
      for (const std::string comm : {"a", "b"}) {
        Buffer out;
        formatter.append({.ns = 0, .tid = tid, .cpu = 0, .type = 0, .flags = 0, .payload = sample.payload}, comm, out);
        const std::string start = std::string(15, ' ') + comm + "-" + std::to_string(tid) + " ";
        EXPECT_EQ(out.view().substr(0, start.size()), start);
      }
}

TEST(TextHostile, LocatorsThatLeadElsewhereAreFaults) {
  // head 16, locator 16..20, text 20..24
  for (const std::uint32_t locator : {4u << 16 | 0, 4u << 16 | 16, 4u << 16 | 19, 5u << 16 | 20, 4u << 16 | 21,
                                      1u << 16 | 24, 0xffffu << 16 | 20, 4u << 16 | 0xffff, ~0u, 0u << 16 | 20}) {
    Sample sample;
    sample.field("a", Kind::string, locator);
    for (const char c : {'a', 'b', 'c', '\0'}) sample.payload.push_back(static_cast<std::uint8_t>(c));
    EXPECT_EQ(sample.values(), " a=(fault)") << std::hex << locator;
  }
}

// Thousands of locators on the same bytes must not make a line of megabytes.
TEST(TextHostile, ALineIsNoLongerThanItsPayloadAllows) {
  Sample sample;
  sample.array<std::uint32_t>("a", Kind::string, std::vector<std::uint32_t>(64, 1001u << 16 | (16 + 4 * 64)));
  sample.payload.resize(sample.payload.size() + 1000, '\a');
  sample.payload.push_back(0);
  const std::string line = sample.line({.escape_control = true});
  EXPECT_LT(line.size(), 7000u);
  EXPECT_NE(line.find("\\x07\",(fault)"), std::string::npos);
}

TEST(TextHostile, APayloadThatEndsEarlyReadsAsZeros) {
  Sample sample;
  sample.field("a", Kind::hex, 0x1111u).field("b", Kind::hex, 0x2222u).field("c", Kind::string, 0u).text(24, "x");
  sample.payload.resize(20);
  EXPECT_EQ(sample.values(), " a=0x1111 b=0x0 c=(fault)");
  sample.payload.clear();
  EXPECT_EQ(sample.line(), "   corpus-target-10064   [001] .....  1370.652542: e: (0x0) a=0x0 b=0x0 c=(fault)\n");
}

TEST(TextHostile, AnUnknownEventPrintsNothing) {
  TextFormatter formatter({});
  Buffer out;
  formatter.append({.ns = 0, .tid = 1, .cpu = 0, .type = 7, .flags = 0, .payload = {}}, "x", out);
  EXPECT_EQ(out.view(), "");
}

TEST(TextHostile, RandomPayloadsStayInside) {
  std::mt19937 random(3);
  Sample sample(true);
  sample.array<std::uint32_t>("a", Kind::string, {0, 0})
      .array<std::uint16_t>("b", kSigned, {0, 0})
      .field("c", Kind::string, 0u);
  for (const bool escape : {false, true}) {
    TextFormatter formatter(std::span(&sample.layout, 1), {.escape_control = escape});
    for (int i = 0; i < 20'000; ++i) {
      const std::size_t size = random() % 80;
      const std::unique_ptr<std::uint8_t[]> payload(
          new std::uint8_t[size]);  // exactly so large: a sanitizer detects reads after it
      for (std::size_t k = 0; k < size; ++k)
        payload[k] = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : random() % 64);
      Buffer out;
      formatter.append({.ns = random(), .tid = 1, .cpu = 0, .type = 0, .flags = 0, .payload = {payload.get(), size}},
                       "x", out);
      ASSERT_EQ(out.view().back(), '\n');
    }
  }
}

}  // namespace
}  // namespace uprobe::format
