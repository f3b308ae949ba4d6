// SPDX-License-Identifier: MIT
// A plan in plain words.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/explain.h"

namespace uprobe::cli {
namespace {

PlanReport report() {
  PlanReport result;
  result.definition = "p:uprobes/e /opt/a b/zsh:0x000000000006ae40 arg1=%di name=+0(%si):string";
  result.path = "/opt/a b/zsh";
  result.offset = 0x6ae40;
  result.address = 0x6be40;
  result.symbol = "zfree";
  result.bytes = {0x48, 0x89, 0xe5};
  result.tier = "jump";
  return result;
}

bool says(const PlanReport& report, const std::string& words) {
  const std::string text = render_explanation({report});
  const bool found = text.find(words) != std::string::npos;
  if (!found) ADD_FAILURE() << text;
  return found;
}

TEST(CliExplain, AnEntry) {
  EXPECT_EQ(render_explanation({report()}),
            "uprobes/e records each call of zfree in /opt/a b/zsh (offset 0x6ae40).\n"
            "It writes time, CPU, thread, address, and: arg1=%di name=+0(%si):string\n"
            "The probe is a jump on 'mov %rsp, %rbp', without a trap or a system call.\n"
            "A hit costs about 20 nanoseconds.\n");
}

TEST(CliExplain, GeneratedCode) {
  PlanReport generated;
  generated.definition = "p:uprobes/e jit:LazyCompile:*f /a b.js x=%di";
  generated.path = "jit";
  generated.symbol = "LazyCompile:*f /a b.js";
  generated.tier = "hardware";
  generated.why = "it is in generated code";
  EXPECT_EQ(render_explanation({generated}),
            "uprobes/e records each call of the functions LazyCompile:*f /a b.js that the program generates, as "
            "/tmp/perf-PID.map names them.\n"
            "It writes time, CPU, thread, address, and: x=%di\n"
            "The probe is a breakpoint of the processor, which changes no byte of the code; there are four.\n"
            "A hit costs some microseconds, in a virtual machine some ten.\n");
}

TEST(CliExplain, APlaceInsideAFunctionAndNoValues) {
  PlanReport inside = report();
  inside.symbol = "zfree+0x4";
  inside.definition = "p:uprobes/e /opt/a b/zsh:0x000000000006ae44";
  says(inside, "records each time that zfree+0x4 in /opt/a b/zsh (offset 0x6ae40) is reached.");
  says(inside, "no values: add some");
}

TEST(CliExplain, FunctionsByTheNamesThatUsersWrite) {
  PlanReport mangled = report();
  mangled.symbol = "_ZN4shop4Cart3addEPKci";
  says(mangled, "records each call of shop::Cart::add(char const*, int) in /opt/a b/zsh");
  mangled.symbol += "+0x4";
  says(mangled, "records each time that shop::Cart::add(char const*, int)+0x4 in");
}

TEST(CliExplain, ABreakpointSaysWhyAndWhatWouldBeBetter) {
  PlanReport slow = report();
  slow.tier = "int3";
  slow.why = "--tier asks for a breakpoint";
  says(slow, "The probe is a breakpoint on 'mov %rsp, %rbp', because --tier asks for a breakpoint.");
  says(slow, "1,300 nanoseconds. Without --tier=int3 it would be a jump where that is safe.");
  slow.why = "the function has code that nothing known leads to";
  says(slow, "Another instruction of the function may take a jump");
  slow.why = "Go code of a version that is not known: its stacks may be too small for a trampoline";
  says(slow, "1,300 nanoseconds. So it is everywhere in its Go code.\n");
}

TEST(CliExplain, ARunningProcess) {
  PlanReport running = report();
  running.processes = {{812, 0x55d0c0a6ae40}, {813, std::nullopt}};
  says(running,
       "a system call.\nProcess 812 has it at address 0x55d0c0a6ae40.\n"
       "Process 813 has not mapped the file yet; it is probed there once that has happened.\nA hit costs");
}

TEST(CliExplain, ANewlineInAFileMakesNoLine) {
  PlanReport forged = report();
  forged.symbol = "f\nuprobe-run: all is well";
  forged.path = "/opt/x\ny";
  const std::string text = render_explanation({forged});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(CliExplain, Returns) {
  PlanReport returns = report();
  returns.returns = "2 exits: 0x6ae50, jump at 0x6ae60";
  says(returns, "records each return of zfree");
  says(returns, "The returns are seen at 2 exits: 0x6ae50, jump at 0x6ae60.");
  returns.returns = "a stub";
  says(returns, "the return address is replaced by that of a stub");
  says(returns, "about 200 nanoseconds. A probe at the function's entry");
}

TEST(CliExplain, ARefusalAndTwoProbes) {
  PlanReport refused = report();
  refused.tier = "refused";
  refused.why = "data";
  EXPECT_EQ(render_explanation({refused, refused}), "uprobes/e is refused: data.\n\nuprobes/e is refused: data.\n");
}

}  // namespace
}  // namespace uprobe::cli
