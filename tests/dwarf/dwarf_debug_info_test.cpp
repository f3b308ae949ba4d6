// SPDX-License-Identifier: MIT
// Lines, functions and variables of a program that is not optimised (fixtures/subject.c), in two versions of DWARF.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "engine/dwarf/debug_info.h"

namespace uprobe::dwarf {
namespace {

constexpr int kWeigh = 12, kFirstLine = 13, kSumLine = 15, kTwiceLine = 20, kBlankLine = 10;

class DebugInfoTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = elf::ElfFile::open(std::string(SUBJECTS "/subject_") + GetParam());
    ASSERT_TRUE(file) << file.error().text;
    file_ = std::make_unique<elf::ElfFile>(file.take());
    auto debug = DebugInfo::open(*file_);
    ASSERT_TRUE(debug) << debug.error().text;
    debug_.emplace(debug.take());
  }
  std::uint64_t entry(const char* name) const {
    const auto found = file_->find_functions(name);
    return found.empty() ? 0 : found.front().address;
  }
  // After the arguments were stored.
  std::uint64_t inside(const char* name) const { return debug_->after_prologue(entry(name)); }
  Result<spec::Argument> fetch(const char* variable) const {
    spec::Argument argument{.variable = variable};
    if (const Status found = debug_->find_variable(inside("weigh"), argument); !found) return found.error();
    return argument;
  }
  std::string refusal(const char* variable) const {
    const auto argument = fetch(variable);
    return argument ? "found" : argument.error().text;
  }

  std::unique_ptr<elf::ElfFile> file_;
  std::optional<DebugInfo> debug_;
};
INSTANTIATE_TEST_SUITE_P(Versions, DebugInfoTest, testing::Values("4", "5"));

TEST(DebugInfo, AFileWithoutAnyIsRefusedWithAdvice) {
  const auto file = elf::ElfFile::open(SUBJECTS "/subject_bare");
  ASSERT_TRUE(file);
  const auto debug = DebugInfo::open(*file);
  ASSERT_FALSE(debug);
  EXPECT_EQ(debug.error().code, Code::refused);
  EXPECT_NE(debug.error().text.find("has no debug information"), std::string::npos);
  EXPECT_NE(debug.error().help.find("-g"), std::string::npos);
}

TEST_P(DebugInfoTest, ALineHasOnePlaceAfterThePrologue) {
  const auto line = debug_->find_line("subject.c", kFirstLine);
  ASSERT_TRUE(line) << line.error().text;
  EXPECT_EQ(*line, std::vector{inside("weigh")});
  const auto later = debug_->find_line("fixtures/subject.c", kSumLine, "weigh");
  ASSERT_TRUE(later) << later.error().text;
  ASSERT_EQ(later->size(), 1U);
  EXPECT_GT(later->front(), line->front());
}

TEST_P(DebugInfoTest, AnInlinedLineHasAPlaceInEachCaller) {
  const auto both = debug_->find_line("subject.c", kTwiceLine);
  ASSERT_TRUE(both) << both.error().text;
  EXPECT_EQ(both->size(), 2U);
}

TEST_P(DebugInfoTest, ALineWithoutCodeNamesTheNext) {
  const auto none = debug_->find_line("subject.c", kBlankLine);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::not_found);
  EXPECT_EQ(none.error().help, "the next line with code is " + std::to_string(kWeigh));
  const auto elsewhere = debug_->find_line("other.c", 1);
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().text, "no source 'other.c' in the debug information");
}

TEST_P(DebugInfoTest, AFunctionIsDeclaredSomewhere) {
  const auto declared = debug_->declaration_of("weigh");
  ASSERT_TRUE(declared) << declared.error().text;
  EXPECT_EQ(declared->line, kWeigh);
  EXPECT_TRUE(declared->file.ends_with("fixtures/subject.c")) << declared->file;
  const auto missing = debug_->declaration_of("way");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
}

TEST_P(DebugInfoTest, ThePrologueIsPassedAtTheEntryOnly) {
  EXPECT_GT(inside("weigh"), entry("weigh"));
  EXPECT_EQ(debug_->after_prologue(entry("weigh") + 1), entry("weigh") + 1);
}

TEST_P(DebugInfoTest, ValuesHaveTheirTypes) {
  const auto scale = fetch("scale");
  ASSERT_TRUE(scale) << scale.error().text;
  EXPECT_EQ(scale->kind, spec::Kind::signed_decimal);
  EXPECT_EQ(scale->size, 4);
  EXPECT_EQ(scale->sink, spec::Sink::memory);
  const auto share = fetch("share");
  ASSERT_TRUE(share) << share.error().text;
  EXPECT_EQ(share->kind, spec::Kind::floating);
  EXPECT_EQ(share->size, 8);
  const auto name = fetch("item->name");
  ASSERT_TRUE(name) << name.error().text;
  EXPECT_EQ(name->kind, spec::Kind::string);
  const auto total = fetch("item->total[2]");
  ASSERT_TRUE(total) << total.error().text;
  EXPECT_EQ(total->count, 0U);
  EXPECT_EQ(total->size, 8);
  const auto whole = fetch("item->total");
  ASSERT_TRUE(whole) << whole.error().text;
  EXPECT_EQ(whole->count, 4U);
  EXPECT_TRUE(fetch("item->next->next->count"));
  EXPECT_TRUE(fetch("tare"));
}

TEST_P(DebugInfoTest, ABitfieldIsItsBits) {
  const auto kind = fetch("item->kind");
  ASSERT_TRUE(kind) << kind.error().text;
  EXPECT_TRUE(kind->is_bitfield);
  EXPECT_EQ(kind->bit_width, 3);
  EXPECT_EQ(kind->bit_offset, 0);
}

TEST_P(DebugInfoTest, WhatCannotBeFetchedSaysWhy) {
  EXPECT_NE(refusal("nothing").find("nothing"), std::string::npos) << refusal("nothing");
  EXPECT_NE(refusal("item->nothing"), "found");
  EXPECT_NE(refusal("scale->count"), "found");
  EXPECT_NE(refusal("*item"), "found") << "a whole struct";
  EXPECT_NE(refusal("item->total[4]"), "found") << "one after the last";
  EXPECT_NE(refusal("number"), "found") << "another function's";
}

TEST_P(DebugInfoTest, ListsOfAFunction) {
  const auto lines = debug_->lines_of(entry("weigh"));
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front().line, kWeigh);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const CodeLine& one) { return one.line == kSumLine; }));
  std::vector<std::string> parameters;
  for (const NamedVariable& variable : debug_->variables_at(inside("weigh")))
    if (variable.is_parameter) parameters.push_back(variable.type + " " + variable.name);
  EXPECT_EQ(parameters, (std::vector<std::string>{"struct item * item", "int scale", "double share"}));
}

}  // namespace
}  // namespace uprobe::dwarf
