// SPDX-License-Identifier: MIT
// Sets of definitions: several probes of one event, deletions, files with two names, and the state after an error.
#include "engine/spec/definition_set.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

// "/link" and "/file" are one file, all others are their own.
FileState two_names(const std::string& path) {
  const std::string real = path == "/link" ? "/file" : path;
  return {.device = 1, .inode = std::hash<std::string>{}(real) | 1};
}

DefinitionSet make_set(bool strict = false) { return DefinitionSet({.strict = strict, .file_check = two_names}); }

// "errno column: text", or "ok".
std::string answer(const Status& status) {
  if (status) return "ok";
  const Error& error = status.error();
  return std::to_string(error.err) + " " + std::to_string(error.column) + ": " + error.text;
}

std::string failure(int err, int column, std::string_view text) {
  return std::to_string(err) + " " + std::to_string(column) + ": " + std::string(text);
}

TEST(DefinitionSet, BlankLinesAndCommentsDoNothing) {
  DefinitionSet set = make_set();
  for (const char* line : {"", "\n", "  \t", "# p:g/e /file:f", "\r"}) EXPECT_EQ(answer(set.add(line)), "ok");
  EXPECT_TRUE(set.probes().empty());
  EXPECT_EQ(set.listing(), "");
}

TEST(DefinitionSet, ClearingLeavesNothingAfter) {
  DefinitionSet set = make_set();
  ASSERT_TRUE(set.write("p:g/e /file:f %di\nr:g/h /file:f"));
  set.clear();
  EXPECT_EQ(set.size(), 0u);
  EXPECT_EQ(answer(set.add("-:g/e")), failure(ENOENT, 2, message::kNothingToDelete));
  EXPECT_EQ(answer(set.add("r:g/e /file:f(4)")), "ok") << "neither its kind nor its counter is remembered";
}

// The filter of an event, and its place in its line; "-": it has none.
std::string filter_of(const DefinitionSet& set) {
  const EventControls& controls = set.controls_of(set.probes().back());
  return controls.filter ? std::to_string(controls.filter_at) + ": " + *controls.filter : "-";
}

TEST(DefinitionSet, ConditionsAreTheEventsFilters) {
  const struct {
    const char *line, *filter;
  } cases[] = {{"p:g/e /file:f %di", "-"},
               {"p:g/e /file:f %di if arg1 > 3", "21: arg1 > 3"},
               {" \tp:g/e /file:f  %di \t if  \targ1 > 3 \t# if", "28: arg1 > 3"},
               {"p:g/e /file:f x=\\\"a\" if x == \"#  'b\" || x == '#'#c", "24: x == \"#  'b\" || x == '#'"},
               {"p:g/e /file:f if=%di", "-"},
               {"p:g/e /file:f if=%di if if == 1", "24: if == 1"},
               {"p:g/e /file:f # if x", "-"},
               {"/file:f(x64 p) if p > 1", "18: p > 1"}};
  for (const auto& one : cases) {
    DefinitionSet set = make_set();
    ASSERT_EQ(answer(set.add(one.line)), "ok") << one.line;
    EXPECT_EQ(filter_of(set), one.filter) << one.line;
  }
  DefinitionSet set = make_set();
  EXPECT_EQ(answer(set.add("p:g/e /file:f %di if # none")), failure(EINVAL, 20, message::kNoCondition));
  EXPECT_EQ(answer(set.add("if p:g/e /file:f")), failure(EINVAL, 2, message::kNoSymbol));
  EXPECT_EQ(answer(set.add("p:g/e if x")), failure(EINVAL, 5, message::kNoPlace));
  DefinitionSet strict = make_set(true);
  EXPECT_EQ(answer(strict.add("p:g/e /file:1 %di if arg1 > 3")), failure(EINVAL, 18, message::kNoBtf));
}

