// SPDX-License-Identifier: MIT
// Filters beyond the recorded ones: precedence against a second evaluation, globs, CPU lists, refused lists, and lists of tests
// without verification.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "engine/program/compile.h"
#include "engine/program/cpu_list.h"
#include "engine/program/filter.h"
#include "engine/program/verify.h"
#include "engine/spec/function_event.h"
#include "engine/spec/parse.h"

namespace uprobe::program {
namespace {

using shared::Test;
using shared::TestOp;
using shared::TextMatch;
using shared::Verdict;

EventProgram event(const std::string& arguments) {
  return compile(*spec::parse_definition("p:g/e /b/x:f " + arguments, {.file_check = nullptr})).take();
}

EventProgram filtered(const std::string& arguments, const std::string& filter, const FilterContext& context = {}) {
  EventProgram program = event(arguments);
  const Status set = set_filter(program, filter, context);
  EXPECT_TRUE(set) << filter << ": " << (set ? "" : set.error().text);
  EXPECT_TRUE(verify(program)) << filter;
  return program;
}

Verdict run(const EventProgram& program, const std::vector<std::uint8_t>& payload, std::uint32_t cpu = 0,
            const std::uint8_t* name = nullptr) {
  const shared::Filter filter{program.filter.data(), static_cast<std::uint32_t>(program.filter.size()),
                              reinterpret_cast<const std::uint8_t*>(program.text.data()),
                              static_cast<std::uint32_t>(program.text.size())};
  return shared::run_filter(filter, {payload.data(), static_cast<std::uint32_t>(payload.size()), cpu, name});
}

// A payload of bytes after the head.
std::vector<std::uint8_t> record(std::initializer_list<std::uint8_t> bytes) {
  std::vector<std::uint8_t> payload(kEntryHead);
  for (const std::uint8_t byte : bytes) payload.push_back(byte);
  return payload;
}

TEST(Filter, TheNumberOfAThreadElsewhereIsTheTools) {
  const EventProgram program = filtered("%di", "common_pid == 70 || arg1 == 1");
  const shared::Filter filter{program.filter.data(), static_cast<std::uint32_t>(program.filter.size()), nullptr, 0};
  std::vector<std::uint8_t> payload(kEntryHead + 8);
  payload[4] = 70;
  const auto verdict = [&](bool is_elsewhere, std::uint32_t pid) {
    return shared::run_filter(
        filter, {payload.data(), static_cast<std::uint32_t>(payload.size()), 0, nullptr, is_elsewhere, pid});
  };
  EXPECT_EQ(verdict(false, 0), Verdict::pass);
  EXPECT_EQ(verdict(true, 70), Verdict::pass);
  EXPECT_EQ(verdict(true, 71), Verdict::drop);
  EXPECT_EQ(verdict(true, 0), Verdict::later);
}

// Random expressions over a, b and c, each 0 or 1, and their values.
struct Expression {
  std::string text;
  std::function<bool(unsigned)> holds;  // of the bits of a, b, c
};

Expression make(std::mt19937& random, int depth) {
  if (depth == 0 || random() % 4 == 0) {
    const auto field = static_cast<unsigned>(random() % 3), value = static_cast<unsigned>(random() % 2);
    return {std::string(1, static_cast<char>('a' + field)) + " == " + std::to_string(value),
            [=](unsigned bits) { return (bits >> field & 1) == value; }};
  }
  if (random() % 3 == 0) {
    const Expression inner = make(random, depth - 1);
    return {"!(" + inner.text + ")", [=](unsigned bits) { return !inner.holds(bits); }};
  }
  // This tests precedence: "x && y || z" has no parentheses.
  const Expression x = make(random, depth - 1), y = make(random, depth - 1), z = make(random, depth - 1);
  const bool first = random() % 2 == 0;
  return {"(" + x.text + (first ? " && " : " || ") + y.text + (first ? " || " : " && ") + z.text + ")",
          [=](unsigned bits) {
            return first ? (x.holds(bits) && y.holds(bits)) || z.holds(bits)
                         : x.holds(bits) || (y.holds(bits) && z.holds(bits));
          }};
}

TEST(Filter, ExpressionsMeanWhatTheySay) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const Expression expression = make(random, 4);
    if (expression.text.size() > 4000) continue;
    const EventProgram program = filtered("a=%di:u8 b=%si:u8 c=%dx:u8", expression.text);
    for (unsigned bits = 0; bits < 8; ++bits) {
      const auto bit = [&](int i) { return static_cast<std::uint8_t>(bits >> i & 1); };
      const bool passed = run(program, record({bit(0), bit(1), bit(2)})) == Verdict::pass;
      ASSERT_EQ(passed, expression.holds(bits)) << expression.text << " of " << bits;
    }
  }
}

