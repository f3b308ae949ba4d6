// SPDX-License-Identifier: MIT
// Every rule of exits_of on a small function of its own (fixtures/exits.S), in a library, in a program at fixed addresses, and
// in a stripped one.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "arch/code/relocate.h"
#include "engine/plan/exit_place.h"
#include "engine/plan/exits.h"
#include "engine/plan/returns.h"
#include "engine/shared/process_block.h"
#include "engine/spec/parse.h"

namespace uprobe::plan {
namespace {

elf::ElfFile open(const std::string& name) {
  auto file = elf::ElfFile::open(std::string(EXIT_SUBJECTS) + "/exits_" + name);
  if (!file) ADD_FAILURE() << name << " " << file.error().text;
  return file.take();
}

class ExitPlan : public testing::TestWithParam<const char*> {
 protected:
  std::uint64_t address(const std::string& name) const {
    const auto found = named_.find_functions(name);
    EXPECT_EQ(found.size(), 1U) << name;
    return found.empty() ? 0 : found[0].address;
  }
  Result<std::vector<Exit>> exits(const std::string& name) const { return exits_of(flow_, entries_, address(name)); }

  // "ret 8" or "jmp 8" for each.
  std::vector<std::string> texts(const std::string& name) const {
    const auto found = exits(name);
    EXPECT_TRUE(found) << name << " " << (found ? "" : found.error().text);
    std::vector<std::string> texts;
    for (std::size_t i = 0; found && i < found->size(); ++i) {
      const Exit& exit = (*found)[i];
      const auto insn = arch::decode(flow_.bytes_at(exit.address), Addr{exit.address});
      EXPECT_TRUE(insn && (exit.is_jump ? insn->is_branch : insn->is_return));
      texts.push_back((exit.is_jump ? "jmp " : "ret ") + std::to_string(exit.pops));
    }
    return texts;
  }
  void expect_refused(const std::string& name, const std::string& why) const {
    const auto found = exits(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, Code::refused);
    EXPECT_NE(found.error().text.find(why), std::string::npos) << name << " " << found.error().text;
  }

