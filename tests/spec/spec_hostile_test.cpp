// SPDX-License-Identifier: MIT
// Hostile definitions, and files that hold no definitions: no crash, no endless work, an error that names the fault, in both
// dialects.
#include <gtest/gtest.h>

#include <random>

#include "engine/lex/words.h"
#include "engine/program/compile.h"
#include "engine/program/verify.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/listing.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

ParseOptions options(bool strict) {
  return {.strict = strict, .file_check = [](const std::string&) { return FileState{}; }};
}

std::string error(const std::string& line, bool strict) {
  const auto spec = parse_definition(line, options(strict));
  return spec ? "accepted" : spec.error().text;
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

class Hostile : public testing::TestWithParam<bool> {};

TEST_P(Hostile, LineLength) {
  const std::string definition = "p:g/e /b/x:0x10 %di";
  const auto padded = [&](std::size_t bytes) { return definition + std::string(bytes - definition.size(), ' '); };
  EXPECT_EQ(error(padded(4095), GetParam()), "accepted");
  EXPECT_EQ(error(padded(4096), GetParam()), message::kLineTooLong);
  EXPECT_EQ(error(padded(4095) + "\n", GetParam()), "accepted");
  EXPECT_EQ(error(padded(1 << 20), GetParam()), message::kLineTooLong);

  DefinitionSet set(options(GetParam()));
  EXPECT_TRUE(set.write(padded(4094) + "\n"));
  const auto status = set.write("p:g/f /b/x:0x10\n" + padded(4095) + "\n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().err, EINVAL);
  EXPECT_EQ(status.error().code, Code::limit);
  EXPECT_EQ(set.probes().size(), 2u) << "the lines before stay";
}

TEST_P(Hostile, NoLengthOfLineIsTooMuch) {
  const std::string start = "p:g/e /b/x:0x10 ";
  for (const std::string& tail :
       {repeated("+0(", 1000000), repeated("(", 1000000), repeated(")", 1000000), std::string(1 << 20, 'a'),
        repeated("%di ", 1 << 18), repeated(":", 1 << 20), repeated("\\\"", 1 << 19), std::string(1 << 20, '9')})
    EXPECT_EQ(error(start + tail, GetParam()), message::kLineTooLong);
  for (const std::string& word : {std::string(1 << 20, '/'), repeated("::", 1 << 19), std::string(1 << 20, 'p')})
    EXPECT_EQ(error(word, GetParam()), message::kLineTooLong);
}

TEST_P(Hostile, DeepAndLongWordsWithinTheLine) {
  const std::string start = "p:g/e /b/x:0x10 ";
  EXPECT_EQ(error(start + repeated("+0(", 1300), GetParam()), message::kArgumentTooLong);
  EXPECT_EQ(error(start + repeated("+0(", 20) + "%", GetParam()), message::kBraceOpen);
  EXPECT_EQ(error(start + repeated("+0(", 15) + "%di" + repeated(")", 15), GetParam()), message::kTooDeep);
  EXPECT_EQ(error(start + std::string(4000, 'a') + "=%di", GetParam()), message::kArgumentNameTooLong);
  EXPECT_EQ(error(start + "@" + std::string(62, '9'), GetParam()), message::kBadMemory);
  EXPECT_EQ(error(start + "%di:" + std::string(50, '['), GetParam()), message::kArrayOpen);
  EXPECT_EQ(error("p:" + std::string(4000, 'g') + " /b/x:0x10", GetParam()), message::kEventTooLong);
  EXPECT_EQ(error("p:g/e /b/x:" + std::string(4000, '9'), GetParam()), message::kBadOffset);
  EXPECT_EQ(error("p:g/e /b/x:0" + repeated("(", 4000), GetParam()), message::kCounterOpen);
  EXPECT_EQ(error("p:g/e " + repeated(":", 4001) + "/1", GetParam()),
            GetParam() ? message::kNoOffset : message::kNoPath);
}

TEST_P(Hostile, NulBytes) {
  using namespace std::string_literals;
  EXPECT_EQ(error("p:g/e /b/x:0x10\0"s, GetParam()), message::kHasNul);
  EXPECT_EQ(error("\0"s, GetParam()), message::kHasNul);
  EXPECT_EQ(error("p:g/e /b/x\0y:0x10 %di"s, GetParam()), message::kHasNul);
  DefinitionSet set(options(GetParam()));
  EXPECT_FALSE(set.write("p:g/e /b/x:0x10\np:g/f /b/x:\0000x10\n"s));
  EXPECT_EQ(set.probes().size(), 1u);
  EXPECT_FALSE(set.write("# comment \0\n"s));
}

// A comment would swallow what follows it on the next line.
TEST_P(Hostile, SeveralLinesAreNoDefinition) {
  EXPECT_EQ(error("p:g/e /b/x:0x10 # c\np:g/f /b/x:0x20", GetParam()), message::kSeveralLines);
  DefinitionSet set(options(GetParam()));
  EXPECT_FALSE(set.add("p:g/e /b/x:0x10\np:g/f /b/x:0x20"));
  EXPECT_TRUE(set.write("p:g/e /b/x:0x10 # c\np:g/f /b/x:0x20"));
  EXPECT_EQ(set.probes().size(), 2u);
}

TEST_P(Hostile, NumbersAtTheirLimits) {
  const std::string start = "p:g/e /b/x:0x10 ";
  EXPECT_EQ(error("p:g/e /b/x:0xffffffffffffffff", GetParam()), "accepted");
  EXPECT_EQ(error("p:g/e /b/x:0x10000000000000000", GetParam()), message::kBadOffset);
  EXPECT_EQ(error("p:g/e /b/x:0177777777777777777777777", GetParam()), message::kBadOffset);
  EXPECT_EQ(error(start + "\\-9223372036854775808 \\18446744073709551615 @0xffffffffffffffff", GetParam()), "accepted");
  EXPECT_EQ(error(start + "\\-9223372036854775809", GetParam()), message::kBadImmediate);
  EXPECT_EQ(error(start + "\\--1", GetParam()), message::kBadImmediate);
  EXPECT_EQ(error(start + "+0(%di):u8[4294967297]", GetParam()), message::kBadArray);
}

TEST_P(Hostile, ArgumentsUpToTheirLimit) {
  const std::string start = "p:g/e /b/x:0x10 ";
  EXPECT_EQ(error(start + repeated("%di ", 128), GetParam()), "accepted");
  EXPECT_EQ(error(start + repeated("%di ", 129), GetParam()), message::kTooManyArguments);
  EXPECT_EQ(error(start + repeated("+0(%di):x64[64] ", 6), GetParam()), "accepted");
  EXPECT_EQ(error(start + repeated("+0(%di):x64[64] ", 6) + "%di:u8", GetParam()), message::kEventTooBig);
}

// The kernel checks the size of the record before it checks whether type and fetch go together.
TEST_P(Hostile, ABigRecordComesBeforeABadType) {
  const std::string start = "p:g/e /b/x:0x10 " + repeated("+0(%di):x64[64] ", 6);
  EXPECT_EQ(error(start + "%di:string", GetParam()), message::kEventTooBig);
  EXPECT_EQ(error(start + "%di:u8[2]", GetParam()), message::kEventTooBig);
  EXPECT_EQ(error(start + "%zz", GetParam()), message::kBadRegister);
}

// Random changes of good definitions: an accepted one compiles to a program that verifies, and its listing is accepted again.
TEST_P(Hostile, MutatedDefinitions) {
  const std::string seeds[] = {
      "p:g/e /b/x:4096 +0(%di):u8 c=$stack1",
      "p:g/e /b/x:0x10 a=+8(+-4(%di)):u32[4] b=$stack2:x8 c=@+0x10:string d=\\\"te xt\" e=\\-5:b3@1/8 $comm",
      "r:g/e /b/x:ns::f(int)+0x4%return(0x20) $retval:s64 +u0($stack):ustring +0(%si):string[3]",
      "-:g/e /b/x:0x0000000000000010 arg1=%di"};
  const std::string alphabet = "pr:/.+-@$%\\\"()[]=#, \tux8s0123456789abdi_\xa0\xc3\n";
  std::mt19937 random(12345);
  std::size_t accepted = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string line = seeds[random() % std::size(seeds)];
    for (auto changes = random() % 4; changes-- > 0 && !line.empty();) {
      const std::size_t at = random() % line.size();
      if (random() % 3 == 0)
        line.erase(at, 1 + random() % 4);
      else if (random() % 2 == 0)
        line.insert(at, 1, alphabet[random() % alphabet.size()]);
      else
        line[at] = alphabet[random() % alphabet.size()];
    }
    const auto spec = parse_definition(line, options(GetParam()));
    if (!spec) {
      EXPECT_FALSE(spec.error().text.empty()) << line;
      EXPECT_LE(spec.error().column, static_cast<int>(spec.error().where.size()) + 1) << line;
      continue;
    }
    ++accepted;
    if (!is_identifier(spec->event)) continue;  // automatic names are not checked: "p_no+good_0x10"
    const std::string once = listing(*spec);
    const auto again = parse_definition(once, options(GetParam()));
    ASSERT_TRUE(again) << line << " -> " << once << ": " << again.error().text;
    EXPECT_EQ(listing(*again), once);
    if (const auto program = program::compile(*spec)) {
      const auto verified = program::verify(*program);
      EXPECT_TRUE(verified) << line << ": " << verified.error().text;
    }
  }
  EXPECT_GT(accepted, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Dialects, Hostile, testing::Bool(),
                         [](const auto& dialect) { return dialect.param ? "Strict" : "Default"; });

}  // namespace
}  // namespace uprobe::spec