TEST(Filter, NumbersOfEachSizeAndSign) {
  const std::string fields = "a=%di:u8 b=%di:s8 c=%di:u16 d=%di:s16";
  const auto payload = record({0x80, 0x80, 0x00, 0x80, 0x00, 0x80});
  for (const char* filter : {"a == 128", "a > 127", "b == -128", "b < 0", "b <= -128", "b == 128", "c > 32767",
                             "c >= 0x8000", "c & 0x8000", "d < -32767", "d & 0x8000", "a == 0x180", "!(b > 0)"})
    EXPECT_EQ(run(filtered(fields, filter), payload), Verdict::pass) << filter;
  for (const char* filter : {"a < 128", "b >= 0", "b > -128", "c & 0x7fff", "d >= 0", "a != 128", "d != 0x8000"})
    EXPECT_EQ(run(filtered(fields, filter), payload), Verdict::drop) << filter;
}

TEST(Filter, FieldsOfTheHeadAndOfTheEvent) {
  auto payload = record({});
  payload[4] = 7, payload[9] = 0x10;
  EXPECT_EQ(run(filtered("", "common_pid == 7 && __probe_ip == 0x1000"), payload), Verdict::pass);
  EXPECT_EQ(run(filtered("", "common_type == 3", {.id = 3}), payload), Verdict::pass);
  EXPECT_EQ(run(filtered("", "common_type == 3", {.id = 4}), payload), Verdict::drop);
  EXPECT_EQ(run(filtered("", "cpu == 3 || cpu & CPUS{4-5}", {.cpus = 8}), payload, 4), Verdict::pass);
  EXPECT_EQ(run(filtered("", "cpu == 3 || cpu & CPUS{4-5}", {.cpus = 8}), payload, 6), Verdict::drop);
  // An argument comes before the common fields of the same name.
  EXPECT_EQ(run(filtered("cpu=%di:u8", "cpu == 9"), record({9}), 1), Verdict::pass);
}

EventProgram function_event(const std::string& arguments, const std::string& filter) {
  auto spec = spec::parse_function_event("f(" + arguments + ")", {.default_object = "/b/x", .file_check = nullptr});
  EventProgram program = compile(*spec).take();
  const Status set = set_filter(program, filter, {});
  EXPECT_TRUE(set) << filter << ": " << (set ? "" : set.error().text);
  EXPECT_TRUE(verify(program)) << filter;
  return program;
}

TEST(Filter, ArraysOfCharactersAreStrings) {
  const auto payload = [](std::string_view text) {
    std::vector<std::uint8_t> bytes(kEntryHead + 8 + 5);  // the head, the return address, the characters
    bytes[8] = 0x10;
    for (std::size_t i = 0; i < text.size(); ++i) bytes[kEntryHead + 8 + i] = static_cast<std::uint8_t>(text[i]);
    return bytes;
  };
  for (const char* filter :
       {"t == \"Hell\"", "t ~ 'H*'", "t ~ '*ll'", "t ~ '*el*'", "t ~ '?[e]l*'", "t != 'Hel'", "__ip == 0x10"})
    EXPECT_EQ(run(function_event("char[5] t", filter), payload("Hell")), Verdict::pass) << filter;
  for (const char* filter : {"t == \"Hello\"", "t ~ '*o'", "t ~ 'h*'", "t != 'Hell'"})
    EXPECT_EQ(run(function_event("char[5] t", filter), payload("Hell")), Verdict::drop) << filter;
  EXPECT_EQ(run(function_event("char[5] t", "t == 'Hello'"), payload("Hello")), Verdict::pass)
      << "as long as the array";
  EXPECT_EQ(run(function_event("char[5] t", "t == ''"), payload("")), Verdict::pass);
  const auto context = FilterContext{};
  const auto of_numbers = compile_filter(function_event("char[5] t", "0").layout, "t == 5", context);
  ASSERT_FALSE(of_numbers);
  EXPECT_EQ(of_numbers.error().text, "Expecting string field") << "numbers";
  EventProgram program = function_event("char[5] t", "t == 'Hell'");
  program.filter[0].value += std::uint64_t{1} << 48;
  EXPECT_FALSE(verify(program)) << "more characters than the record has";
}

bool glob(const std::string& pattern, const std::string& text) {
  const auto view = [](const std::string& s) {
    return shared::Text{reinterpret_cast<const std::uint8_t*>(s.data()), static_cast<std::uint32_t>(s.size())};
  };
  return shared::text_holds(TextMatch::glob, view(text), view(pattern));
}

