// SPDX-License-Identifier: MIT
// What is read of the lines that trace-cmd prints of a file that anybody may have made.
#include "engine/recording/foreign_trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "engine/base/program_output.h"

namespace uprobe::recording {
namespace {

TEST(ForeignTrace, TheTimesOfLines) {
  EXPECT_EQ(time_of_line("          cat-5047  [001]  2990.587610900: open: (7f)"), 2'990'587'610'900u);
  EXPECT_EQ(time_of_line("          cat-5047  [001]  2990.587610: open: (7f)"), 2'990'587'610'000u);
  EXPECT_EQ(time_of_line("          cat-5047  [001]2990589532575: open: (7f)"), 2'990'589'532'575u);
  EXPECT_EQ(time_of_line("b:    a [00] b-1 [1024] d..1. 1.000000002: e: [001] 5.000000000:"), 1'000'000'002u);
  EXPECT_EQ(time_of_line("[001]  18446744073.709551615: e"), std::nullopt);
}

TEST(ForeignTrace, LinesWithoutATime) {
  for (const char* const line :
       {"", "cpus=2", "CPU:0 [7 EVENTS DROPPED]", " => main+0x4", "[001]", "[001] 1", "[001] 1.", "[001] 1.5: x",
        "[001] 1.0000000000: x", "[001] toolongaflag 1.000000000: x", "[01] 1.000000000: x", "[", "[[[[",
        "[001] 99999999999999999999: x", "[001] -1.000000000: x"})
    EXPECT_EQ(time_of_line(line), std::nullopt) << line;
}

TEST(ForeignTrace, TheEventsOfLines) {
  const std::string lines =
      "CPU:3 [7 EVENTS DROPPED]\n   a [00]-b-5047  [003] d..1.  2.587610900: kernel_stack:  <stack>\n => main+0x4\n => "
      "x\n";
  const auto events = events_in(lines);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "dropped");
  EXPECT_EQ(events[0].text, "CPU:3 [7 EVENTS DROPPED]");
  EXPECT_EQ(events[1].ns, 2'587'610'900u);
  EXPECT_EQ(events[1].tid, 5047u);
  EXPECT_EQ(events[1].cpu, 3u);
  EXPECT_EQ(events[1].comm, "a [00]-b");
  EXPECT_EQ(events[1].name, "kernel_stack");
  EXPECT_EQ(events[1].text, "<stack>\n => main+0x4\n => x");
}

TEST(ForeignTrace, EventsThatLackSomething) {
  EXPECT_TRUE(events_in("").empty());
  EXPECT_TRUE(events_in("no event\n\n").empty());
  for (const char* const line : {"[001] 1.000000002:", "[001] 1.000000002: ", "-[001] 1.000000002: :\n",
                                 "<...>-x [99999999999] 1.000000002: \n => e: f\n"}) {
    const auto events = events_in(line);
    ASSERT_EQ(events.size(), 1u) << line;
    EXPECT_EQ(events[0].ns, 1'000'000'002u);
    EXPECT_EQ(events[0].tid, 0u);
    EXPECT_EQ(events[0].comm, "");
    EXPECT_EQ(events[0].name, "");
  }
}

TEST(ForeignTrace, AFifoIsNotWaitedFor) {
  char folder[] = "/tmp/uprobe-trace.XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string fifo = std::string(folder) + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto opened = ForeignTrace::open(fifo);
  ::unlink(fifo.c_str());
  ::rmdir(folder);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().text, "is a fifo: a trace.dat is a regular file");
}

TEST(ForeignTrace, TheClockIsTheOneThatAllBuffersHave) {
  const std::string option = "\t[Option TRACECLOCK, 38 bytes]\nlocal global [mono] boot\n";
  const auto clock_of = [](const std::string& text) { return clock_of_options("FILE", text); };
  EXPECT_EQ(clock_of(option).take(), trace::ClockKind::mono);
  EXPECT_EQ(clock_of(option + "\"mono\" [clock]\n").take(), trace::ClockKind::mono);
  EXPECT_EQ(clock_of(option + "\"boot\" [clock]\n").error().text, "its buffers have different clocks");
  EXPECT_EQ(clock_of("").error().text, "it does not say which clock its times have");
  EXPECT_EQ(clock_of("[Option TRACECLOCK\n[lo\x1b"
                     "cal]\n")
                .error()
                .text,
            "its times have the clock 'lo\\x1bcal', which a recording does not hold");
}

TEST(ProgramOutput, LinesAndTheirEnd) {
  auto output = ProgramOutput::start({"sh", "-c", "echo a; echo; printf b; echo no >&2"});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->next_line(), "a");
  EXPECT_EQ(output->next_line(), "");
  EXPECT_EQ(output->next_line(), "b");
  EXPECT_EQ(output->next_line(), std::nullopt);
  EXPECT_TRUE(output->has_succeeded());
}

TEST(ProgramOutput, LongLinesAreCut) {
  auto output = ProgramOutput::start({"sh", "-c", "head -c 100000 /dev/zero; exit 3"});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->next_line()->size(), ProgramOutput::kMostLine);
  EXPECT_EQ(output->next_line()->size(), 100'000 - ProgramOutput::kMostLine);
  EXPECT_EQ(output->next_line(), std::nullopt);
  EXPECT_FALSE(output->has_succeeded());
}

TEST(ProgramOutput, AProgramThatGoesOnIsEnded) {
  auto output = ProgramOutput::start({"yes"});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->next_line(), "y");
}

TEST(ProgramOutput, AProgramThatIsNotThere) {
  EXPECT_EQ(ProgramOutput::start({"/none/such"}).error().code, Code::not_found);
}

}  // namespace
}  // namespace uprobe::recording
