// SPDX-License-Identifier: MIT
// Inlined copies of a program that is not optimised (fixtures/copies.c), in two versions of DWARF.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "engine/dwarf/debug_info.h"

namespace uprobe::dwarf {
namespace {

class CopiesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = elf::ElfFile::open(std::string(SUBJECTS "/copies_") + GetParam());
    ASSERT_TRUE(file) << file.error().text;
    file_ = std::make_unique<elf::ElfFile>(file.take());
    auto debug = DebugInfo::open(*file_);
    ASSERT_TRUE(debug) << debug.error().text;
    debug_.emplace(debug.take());
  }
  std::vector<InlinedCopy> copies(const char* name) const {
    auto found = debug_->copies_of(name);
    EXPECT_TRUE(found) << found.error().text;
    return found ? found.take() : std::vector<InlinedCopy>();
  }
  // Whether the address is in the code of a function.
  bool is_in(const char* function, std::uint64_t address) const {
    const auto found = file_->find_functions(function);
    const auto range = file_->range_at(address);
    return !found.empty() && range && range->begin == found.front().address;
  }

  std::unique_ptr<elf::ElfFile> file_;
  std::optional<DebugInfo> debug_;
};
INSTANTIATE_TEST_SUITE_P(Versions, CopiesTest, testing::Values("4", "5"));

TEST_P(CopiesTest, EachCallerHasOne) {
  const auto found = copies("grow");
  ASSERT_EQ(found.size(), 2U);
  for (const InlinedCopy& copy : found) {
    EXPECT_EQ(copy.problem, "");
    EXPECT_FALSE(copy.is_clone);
  }
  EXPECT_EQ(std::ranges::count_if(found, [&](const InlinedCopy& copy) { return is_in("first", copy.address); }), 1);
  EXPECT_EQ(std::ranges::count_if(found, [&](const InlinedCopy& copy) { return is_in("second", copy.address); }), 1);
  EXPECT_NE(found[0].number, found[1].number);
}

TEST_P(CopiesTest, ACopyWithALoopIsNotProven) {
  const auto found = copies("repeat");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].problem, "no known start");
  EXPECT_EQ(found[0].address, 0U);
}

TEST_P(CopiesTest, OtherNamesHaveNone) {
  EXPECT_TRUE(copies("first").empty()) << "it is its own code";
  EXPECT_TRUE(copies("gro").empty());
  EXPECT_TRUE(copies("grow2").empty());
  EXPECT_TRUE(copies("").empty());
}

TEST_P(CopiesTest, VariablesAreThoseOfTheNamedFunction) {
  const auto found = copies("around");
  ASSERT_EQ(found.size(), 1U);
  std::vector<std::string> names;
  for (const NamedVariable& variable : debug_->variables_of_copy(found[0].number)) names.push_back(variable.name);
  EXPECT_NE(std::ranges::find(names, "number"), names.end());
  EXPECT_NE(std::ranges::find(names, "sum"), names.end());
  EXPECT_EQ(std::ranges::find(names, "more"), names.end()) << "the inner copy's";
  EXPECT_EQ(std::ranges::find(names, "two"), names.end()) << "the caller's";
  spec::Argument global{.variable = "kept"};
  EXPECT_TRUE(debug_->find_copys_variable(found[0].number, global));
}

TEST_P(CopiesTest, AnArgumentOfTheFrameIsNotInPlaceYet) {
  const auto found = copies("grow");
  ASSERT_FALSE(found.empty());
  spec::Argument argument{.variable = "number"};
  const Status refused = debug_->find_copys_variable(found[0].number, argument);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "'number' is not in place yet where the copy begins");
}

TEST_P(CopiesTest, ANumberThatIsNoneIsRefused) {
  spec::Argument argument{.variable = "number"};
  EXPECT_FALSE(debug_->find_copys_variable(0, argument)) << "there is no list yet";
  (void)copies("grow");
  EXPECT_FALSE(debug_->find_copys_variable(2, argument));
  EXPECT_TRUE(debug_->variables_of_copy(~0U).empty());
}

TEST_P(CopiesTest, LinesAreThoseOfTheFunctionAlone) {
  (void)copies("around");
  const auto lines = debug_->lines_of_copies();
  ASSERT_FALSE(lines.empty());
  constexpr int kAround = 22, kEnd = 25;
  for (const CodeLine& line : lines) {
    EXPECT_GE(line.line, kAround);
    EXPECT_LE(line.line, kEnd);
  }
}

}  // namespace
}  // namespace uprobe::dwarf
