// SPDX-License-Identifier: MIT
// The plan in words.
#include <gtest/gtest.h>

#include "cli/dry_run.h"

namespace uprobe::cli {
namespace {

PlanReport report() {
  PlanReport result;
  result.definition = "p:uprobes/e /bin/zsh:0x000000000006ae40 arg1=%di";
  result.path = "/bin/zsh";
  result.offset = 0x6ae40;
  result.address = 0x6be40;
  result.symbol = "zfree";
  result.bytes = {0x48, 0x89, 0xe5};
  result.tier = "int3";
  result.why = "jumps are off";
  return result;
}

TEST(CliDryRun, EverythingOfAProbe) {
  EXPECT_EQ(render_plan({report()}),
            "p:uprobes/e /bin/zsh:0x000000000006ae40 arg1=%di\n"
            "  at    /bin/zsh:0x6ae40, zfree, address 0x6be40\n"
            "  insn  48 89 e5   mov %rsp, %rbp\n"
            "  tier  int3: jumps are off\n");
}

TEST(CliDryRun, MissingFactsLeaveNoTrace) {
  PlanReport bare = report();
  bare.symbol.clear();
  bare.bytes.clear();
  bare.why.clear();
  bare.path = "/tmp/\x1b";
  EXPECT_EQ(render_plan({bare}),
            "p:uprobes/e /bin/zsh:0x000000000006ae40 arg1=%di\n"
            "  at    /tmp/\\x1b:0x6ae40, address 0x6be40\n"
            "  tier  int3\n");
}

TEST(CliDryRun, OneLineForVerbose) { EXPECT_EQ(plan_line(report()), "/bin/zsh:0x6ae40 (zfree): int3: jumps are off"); }

TEST(CliDryRun, AReturnProbeSaysHow) {
  PlanReport returns = report();
  returns.returns = "2 exits: 0x6ae50, jump at 0x6ae60";
  EXPECT_NE(render_plan({returns}).find("\n  by    2 exits: 0x6ae50, jump at 0x6ae60\n  tier  int3"),
            std::string::npos);
  EXPECT_EQ(plan_line(returns), "/bin/zsh:0x6ae40 (zfree): 2 exits: 0x6ae50, jump at 0x6ae60: int3: jumps are off");
}

TEST(CliDryRun, BranchTargetsAreAbsolute) {
  PlanReport jump = report();
  jump.bytes = {0xe9, 0xfb, 0x0f, 0x00, 0x00};
  jump.address = 0x401000;
  EXPECT_NE(render_plan({jump}).find("jmp 0x402000\n"), std::string::npos) << render_plan({jump});
}

TEST(CliDryRun, WhatIsNoInstructionIsSaid) {
  PlanReport none = report();
  none.bytes = {0x06};
  EXPECT_NE(render_plan({none}).find("  insn  06   (not decoded)\n"), std::string::npos) << render_plan({none});
}

TEST(CliDryRun, ProcessesSayWhereTheyHaveThePlace) {
  PlanReport running = report();
  running.processes = {{812, 0x55d0c0a6ae40}, {813, std::nullopt}};
  EXPECT_NE(render_plan({running}).find("  in    process 812, address 0x55d0c0a6ae40\n"
                                        "  in    process 813, which has not mapped the file\n  tier  int3"),
            std::string::npos)
      << render_plan({running});
}

TEST(CliDryRun, RefusedIsNoticed) {
  PlanReport refused = report();
  refused.tier = "refused";
  EXPECT_FALSE(any_refused({report()}));
  EXPECT_TRUE(any_refused({report(), refused}));
  EXPECT_FALSE(any_refused({}));
}

}  // namespace
}  // namespace uprobe::cli
