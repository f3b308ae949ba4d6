// SPDX-License-Identifier: MIT
// Answers of the confined reader of debug information: whole and usable, or refused.
#include <gtest/gtest.h>

#include <climits>

#include "engine/resolve/debug_protocol.h"

namespace uprobe {
namespace {

const std::string kPath = "/a/file";

std::string begun(Answer answer) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(answer));
  return bytes;
}

std::string answer_with(const spec::Argument& argument) {
  std::string bytes = begun(Answer::value);
  put(bytes, argument);
  return bytes;
}

spec::Argument in_register() {
  return {.steps = {{.kind = spec::StepKind::reg, .reg = shared::Reg::di}}, .kind = spec::Kind::hex, .size = 4};
}

TEST(DebugProtocol, AnArgumentComesThrough) {
  spec::Argument argument = in_register();
  argument.is_bitfield = true, argument.bit_width = 3, argument.bit_offset = 29, argument.count = 0;
  const auto made = decode_argument(answer_with(argument), kPath);
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(made->size, 4);
  EXPECT_EQ(made->bit_offset, 29);
  ASSERT_EQ(made->steps.size(), 1U);
  EXPECT_EQ(made->steps[0].reg, shared::Reg::di);
}

TEST(DebugProtocol, TheHalvesOfAWideNumberComeThrough) {
  spec::Argument argument = in_register();
  argument.size = 8, argument.count = 2, argument.is_wide = true;
  argument.upper = spec::UpperHalf{
      .steps = {{.kind = spec::StepKind::reg, .reg = shared::Reg::si}}, .is_memory = true, .memory_offset = 24};
  const auto made = decode_argument(answer_with(argument), kPath);
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_TRUE(made->is_wide);
  ASSERT_TRUE(made->upper);
  EXPECT_EQ(made->upper->steps.at(0).reg, shared::Reg::si);
  EXPECT_TRUE(made->upper->is_memory);
  EXPECT_EQ(made->upper->memory_offset, 24u);
  argument.upper.reset();
  EXPECT_FALSE(decode_argument(answer_with(argument), kPath)->upper);
}

TEST(DebugProtocol, NumbersThatNoFetchHasAreRefused) {
  const auto is_refused = [](const auto& spoil) {
    spec::Argument argument = in_register();
    spoil(argument);
    const auto made = decode_argument(answer_with(argument), kPath);
    return !made && made.error().code == Code::damaged && made.error().text.starts_with(kPath);
  };
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.size = 3; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.bit_width = 30, a.bit_offset = 3; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.count = 65; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.sink = spec::Sink::comm; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.steps[0].kind = spec::StepKind::object; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.steps[0].reg = static_cast<shared::Reg>(99); }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.steps.push_back({spec::StepKind::shift_right, {}, 64}); }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.steps.resize(16); }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.size = 8, a.count = 3, a.is_wide = true; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.count = 2, a.is_wide = true; }));
  EXPECT_TRUE(
      is_refused([](spec::Argument& a) { a.size = 8, a.count = 2, a.is_wide = true, a.kind = spec::Kind::symbol; }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) { a.upper.emplace(); }));
  EXPECT_TRUE(is_refused([](spec::Argument& a) {
    a.size = 8, a.count = 2, a.upper.emplace().steps = {{.kind = spec::StepKind::object}};
  }));
}

TEST(DebugProtocol, AnAnswerIsTakenWhole) {
  const std::string answer = answer_with(in_register());
  for (std::size_t size = 0; size < answer.size(); ++size) EXPECT_FALSE(decode_argument(answer.substr(0, size), kPath));
  EXPECT_FALSE(decode_argument(answer + "x", kPath));
  std::string endless = begun(Answer::value);
  put(endless, ~std::uint32_t{0});
  EXPECT_FALSE(decode_addresses(endless, kPath));
  EXPECT_FALSE(decode_variables(endless, kPath));
}

// The tool does not trust an answer about the definition: a caret that far to the right would take all memory.
TEST(DebugProtocol, AnErrorNamesNoPlaceButAColumn) {
  for (const int column : {INT_MAX, INT_MIN, -2}) {
    std::string answer = begun(Answer::error);
    put(answer,
        Error{.code = Code::refused, .text = "no", .where = "p:x", .column = column, .help = "h", .definition = 7});
    const auto made = decode_lines(answer, kPath);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().text, "no");
    EXPECT_EQ(made.error().help, "h");
    EXPECT_TRUE(made.error().where.empty());
    EXPECT_EQ(made.error().definition, -1);
    EXPECT_GE(made.error().column, -1);
    EXPECT_LE(made.error().column, 1 << 16);
  }
}

}  // namespace
}  // namespace uprobe