TEST(Filter, Globs) {
  EXPECT_TRUE(glob("a*b*c", "aXXbYYc"));
  EXPECT_TRUE(glob("*ab", "aab"));
  EXPECT_FALSE(glob("a*b*c", "aXXbYY"));
  EXPECT_TRUE(glob("?", "x"));
  EXPECT_FALSE(glob("?", ""));
  EXPECT_TRUE(glob("[a-c][!a-c]", "bd"));
  EXPECT_FALSE(glob("[a-c][!a-c]", "bb"));
  EXPECT_TRUE(glob("[]]", "]"));
  EXPECT_TRUE(glob("[a-]", "-"));
  EXPECT_TRUE(glob("[a", "[a")) << "no set: it has no end";
  EXPECT_TRUE(glob("\\*", "*"));
  EXPECT_FALSE(glob("\\*", "x"));
  EXPECT_TRUE(glob("x\\", "x")) << "as in the kernel";
  EXPECT_TRUE(glob("**", ""));
}

TEST(Filter, StringsThatCouldNotBeReadAreLikeNone) {
  const auto payload = record({20, 0, 0, 0});
  for (const char* filter : {"s == \"\"", "s ~ \"*\"", "s ~ \"a*\"", "s ~ \"?*\""})
    EXPECT_EQ(run(filtered("s=+0(%di):string", filter), payload), Verdict::drop) << filter;
  EXPECT_EQ(run(filtered("s=+0(%di):string", "s != \"a\""), payload), Verdict::pass);
  EXPECT_EQ(run(filtered("s=+0(%di):string", "s ~ \"!a*\""), payload), Verdict::pass);
}

// Of a cut string no end is known: a pattern that asks for it does not match.
TEST(Filter, OfACutStringTheBeginningIsCompared) {
  const auto payload = [](const std::string& text, bool is_cut) {
    const std::string stored = is_cut ? text : text + '\0';
    std::vector<std::uint8_t> bytes = record({20, 0, static_cast<std::uint8_t>(stored.size()), 0});
    bytes.insert(bytes.end(), stored.begin(), stored.end());
    return bytes;
  };
  const auto passes = [&](const char* filter, bool is_cut) {
    return run(filtered("s=+0(%di):string", filter), payload("select one", is_cut)) == Verdict::pass;
  };
  for (const char* filter : {"s ~ \"select*\"", "s ~ \"*one*\"", "s ~ \"s?l*\"", "s ~ \"*\"", "s != \"select\""}) {
    EXPECT_TRUE(passes(filter, false)) << filter;
    EXPECT_TRUE(passes(filter, true)) << filter;
  }
  for (const char* filter : {"s == \"select one\"", "s ~ \"*one\"", "s ~ \"s?lect*e\""}) {
    EXPECT_TRUE(passes(filter, false)) << filter;
    EXPECT_FALSE(passes(filter, true)) << filter;
  }
  EXPECT_FALSE(passes("s ~ \"*two*\"", true));
  EXPECT_TRUE(passes("s != \"select one\"", true));
  const auto nothing = record({shared::kCutToNothing, 0, 0, 0});
  EXPECT_EQ(run(filtered("s=+0(%di):string", "s == \"\""), nothing), Verdict::drop);
}

TEST(Filter, AnUnknownNameIsToldWhereItDecides) {
  const EventProgram program = filtered("a=%di:u8", "a == 1 && comm ~ \"x*\"");
  const std::uint8_t name[shared::kNameBytes] = "xy";
  EXPECT_EQ(run(program, record({1})), Verdict::unknown);
  EXPECT_EQ(run(program, record({2})), Verdict::drop);
  EXPECT_EQ(run(program, record({1}), 0, name), Verdict::pass);
}

TEST(Filter, CpuLists) {
  const auto list = [](const char* text) {
    const auto set = read_cpu_list(text, 8);
    std::string found;
    for (unsigned cpu = 0; set && cpu < 64; ++cpu)
      if (set->has(cpu)) found += std::to_string(cpu);
    return set ? found : "refused";
  };
  EXPECT_EQ(list("0-2,5"), "0125");
  EXPECT_EQ(list(" 1 3 "), "13");
  EXPECT_EQ(list("all"), "01234567");
  EXPECT_EQ(list("N"), "7");
  EXPECT_EQ(list("0-N:2/4"), "0145");
  EXPECT_EQ(list(","), "");
  for (const char* bad : {"8", "2-1", "a", "1-", "-1", "0:1/2", "0-3:1", "0-3:2/0", "0-3:3/2", "99999999999"})
    EXPECT_EQ(list(bad), "refused") << bad;
}

