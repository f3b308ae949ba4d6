// SPDX-License-Identifier: MIT
// Every rule of plan_window on a small function of its own (fixtures/windows.S), in a library, in a program at fixed
// addresses and in a library with packed relocations.
#include <gtest/gtest.h>

#include <string>

#include "engine/elf/rseq_sections.h"
#include "engine/flow/flow_cache.h"
#include "engine/plan/resolve.h"
#include "engine/plan/window.h"
#include "engine/spec/parse.h"

namespace uprobe::plan {
namespace {

class Subject {
 public:
  explicit Subject(const std::string& path) : file_(open(path)), flow_(file_) {}

  std::uint64_t address(const std::string& name) const {
    const auto found = file_.find_functions(name);
    EXPECT_EQ(found.size(), 1U) << name;
    return found.empty() ? 0 : found[0].address;
  }
  Window at(const std::string& name, std::uint64_t offset = 0, const WindowClaims& claims = {}) const {
    return plan_window(flow_, address(name) + offset, claims);
  }
  const FileFlow& flow() const { return flow_; }
  const elf::ElfFile& file() const { return file_; }

 private:
  static elf::ElfFile open(const std::string& path) {
    auto file = elf::ElfFile::open(path);
    if (!file) ADD_FAILURE() << path << " " << file.error().text;
    return file.take();
  }
  elf::ElfFile file_;
  FileFlow flow_;
};

class WindowPlan : public testing::TestWithParam<const char*> {
 protected:
  void expect(WindowKind kind, unsigned length, unsigned code, const Window& window) {
    EXPECT_EQ(window.kind, kind) << window.text();
    EXPECT_EQ(window.length, length);
    EXPECT_EQ(window.code_length, code);
    EXPECT_EQ(window.text(), "");
  }
  void expect_none(WindowReason reason, const Window& window) {
    EXPECT_EQ(window.kind, WindowKind::breakpoint);
    EXPECT_EQ(window.reason, reason) << window.text();
    EXPECT_EQ(window.length, 0);
    EXPECT_NE(window.text(), "");
  }
  void expect_trouble(FlowTrouble trouble, const Window& window) {
    expect_none(WindowReason::flow_unknown, window);
    EXPECT_EQ(window.trouble, trouble) << window.text();
  }