  using Texts = std::vector<std::string>;
  const std::string kind_ = GetParam();
  const elf::ElfFile file_ = open(kind_);
  const elf::ElfFile named_ = open(kind_ == "stripped" ? "library" : kind_);  // the same code
  const FileFlow flow_{file_};
  const FunctionEntries entries_{flow_};
};

TEST_P(ExitPlan, Returns) {
  EXPECT_EQ(texts("one_return"), Texts{"ret 8"});
  EXPECT_EQ(texts("every_return"), (Texts{"ret 24", "ret 8", "ret 8"}));
  EXPECT_EQ(texts("ends_in_call"), Texts{"ret 8"});
  EXPECT_EQ(texts("loops"), Texts{"ret 8"});
  EXPECT_EQ(texts("is_switch"), (Texts{"ret 8", "ret 8", "ret 8"}));
}

TEST_P(ExitPlan, ReturnInstructionsThatAreJumps) {
  for (const char* name : {"raises", "raises_by_memory", "exchanges"})
    expect_refused(name, "a return instruction that is none of a call");
  EXPECT_EQ(texts("has_frame"), (Texts{"ret 8", "ret 8", "ret 8"}));
}

TEST_P(ExitPlan, JumpsToFunctionsThatReturnForIt) {
  EXPECT_EQ(texts("tail"), (Texts{"jmp 8", "ret 8"}));
  EXPECT_EQ(texts("tail_by_linkage"), Texts{"jmp 8"});
  EXPECT_EQ(texts("tail_by_pointer"), Texts{"jmp 8"});
  EXPECT_EQ(texts("tail_by_memory"), Texts{"jmp 8"});
}

TEST_P(ExitPlan, JumpsThatMayBeSomethingElse) {
  expect_refused("tail_if", "ends in another function under a condition");
  expect_refused("pointer_to_label", "through a pointer that may lead anywhere");
  expect_refused("leads_to_private_named", "to what may be a part of it or another function");
  expect_refused("odd_switch", "an indirect jump of the function is not resolved");
}

TEST_P(ExitPlan, PartsThatStandApart) {
  EXPECT_EQ(texts("has_cold").size(), 2U);
  EXPECT_EQ(texts("in_two"), Texts{"ret 8"});
  const auto found = exits("leads_to_private");
  ASSERT_TRUE(found);
  EXPECT_FALSE((*found)[0].is_jump) << "no other code gets there: its return is the function's";
}

TEST_P(ExitPlan, ReturnsThatAreNotItsAlone) {
  expect_refused("shared_first", "jumps into it or into a part of it");
  expect_refused("shared_second", "shares its returns");
  expect_refused("has_two_names", "shares its returns with other_name");
  expect_refused("local_routine", "jumps into it or into a part of it");
  expect_refused("runs_on", "goes on past its end");
}

TEST_P(ExitPlan, NothingToBeFound) {
  expect_refused("never", "never returns");
  expect_refused("without_size", "no unwind information: its returns are not known");
}

TEST_P(ExitPlan, WithoutUnwindInformation) {
  EXPECT_EQ(texts("bare"), Texts{"ret 8"});
  EXPECT_EQ(texts("bare_branches"), (Texts{"ret 8", "ret 16"}));
  EXPECT_EQ(texts("bare_frame"), (Texts{"ret 8", "ret 8"}));
  EXPECT_EQ(texts("bare_ends_in_call"), Texts{"ret 8"});
}

TEST_P(ExitPlan, WithoutUnwindInformationTheFlowHasToShowAll) {
  for (const char* name : {"bare_leaves", "bare_leaves_if"}) expect_refused(name, "a jump that leaves it");
  for (const char* name : {"bare_pointer", "bare_memory"}) expect_refused(name, "a jump whose target is not known");
  expect_refused("bare_data", "code or data that its flow does not reach");
  expect_refused("bare_runs_on", "goes on past its end");
  for (const char* name : {"bare_unbalanced", "bare_switches", "bare_aligns"})
    expect_refused(name, "a return instruction whose place on the stack is not known");
  expect_refused("bare_goes_to_its_word", "a return instruction that is none of a call");
  expect_refused("bare_writes_its_word", "an instruction that changes its return address");
  expect_refused("bare_takes_its_word", "an instruction that takes its return address from the stack");
  expect_refused("bare_calls_itself", "a call of a part of itself");
  expect_refused("bare_entered", "jumps into it or into a part of it");
  for (const char* name : {"bare_named", "bare_made"}) expect_refused(name, "a pointer leads into it");
}

TEST_P(ExitPlan, RunIntoByTheCodeInFront) {
  if (kind_ == "stripped") GTEST_SKIP() << "its name is gone";
  expect_refused("run_into", "the code in front of it runs into it");
}

constexpr RegisterSet bit(shared::Reg reg) { return RegisterSet{1} << static_cast<unsigned>(reg); }

TEST_P(ExitPlan, JumpsFindRoomInFrontOfAReturn) {
  const auto found = exits("crowded");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 5U);
  const auto way = [&](std::size_t i, RegisterSet wanted) {
    const Exit place = place_for(flow_, (*found)[i], wanted);
    EXPECT_EQ(place.pops, (*found)[i].pops);
    return std::pair<std::uint64_t, unsigned>((*found)[i].address - place.address, place.lead);
  };
  using Way = std::pair<std::uint64_t, unsigned>;
  const Way stays{0, 0};
  EXPECT_EQ(way(0, 0), (Way{2, 8})) << "pop %r12, by a short jump";
  EXPECT_EQ(way(0, bit(shared::Reg::bx)), (Way{2, 8}));
  EXPECT_EQ(way(0, bit(shared::Reg::r12)), stays);
  EXPECT_EQ(way(1, 0), (Way{7, 0x1234}));
  EXPECT_EQ(way(1, bit(shared::Reg::flags)), stays);
  EXPECT_EQ(way(2, 0), stays) << "the instruction before it makes the value";
  EXPECT_EQ(way(3, 0), stays) << "it is jumped to";
}

TEST_P(ExitPlan, WhatIsRestoredInFrontOfAReturnIsKnown) {
  const auto found = exits("packed");
  ASSERT_TRUE(found);
  const Exit place = place_for(flow_, (*found)[0], 0);
  EXPECT_EQ((*found)[0].address - place.address, 4U);
  EXPECT_EQ(place.lead, 24);
  constexpr std::uint32_t kWords[] = {1, 2, 3, 0, 0, 0};  // rbx, rbp, r12, r13, r14, r15
  for (unsigned i = 0; i < std::size(kWords); ++i) EXPECT_EQ(shared::restored_at(place.restored, i), kWords[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(, ExitPlan, testing::Values("library", "fixed", "stripped"));

class Returns : public testing::Test {
 protected:
  Result<ReturnPlan> plan(const std::string& words, ReturnMode mode) {
    const auto spec = spec::parse_definition("r:e " + std::string(EXIT_SUBJECTS) + "/exits_library:" + words);
    EXPECT_TRUE(spec) << (spec ? "" : spec.error().text);
    auto site = resolve(*spec, files_, flows_, {.force = true});
    EXPECT_TRUE(site) << (site ? "" : site.error().text);
    return planner_.plan(*spec, *site, mode);
  }
  std::string refusal(const std::string& words, ReturnMode mode = ReturnMode::exits) {
    const auto made = plan(words, mode);
    return made ? "accepted" : made.error().text;
  }

  FlowCache flows_;
  FileCache files_;
  ReturnPlanner planner_{flows_};
};

TEST_F(Returns, ATailJumpIsAnExitForProbesThatFetchNothing) {
  for (const char* words : {"tail", "tail a=$comm", "tail \\5 \\\"x\"", "tail_by_pointer"})
    EXPECT_EQ(refusal(words), "accepted") << words;
  for (const char* words :
       {"tail $retval", "tail %di", "tail $stack", "tail $stack1", "tail +0(%di):string", "tail @0x400000"})
    EXPECT_NE(refusal(words).find("in another function, which returns for it: 'arg1' is not known there"),
              std::string::npos)
        << words;
}

TEST_F(Returns, BelongToTheBeginningOfAFunction) {
  EXPECT_NE(refusal("one_return+0x5").find("belongs at the beginning of a function"), std::string::npos);
}

TEST_F(Returns, GoByAStubWhereExitsDoNotDo) {
  const auto simple = plan("one_return $retval", ReturnMode::automatic);
  ASSERT_TRUE(simple);
  EXPECT_EQ(simple->mode, ReturnMode::exits);
  const auto tail = plan("tail $retval", ReturnMode::automatic);
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->mode, ReturnMode::stub);
  const auto refused = plan("tail $retval", ReturnMode::exits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("in another function"), std::string::npos) << refused.error().text;
  EXPECT_EQ(refused.error().help,
            "without arguments its returns can be probed; --return=stub follows it to its return");
  EXPECT_EQ(plan("one_return $retval", ReturnMode::stub)->mode, ReturnMode::stub);
}

TEST_F(Returns, ValuesOfTheEntryNeedOneBeginning) {
  EXPECT_EQ(refusal("one_return $latency"), "accepted");
  EXPECT_EQ(refusal("tail $entry_arg1 entry(%si)"), "accepted") << "they are known there";
  EXPECT_NE(refusal("tail +0($entry_arg1):u32").find("which returns for it"), std::string::npos);
  EXPECT_EQ(refusal("loops $latency"),
            "'loops' jumps to its own beginning: what it was called with is not known at its return");
  EXPECT_EQ(refusal("loops $retval"), "accepted");
  for (const char* words : {"one_return $latency", "loops $latency"})
    EXPECT_EQ(refusal(words, ReturnMode::stub), "accepted") << "which call returns is known by the stub";
}

TEST_F(Returns, ALatencyLastsUntilTheFunctionHasReturned) {
  for (const char* words : {"tail $latency", "tail_by_pointer $latency", "loops $latency"})
    EXPECT_EQ(plan(words, ReturnMode::automatic)->mode, ReturnMode::stub) << words;
  EXPECT_EQ(plan("one_return $latency", ReturnMode::automatic)->mode, ReturnMode::exits);
  const auto refused = plan("tail $entry_arg1 ns=$latency", ReturnMode::exits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("returns for it: 'ns' is not known there"), std::string::npos)
      << refused.error().text;
  const auto spec =
      spec::parse_definition("r:e " + std::string(EXIT_SUBJECTS) + "/exits_library:tail $entry_arg1 ns=$latency");
  EXPECT_EQ(refused.error().column, spec->arguments[1].column);
}

TEST_F(Returns, SayWhy) {
  EXPECT_EQ(refusal("never"), "'never' never returns: it has no return instruction");
  EXPECT_EQ(plan("one_return", ReturnMode::exits)->exits.size(), 1U);
}

}  // namespace
}  // namespace uprobe::plan