TEST(Filter, ZeroTakesItAway) {
  EventProgram program = filtered("a=%di:u8", "a == 1");
  EXPECT_TRUE(set_filter(program, " 0 ", {}));
  EXPECT_TRUE(program.filter.empty());
}

TEST(Filter, AnErrorLeavesTheProgramAsItWas) {
  EventProgram program = filtered("a=%di:u8 s=+0(%di):string", "a == 1");
  const std::string text = program.text;
  EXPECT_FALSE(set_filter(program, "s == \"kept?\" && nope == 1", {}));
  EXPECT_EQ(program.text, text);
  EXPECT_EQ(program.filter.size(), 3u);
}

std::string answer(const std::function<void(std::vector<Test>&)>& change) {
  EventProgram program = filtered("a=%di:u8 s=+0(%di):string", "a == 1 || s == \"x\" || cpu & CPUS{0-1}", {.cpus = 4});
  change(program.filter);
  const Status status = verify(program);
  return status ? "ok" : status.error().text;
}

TEST(Filter, AThreadIsLeftOut) {
  constexpr std::uint32_t kThread = 0x12345678;
  auto by = [](std::uint32_t thread, std::uint8_t a) {
    auto payload = record({a});
    std::memcpy(payload.data() + offsetof(shared::PayloadHead, pid), &thread, sizeof thread);
    return payload;
  };
  for (const char* text : {"0", "a == 1", "!(a == 0 || a > 5) && common_pid != 3"}) {
    EventProgram program = filtered("a=%di:u8", text);
    leave_out_thread(program, kThread);
    EXPECT_TRUE(verify(program)) << text;
    EXPECT_EQ(run(program, by(kThread, 1)), Verdict::drop) << text;
    EXPECT_EQ(run(program, by(kThread + 1, 1)), Verdict::pass) << text;
    EXPECT_EQ(run(program, by(kThread ^ 1u << 31, 1)), Verdict::pass) << text;
    EXPECT_EQ(run(program, by(4, 0)), text[0] == '0' ? Verdict::pass : Verdict::drop) << text;
  }
}

TEST(Filter, TheVerifierRefuses) {
  EXPECT_EQ(answer([](auto&) {}), "ok");
  EXPECT_EQ(answer([](auto& t) { t.pop_back(), t.pop_back(); }), "test 2: the filter has no end");
  EXPECT_EQ(answer([](auto& t) { t[1].target = 1; }), "test 1: a way that does not lead forward");
  EXPECT_EQ(answer([](auto& t) { t[1].target = 5; }), "test 1: a way that does not lead forward");
  EXPECT_EQ(answer([](auto& t) { t[0].op = static_cast<TestOp>(shared::kTestOpCount); }),
            "test 0: an unknown operation");
  EXPECT_EQ(answer([](auto& t) { t[0].size = 3; }), "test 0: a number of an impossible size");
  EXPECT_EQ(answer([](auto& t) { t[0].offset = 21; }), "test 0: a number outside of the record");
  EXPECT_EQ(answer([](auto& t) { t[0].offset = shared::kTestCpu; }), "test 0: a number outside of the record");
  EXPECT_EQ(answer([](auto& t) { t[1].offset = 16; }), "test 1: a text where there is none");
  EXPECT_EQ(answer([](auto& t) { t[1].value += 2; }), "test 1: a text outside of its pool");
  EXPECT_EQ(answer([](auto& t) { t[1].size = shared::kTextMatchCount; }), "test 1: an unknown comparison of texts");
  EXPECT_EQ(answer([](auto& t) { t[2].value |= std::uint64_t{9} << 32; }), "test 2: a set outside of its pool");
}

// In a target the tests may be any bytes: the filter ends, and reads only its input (the sanitizers check).
TEST(Filter, UnverifiedTestsAreHarmless) {
  std::mt19937_64 random(11);
  const std::vector<std::uint8_t> payload(40, 0x11);
  for (int round = 0; round < 100000; ++round) {
    EventProgram program;
    program.text = "text";
    for (auto count = random() % 6; count-- > 0;)
      program.filter.push_back({.op = static_cast<TestOp>(random() % 24),
                                .size = static_cast<std::uint8_t>(random() % 12),
                                .target = static_cast<std::uint16_t>(random() % 8),
                                .offset = random() % 2 == 0 ? static_cast<std::uint32_t>(random() % 48)
                                                            : static_cast<std::uint32_t>(random()),
                                .value = random() % 2 == 0 ? random() % 8 << 32 | random() % 8 : random()});
    static_cast<void>(run(program, payload));
  }
}

}  // namespace
}  // namespace uprobe::program