TEST(DefinitionSet, AConditionIsOfItsOwnLine) {
  DefinitionSet set = make_set();
  ASSERT_TRUE(set.write("p:g/a /file:f %di if arg1 > 3\np:g/b /file:g %di\np:g/a /file:h %di", ""));
  EXPECT_EQ(filter_of(set), "21: arg1 > 3") << "another probe of the event";
  EXPECT_EQ(set.controls_of(set.probes()[1]).filter, std::nullopt);
  ASSERT_TRUE(set.write("p:g/a /file:i %di if arg1 == 4", ""));
  EXPECT_EQ(filter_of(set), "21: arg1 == 4") << "the last one counts";
  set.control({.filter = "arg1 == 5"});
  const EventControls& controls = set.controls_of(set.probes().back());
  EXPECT_EQ(of_filter(controls, {.where = "arg1 == 5", .column = 2}).column, 2) << "it stands in no line";
}

TEST(DefinitionSet, SymbolsAreCompared) {
  DefinitionSet set = make_set();
  EXPECT_EQ(answer(set.add("p:g/e /file:f %di")), "ok");
  EXPECT_EQ(answer(set.add("p:g/e /link:f %di")), failure(EEXIST, 0, message::kSameProbe));
  EXPECT_EQ(answer(set.add("p:g/e /link:f+4 %di")), "ok");
  EXPECT_EQ(answer(set.add("p:g/e /other:f %di")), "ok");
  EXPECT_EQ(answer(set.add("p:g/e /file:f %si")), "ok");
  ASSERT_EQ(set.events().size(), 1u);
  EXPECT_EQ(set.events()[0].probes, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(DefinitionSet, ProbesOfAnEventAgree) {
  DefinitionSet set = make_set();
  ASSERT_EQ(answer(set.add("p:g/e /file:f a=%di b=%si:u8 c=%dx")), "ok");
  EXPECT_EQ(answer(set.add("r:g/e /file:g a=%di b=%si:u8 c=%dx")), failure(EEXIST, 0, message::kDifferentKind));
  EXPECT_EQ(answer(set.add("p:g/e /file:g a=%di b=%si c=%dx")), failure(EEXIST, 20, message::kDifferentArguments));
  EXPECT_EQ(answer(set.add("p:g/e /file:g a=%di")), failure(EEXIST, 20, message::kDifferentArguments))
      << "one past the text, as the kernel places it";
  EXPECT_EQ(answer(set.add("p:g/e /file:g a=%di b=%si:u8 c=%dx d=%cx")),
            failure(EEXIST, 35, message::kDifferentArguments));
  EXPECT_EQ(answer(set.add("p:g/e /file:g a=$arg2 b=%si:b4@4/8 c=%cx:x64")), "ok");
}

TEST(DefinitionSet, AnErrorLeavesTheSetAsItWas) {
  DefinitionSet set = make_set();
  ASSERT_TRUE(set.add("p:g/e /file:f %di"));
  const std::string before = set.listing();
  for (const char* bad : {"p:g/e /file:f %zz", "p:g/e /file:g", "-:g/x", "-g/e", "p:g/x /file:f(2)", "junk"})
    EXPECT_FALSE(set.add(bad)) << bad;
  EXPECT_EQ(set.listing(), before);
}

TEST(DefinitionSet, OnePlaceHasOneReferenceCounter) {
  DefinitionSet set = make_set();
  ASSERT_TRUE(set.add("p:g/a /file:0x10(0x20)"));
  EXPECT_EQ(answer(set.add("p:g/b /link:16")), failure(EINVAL, 6, message::kCounterConflict));
  EXPECT_EQ(answer(set.add("p:g/b /link:16(0x21)")), failure(EINVAL, 6, message::kCounterConflict));
  EXPECT_EQ(answer(set.add("p:g/b /link:16(32)")), "ok");
  EXPECT_EQ(answer(set.add("-:g/")), "ok");
  EXPECT_EQ(answer(set.add("p:g/b /link:16")), "ok");
}

TEST(DefinitionSet, Deletions) {
  DefinitionSet set = make_set();
  const auto fill = [&] {
    set = make_set();
    ASSERT_TRUE(set.write("p:g/a /file:0x10 %di\np:g/b /file:0x20\np:h/a /file:f+4 %si\nr:g/a2 /file:0x10"));
  };
  const auto left = [&] { return set.probes().size(); };
  fill();
  EXPECT_EQ(answer(set.add("-:g/a")), "ok");
  EXPECT_EQ(left(), 3u);
  fill();
  EXPECT_EQ(answer(set.add("-:a")), "ok");
  EXPECT_EQ(left(), 2u) << "that name in every group";
  fill();
  EXPECT_EQ(answer(set.add("-:g/ # all")), "ok");
  EXPECT_EQ(set.listing(), "p:h/a /file:f+0x4 arg1=%si\n");
  fill();
  EXPECT_EQ(answer(set.add("-:a /file:f+0x4 arg1=%si")), "ok");
  EXPECT_EQ(left(), 3u);
  EXPECT_EQ(answer(set.add("  -:g/b")), "ok");
  EXPECT_EQ(left(), 2u);
  EXPECT_EQ(answer(set.add("-:g/a /file:0x10")), failure(ENOENT, 2, message::kNothingToDelete));
  EXPECT_EQ(answer(set.add("-:g/a /file:0x0000000000000010 arg1=%si")), failure(ENOENT, 2, message::kNothingToDelete));
  EXPECT_EQ(answer(set.add("-:")), failure(EINVAL, 0, message::kBadDeletion));
  EXPECT_EQ(answer(set.add("-a")), failure(EINVAL, 0, message::kBadDeletion));
  EXPECT_EQ(answer(set.add("- :g/a")), failure(EINVAL, 0, message::kBadDeletion));
}

// Measured: the kernel looks for the '-' before it skips blanks.
TEST(DefinitionSet, StrictDeletionsStartTheLine) {
  DefinitionSet set = make_set(true);
  ASSERT_TRUE(set.add("p:g/e /file:0x10"));
  EXPECT_FALSE(set.add("  -:g/e"));
  EXPECT_EQ(set.probes().size(), 1u);
  EXPECT_TRUE(set.add("-:g/e"));
  EXPECT_TRUE(set.probes().empty());
}

TEST(DefinitionSet, EventsKeepTheirOrderAndProbes) {
  DefinitionSet set = make_set();
  ASSERT_TRUE(set.write("p:g/a /file:f\np:g/b /file:f\np:g/a /file:g\np:g/b /file:g\n-:g/a /file:f\n"));
  const auto events = set.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].event, "b");
  EXPECT_EQ(events[0].probes, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(events[1].event, "a");
  EXPECT_EQ(events[1].probes, (std::vector<std::size_t>{1}));
}

TEST(DefinitionSet, TheDefaultObjectChangesOnTheWay) {
  DefinitionSet set = make_set();
  EXPECT_TRUE(set.add("p:a f", "/file"));
  EXPECT_TRUE(set.add("p:b f", "/other"));
  EXPECT_TRUE(set.add("p:c g"));
  EXPECT_EQ(set.listing(), "p:uprobes/a /file:f\np:uprobes/b /other:f\np:uprobes/c /other:g\n");
}

TEST(DefinitionSet, ManyDefinitionsAreNoWork) {
  DefinitionSet set = make_set();
  for (int i = 0; i < 100000; ++i) ASSERT_TRUE(set.add("p:g/e" + std::to_string(i) + " /file:" + std::to_string(i)));
  EXPECT_EQ(set.probes().size(), 100000u);
  EXPECT_FALSE(set.add("p:g/e99999 /link:99999"));
  EXPECT_TRUE(set.add("-:g/"));
  EXPECT_TRUE(set.probes().empty());
}

}  // namespace
}  // namespace uprobe::spec