  const Subject subject_{std::string(WINDOW_SUBJECTS) + "/windows_" + GetParam()};
};

TEST_P(WindowPlan, OfOneInstruction) {
  const Window window = subject_.at("one");
  expect(WindowKind::one, 5, 5, window);
  EXPECT_EQ(window.instructions, 1);
}

// A page that is written may be lost alone.
TEST_P(WindowPlan, InOnePage) {
  ASSERT_EQ(subject_.address("at_page_end") % 4096, 4092U);
  expect_none(WindowReason::page_end, subject_.at("at_page_end"));
}

TEST_P(WindowPlan, OfSeveral) {
  const Window window = subject_.at("several");
  expect(WindowKind::several, 6, 6, window);
  EXPECT_EQ(window.instructions, 3);
  EXPECT_EQ(window.offsets[1], 1);
  EXPECT_EQ(window.offsets[2], 4);
}

TEST_P(WindowPlan, NotOverTheHeadOfALoop) {
  for (const char* at : {"1", "2", "3", "4"}) {
    SCOPED_TRACE(at);
    const Window window = subject_.at(std::string("loop_to_") + at);
    EXPECT_NE(window.kind, WindowKind::several);
    EXPECT_TRUE(window.kind == WindowKind::short_jump || window.reason == WindowReason::branch_enters);
    EXPECT_LE(window.length, at[0] - '0');
  }
  EXPECT_EQ(subject_.at("loop_to_1").kind, WindowKind::breakpoint);
  expect(WindowKind::several, 5, 5, subject_.at("loop_to_5"));
}

// A window may begin at the head of a loop: control that comes round hits the probe again.
TEST_P(WindowPlan, AtTheHeadOfALoop) { expect(WindowKind::several, 5, 5, subject_.at("loop_to_4", 4)); }

TEST_P(WindowPlan, IntoPaddingAfterTheEnd) {
  expect(WindowKind::padded, 5, 1, subject_.at("lone_return"));
  expect(WindowKind::padded, 5, 2, subject_.at("return_of_four", 2));
  expect(WindowKind::padded, 5, 2, subject_.at("stops", 2));
}

TEST_P(WindowPlan, NotIntoTheNextFunction) {
  const Window window = subject_.at("crowded_end");
  expect_none(WindowReason::branch_enters, window);
}

TEST_P(WindowPlan, NotAfterAnInstructionThatFaultsByDesign) {
  const std::uint64_t address = subject_.address("faults_by_design");
  const Window window = subject_.at("faults_by_design");
  EXPECT_LE(window.length, 2);
  EXPECT_TRUE(window.padding < address || window.padding >= address + 12) << window.padding - address;
}

TEST_P(WindowPlan, NotIntoPaddingThatSomethingNames) {
  expect_none(WindowReason::branch_enters, subject_.at("before_named_padding"));
}

TEST_P(WindowPlan, WithACallOnlyAtItsEnd) {
  expect(WindowKind::several, 6, 6, subject_.at("get_pc"));
  EXPECT_EQ(subject_.at("call_first").kind, WindowKind::short_jump);
}

TEST_P(WindowPlan, NotOverALockThatIsJumpedOver) {
  const std::uint64_t lock = 9 + 2;
  expect_none(WindowReason::branch_enters, subject_.at("jumps_over_lock", lock));
  EXPECT_TRUE(subject_.flow().function_at(subject_.address("jumps_over_lock"))->is_known());
}

TEST_P(WindowPlan, NotWhereAnIndirectJumpIsComputed) {
  expect_trouble(FlowTrouble::jump_table, subject_.at("computed"));
  expect(WindowKind::one, 7, 7, subject_.at("computed", 1));  // of one instruction: no control flow enters its middle
}

TEST_P(WindowPlan, WhereAnIndirectJumpIsATailCall) {
  expect(WindowKind::several, 9, 9, subject_.at("tail_call"));
  expect(WindowKind::several, 5, 5, subject_.at("tail_call_by_memory"));
}

TEST_P(WindowPlan, NotInTheOtherPartOfAnUnresolvedFunction) {
  expect_trouble(FlowTrouble::jump_table, subject_.at("hot"));
  expect_trouble(FlowTrouble::other_part, subject_.at("cold", 3));
}

TEST_P(WindowPlan, NotOverWhatDataPointTo) {
  const Window window = subject_.at("named_by_data");
  EXPECT_NE(window.kind, WindowKind::several);
  EXPECT_LE(window.length, 2);
  EXPECT_EQ(subject_.at("named_by_data", 1).kind, WindowKind::breakpoint);
  expect(WindowKind::several, 5, 5, subject_.at("named_by_data", 2));
}

TEST_P(WindowPlan, OfAShortJump) {
  const Window window = subject_.at("short_jump");
  expect(WindowKind::short_jump, 2, 2, window);
  const std::int64_t distance = static_cast<std::int64_t>(window.padding - (window.address + kShortJumpBytes));
  EXPECT_GE(distance, INT8_MIN);
  EXPECT_LE(distance, INT8_MAX);
  for (unsigned i = 0; i < kJumpBytes; ++i) EXPECT_FALSE(subject_.flow().is_arrival(window.padding + i));
}

TEST_P(WindowPlan, OfShortJumpsNeverSharesPadding) {
  WindowClaims claims;
  std::set<std::uint64_t> used;
  for (int round = 0; round < 200; ++round) {
    const Window window = plan_window(subject_.flow(), subject_.address("short_jump"), claims);
    if (window.kind != WindowKind::short_jump) break;
    for (unsigned i = 0; i < kJumpBytes; ++i) EXPECT_TRUE(used.insert(window.padding + i).second);
    Window only_padding = window;
    only_padding.address = 1;  // the place itself stays free for the next round
    claims.take(only_padding);
  }
  EXPECT_GE(used.size(), 2 * kJumpBytes);
  expect_none(WindowReason::branch_enters, plan_window(subject_.flow(), subject_.address("short_jump"), claims));
}

TEST_P(WindowPlan, FromInFrontOfThePlace) {
  for (const char* name : {"approached", "approached_by_four"}) {
    const Window window = subject_.at(name, 4);
    expect(WindowKind::prefix_window, 1, 1, window);
    EXPECT_EQ(window.prefix_window, 4);
    EXPECT_EQ(window.begin(), subject_.address(name));
  }
}

TEST_P(WindowPlan, NotFromInFrontWhereAnythingElseLeadsThere) {
  for (const char* name : {"entered_itself", "entered_before", "after_a_call", "after_a_system_call"})
    expect_none(WindowReason::branch_enters, subject_.at(name, 4));
  expect_none(WindowReason::branch_enters, subject_.at("first_of_all"));
}

TEST_P(WindowPlan, NotFromInFrontOverWhatCannotBeDisplaced) {
  for (const char* name : {"after_what_stays", "after_popf"})
    expect_none(WindowReason::branch_enters, subject_.at(name, 4));
  EXPECT_NE(subject_.at("approached_system_call", 3).kind, WindowKind::prefix_window);
}

// The place would then not be in the jump.
TEST_P(WindowPlan, NotFromInFrontByALongInstruction) {
  expect_none(WindowReason::branch_enters, subject_.at("approached_from_afar", 5));
}

TEST_P(WindowPlan, NotFromInFrontInAnUnknownFunction) {
  EXPECT_EQ(subject_.at("approached_in_unknown", 5).kind, WindowKind::breakpoint);
}

TEST_P(WindowPlan, FromInFrontInOnePage) {
  ASSERT_EQ(subject_.address("approached_at_page_end") % 4096, 4093U);
  expect_none(WindowReason::branch_enters, subject_.at("approached_at_page_end", 4));
}

TEST_P(WindowPlan, FromInFrontLeavesTheOthersTheirPlaces) {
  for (const char* name : {"approached", "approached_by_four"}) {
    const std::uint64_t begin = subject_.address(name);
    WindowClaims claims;
    claims.add_place(begin);
    expect_none(WindowReason::branch_enters, subject_.at(name, 4, claims));
    claims = WindowClaims();
    claims.take(subject_.at(name, 4));
    EXPECT_EQ(subject_.at(name, 0, claims).reason, WindowReason::covered);
    EXPECT_TRUE(claims.is_free(begin + 5, begin + 6));
  }
  WindowClaims claims;
  claims.take(Window{.kind = WindowKind::one, .address = subject_.address("approached_by_four") - 4, .length = 5});
  EXPECT_EQ(subject_.at("approached_by_four", 4, claims).kind, WindowKind::breakpoint);
}

TEST_P(WindowPlan, LeavesTheOthersTheirPlaces) {
  WindowClaims claims;
  claims.add_place(subject_.address("several") + 1);
  expect_none(WindowReason::probe_inside, subject_.at("several", 0, claims));
  claims = WindowClaims();
  claims.take(subject_.at("several"));
  const Window covered = subject_.at("several", 1, claims);
  EXPECT_EQ(covered.kind, WindowKind::refused);
  EXPECT_EQ(covered.reason, WindowReason::covered);
}

TEST_P(WindowPlan, NeverHoldsASystemCallBesideOthers) {
  EXPECT_LE(subject_.at("makes_system_call").length, 2);
  EXPECT_LE(subject_.at("makes_system_call", 1).length, 1);
  EXPECT_LE(subject_.at("system_call_first").length, 2);
}

TEST_P(WindowPlan, HoldsOnlyWhatCanBeDisplaced) {
  expect_none(WindowReason::neighbour, subject_.at("cannot_be_displaced", 1));
  const Window window = subject_.at("cannot_be_displaced", 2);
  EXPECT_EQ(window.kind, WindowKind::refused);
  EXPECT_EQ(window.reason, WindowReason::not_displaceable);
}

TEST_P(WindowPlan, NotWhereCodeIsNotUnderstood) {
  expect_trouble(FlowTrouble::unreached, subject_.at("unreached"));
  expect_trouble(FlowTrouble::undecodable, subject_.at("undecodable"));
  expect_trouble(FlowTrouble::no_unwind, subject_.at("without_unwind", 1));
  expect(WindowKind::several, 5, 5, subject_.at("without_unwind"));
  expect_none(WindowReason::not_a_start, subject_.at("one", 1));
}

TEST_P(WindowPlan, OfAnEntryWithoutUnwindInformationThatTheFunctionJumpsTo) {
  EXPECT_TRUE(subject_.flow().is_arrival(subject_.address("without_unwind_by_table") + 2));
  EXPECT_LE(subject_.at("without_unwind_by_table").length, 2);
  expect_trouble(FlowTrouble::no_unwind, subject_.at("without_unwind_computed"));
}

TEST_P(WindowPlan, RespectsRestartableSequences) {
  const auto sections = subject_.file().rseq_sections();
  ASSERT_EQ(sections.size(), 1U);
  const std::uint64_t function = subject_.address("restartable");
  EXPECT_EQ(sections[0].code, (elf::Range{function + 4, function + 14}));
  for (const std::uint64_t inside : {4U, 9U}) {
    const Window window = subject_.at("restartable", inside);
    EXPECT_EQ(window.kind, WindowKind::refused);
    EXPECT_EQ(window.text(), "inside an rseq critical section");
  }
  const auto spec = spec::parse_definition("p:e " + subject_.file().path() + ":restartable+9");
  ASSERT_TRUE(spec);
  FileCache files;
  FlowCache flows;
  const auto site = resolve(*spec, files, flows, {});
  ASSERT_FALSE(site);
  EXPECT_EQ(site.error().code, Code::refused);
  EXPECT_NE(site.error().text.find("inside an rseq critical section"), std::string::npos) << site.error().text;
  EXPECT_LE(subject_.at("restartable").length, 4);
  EXPECT_LE(subject_.at("restartable", 2).length, 2);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, WindowPlan, testing::Values("library", "fixed", "packed"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(WindowPlanOfChangedCode, IsNone) {
  const Subject subject(std::string(WINDOW_SUBJECTS) + "/windows_relocated");
  const Window window = subject.at("one");
  EXPECT_EQ(window.kind, WindowKind::breakpoint);
  EXPECT_EQ(window.trouble, FlowTrouble::text_relocations);
}

TEST(WindowPlanOfGo, IsNone) {
  const Subject subject(std::string(WINDOW_SUBJECTS) + "/windows_go");
  const Window window = subject.at("one");
  EXPECT_EQ(window.kind, WindowKind::breakpoint);
  EXPECT_EQ(window.reason, WindowReason::go_libc);
}

}  // namespace
}  // namespace uprobe::plan
