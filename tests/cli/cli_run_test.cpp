// SPDX-License-Identifier: MIT
// Whole calls against a fake engine: exit codes, the stream of each output, and programs that are never started.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "cli/run.h"
#include "tests/cli/fake_engine.h"

namespace uprobe::cli {
namespace {

using Words = std::vector<std::string>;

ProbeSummary probe_summary(std::uint64_t hits) { return {.name = "uprobes/a", .place = "/bin/zsh:0x1", .hits = hits}; }

PlanReport plan_report() {
  PlanReport result;
  result.definition = "p:uprobes/a /x:0x1";
  result.path = "/x";
  result.offset = 1;
  result.tier = "int3";
  result.why = "because";
  return result;
}

class CliRun : public testing::Test {
 protected:
  void SetUp() override {
    in_ = memory();
    out_ = memory();
    err_ = memory();
  }

  static Fd memory() { return Fd(::memfd_create("stream", MFD_CLOEXEC)); }

  Outcome run(Words words) {
    words.insert(words.begin(), "uprobe-run");
    return run_cli(words, engine_, Streams{in_.get(), out_.get(), err_.get()});
  }
  int code(const Words& words) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.signal, 0);
    return outcome.code;
  }

  static std::string text(const Fd& fd) { return *read_file("/proc/self/fd/" + std::to_string(fd.get())); }
  std::string out() const { return text(out_); }
  std::string err() const { return text(err_); }
  void input(const std::string& lines) {
    ASSERT_EQ(write_patiently(in_.get(), lines), 0);
    ASSERT_EQ(::lseek(in_.get(), 0, SEEK_SET), 0);
  }

  FakeEngine engine_;
  Fd in_, out_, err_;
};

TEST_F(CliRun, ADryRunLooksAtProcesses) {
  engine_.plan = {plan_report()};
  EXPECT_EQ(code({"--dry-run", "-p", "p:a /x:1", "-P", "12,13"}), 0);
  EXPECT_EQ(engine_.reported, (std::vector<int>{12, 13}));
  EXPECT_EQ(engine_.prepared.returns, plan::ReturnMode::exits) << "as attaching would take them";
  EXPECT_TRUE(engine_.attached.empty());
  engine_.unreadable = 13;
  EXPECT_EQ(code({"--explain", "p:a /x:1", "-P", "12,13"}), 125);
  EXPECT_EQ(err(), "uprobe-run: no process 13\n");
}

TEST_F(CliRun, AProcessThatIsNotThereIsTheCauseOfABadDefinition) {
  engine_.bad["malloc"] = Error{.code = Code::not_found, .text = "no such file"};
  engine_.unreadable = 12;
  EXPECT_EQ(code({"-p", "malloc", "-P", "12"}), 125);
  EXPECT_EQ(err(), "uprobe-run: no process 12\n");
}

TEST_F(CliRun, TheTraceGoesToStandardErrorAndTheSummaryAfterIt) {
  engine_.lines = {"zsh-1 hit\n", "zsh-1 again\n"};
  engine_.totals.probes = {probe_summary(2)};
  EXPECT_EQ(code({"-p", "p:a /bin/zsh:x", "zsh", "-c", "y"}), 0);
  EXPECT_EQ(out(), "");
  EXPECT_EQ(err(), "zsh-1 hit\nzsh-1 again\nuprobe-run: uprobes/a /bin/zsh:0x1: 2 hits\n");
  EXPECT_EQ(engine_.launched, (Words{"zsh", "-c", "y"}));
}

TEST_F(CliRun, RefusedDefinitionsAreSkippedWhenAsked) {
  engine_.bad["nowhere"] = {.code = Code::not_found, .text = "no such function"};
  EXPECT_EQ(code({"--skip-refused", "-p", "p:a /x:nowhere", "-p", "p:b /x:y", "-p", "p:c /x:nowhere2", "zsh"}), 0);
  EXPECT_EQ(err(),
            "uprobe-run: skipped -p: 'p:a /x:nowhere': no such function\n"
            "uprobe-run: skipped -p: 'p:c /x:nowhere2': no such function\n"
            "uprobe-run: 2 of 3 definitions skipped\n");
  ASSERT_EQ(engine_.prepared.definitions.size(), 1u);
  EXPECT_EQ(engine_.prepared.definitions[0].text, "p:b /x:y");
  EXPECT_EQ(engine_.launched, Words{"zsh"});
}

TEST_F(CliRun, RefusalsNameTheOptionThatArmsTheOthers) {
  const std::string hint = "--skip-refused arms the other definitions";
  engine_.bad["nowhere"] = {.code = Code::refused, .text = "has no exits", .where = "p:a /x:nowhere"};
  EXPECT_EQ(code({"-p", "p:a /x:nowhere", "zsh"}), 125);
  EXPECT_EQ(err().find(hint), std::string::npos) << "there are none";
  EXPECT_EQ(code({"-p", "p:a /x:nowhere", "-p", "p:b /x:y", "zsh"}), 125);
  EXPECT_NE(err().find(hint), std::string::npos);
}

TEST_F(CliRun, AMistakeIsNoRefusal) {
  engine_.bad["nowhere"] = {.code = Code::usage, .text = "no place", .where = "p:a /x:nowhere"};
  EXPECT_EQ(code({"-p", "p:a /x:nowhere", "-p", "p:b /x:y", "zsh"}), 125);
  EXPECT_EQ(err().find("--skip-refused"), std::string::npos);
}

TEST_F(CliRun, NothingStartsWhereAllAreRefused) {
  engine_.bad["nowhere"] = {.code = Code::not_found, .text = "no such function"};
  EXPECT_EQ(code({"--skip-refused", "-p", "p:a /x:nowhere", "zsh"}), 125);
  EXPECT_EQ(err(),
            "uprobe-run: skipped -p: 'p:a /x:nowhere': no such function\n"
            "uprobe-run: no probe is left: 1 definition skipped\n");
  EXPECT_TRUE(engine_.launched.empty());
}

TEST_F(CliRun, WhatIsAboutNoDefinitionIsNotSkipped) {
  engine_.together = Error{.code = Code::limit, .text = "ring size out of range"};
  EXPECT_EQ(code({"--skip-refused", "-p", "p:a /x:y", "zsh"}), 125);
  EXPECT_EQ(err(), "uprobe-run: ring size out of range\n");
}

TEST_F(CliRun, WhoIsAttachedToIsToldUnlessQuiet) {
  engine_.ending.detached = true;
  EXPECT_EQ(code({"-p", "p:a /bin/zsh:x", "--comm=x", "--comm", "y*", "--object=/a", "--wait", "-P", "12"}), 0);
  EXPECT_EQ(err(), "uprobe-run: attached to process 9 (x)\n");
  EXPECT_EQ(engine_.attached, (std::vector<int>{12}));
  EXPECT_EQ(engine_.attached_names, (Words{"x", "y*"}));
  EXPECT_EQ(engine_.attached_objects, Words{"/a"});
  EXPECT_TRUE(engine_.waits);
}

TEST_F(CliRun, WhoIsAttachedToIsNotToldWhenQuiet) {
  EXPECT_EQ(code({"-q", "-p", "p:a /bin/zsh:x", "--comm=x"}), 0);
  EXPECT_EQ(err().find("attached"), std::string::npos);
}

TEST_F(CliRun, WhatIsAttachedToHasItsTraceOnStandardOutput) {
  engine_.lines = {"zsh-1 hit\n"};
  engine_.totals.probes = {probe_summary(1)};
  engine_.ending.detached = true;
  EXPECT_EQ(code({"-p", "p:a /bin/zsh:x", "-P", "12,34", "--attach=56"}), 0);
  EXPECT_EQ(out(), "zsh-1 hit\n");
  EXPECT_EQ(err(), "uprobe-run: uprobes/a /bin/zsh:0x1: 1 hit\n");
  EXPECT_EQ(engine_.attached, (std::vector<int>{12, 34, 56}));
  EXPECT_TRUE(engine_.launched.empty());
}

TEST_F(CliRun, AnAttachedProcessThatEndsIsNoFailure) {
  engine_.ending = {.signalled = false, .code = 3, .detached = false};
  EXPECT_EQ(code({"-q", "-p", "p:a /bin/zsh:x", "-P", "12"}), 0);
  EXPECT_EQ(err(), "uprobe-run: the process has ended\n");
}

TEST_F(CliRun, AProcessThatCannotBeAttachedTo) {
  engine_.launch_error = Error{.code = Code::not_found, .text = "no process 12"};
  EXPECT_EQ(code({"-p", "p:a /bin/zsh:x", "-P", "12"}), 125);
  EXPECT_EQ(err(), "uprobe-run: no process 12\n");
  EXPECT_EQ(out(), "");
}

TEST_F(CliRun, QuietLeavesTheSummaryAway) {
  engine_.lines = {"hit\n"};
  engine_.totals.probes = {probe_summary(1)};
  EXPECT_EQ(code({"-q", "-o", "-", "-p", "p:a x:y", "zsh"}), 0);
  EXPECT_EQ(out(), "hit\n");
  EXPECT_EQ(err(), "");
}

TEST_F(CliRun, BesideTheProgramNothingIsSaidButInTheFile) {
  engine_.lines = {"zsh-1 hit\n"};
  engine_.totals.probes = {probe_summary(1)};
  engine_.ending.code = 7;
  const std::string file = testing::TempDir() + "cli-beside";
  const auto text = [&] {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  EXPECT_EQ(code({"-D", "-o", file, "-p", "p:a x:y", "zsh"}), 0) << "how the program ends is its parent's to know";
  EXPECT_EQ(text(), "zsh-1 hit\n");
  EXPECT_TRUE(engine_.prepared.waiting && engine_.is_let_end);
  EXPECT_EQ(err() + out(), "");
  EXPECT_EQ(code({"-D", "-v", "-o", file, "-p", "p:a x:y", "zsh"}), 0);
  EXPECT_EQ(text(), "zsh-1 hit\n# uprobe-run: uprobes/a /bin/zsh:0x1: 1 hit\n");
  engine_.totals.probes[0].lost_full = 1;
  EXPECT_EQ(code({"-D", "-o", file, "-p", "p:a x:y", "zsh"}), 0);
  EXPECT_NE(text().find("# uprobe-run: lost: 1"), std::string::npos) << text();
  EXPECT_EQ(code({"-D", "-q", "-o", file, "-p", "p:a x:y", "zsh"}), 0);
  EXPECT_EQ(text(), "zsh-1 hit\n");
  engine_.launch_error = Error{.code = Code::killed, .text = "told already"};
  EXPECT_EQ(code({"-D", "-q", "-o", file, "-p", "p:a x:y", "zsh"}), 0);
  EXPECT_EQ(err().find("told already"), std::string::npos);
  ::unlink(file.c_str());
}

TEST_F(CliRun, OptionsReachTheEngine) {
  EXPECT_EQ(code({"-p", "p:a x:y", "-x", "/bin/zsh", "-p", "p:b zfree", "-b", "64K", "-n", "9", "-d", "2m", "--force",
                  "--until=last", "ls"}),
            0);
  ASSERT_EQ(engine_.prepared.definitions.size(), 2u);
  EXPECT_EQ(engine_.prepared.definitions[0].default_object, "/bin/ls") << "the program to run";
  EXPECT_EQ(engine_.prepared.definitions[1].default_object, "/bin/zsh");
  EXPECT_EQ(engine_.prepared.ring_bytes, 65536u);
  EXPECT_TRUE(engine_.prepared.force);
  EXPECT_EQ(engine_.run_options.max_events, 9u);
  EXPECT_EQ(engine_.run_options.duration, std::chrono::minutes(2));
  EXPECT_TRUE(engine_.run_options.until_last);
  EXPECT_FALSE(engine_.run_options.raw_strings) << "only where the user asks for it";
}

TEST_F(CliRun, CheckingTakesWholeTextsAndRunsNothing) {
  input("p:a /x:1\n# no\n");
  engine_.checked.listing = {"p:uprobes/a /x:0x1"};
  engine_.checked.notes = {"a note"};
  EXPECT_EQ(code({"--check", "--strict", "-x", "/y", "-i", "-", "-p", "-:a\np:b /x:1", "zsh"}), 0);
  ASSERT_EQ(engine_.defined.size(), 2u);
  EXPECT_EQ(engine_.defined[0].text, "p:a /x:1\n# no\n");
  EXPECT_EQ(engine_.defined[0].default_object, "/y");
  EXPECT_EQ(engine_.defined[1].text, "-:a\np:b /x:1");
  EXPECT_TRUE(engine_.defined_strictly);
  EXPECT_EQ(out(), "p:uprobes/a /x:0x1\n");
  EXPECT_EQ(err(), "uprobe-run: a note\n");
  EXPECT_TRUE(engine_.launched.empty());
  EXPECT_EQ(code({"--check", "-i", "/nonexistent/file"}), 125);
}

TEST_F(CliRun, ARefusedCheckNamesTheLine) {
  input("p:a /x:1\np:a /x\n");
  CheckReport& report = engine_.checked;
  report.error = Error{.text = "No offset", .where = "p:a /x", .column = 6, .help = "add one", .err = EINVAL};
  report.line = 2;
  report.listing = {"p:uprobes/a /x:0x1"};
  EXPECT_EQ(code({"--check", "-i", "-"}), 125);
  EXPECT_EQ(out(), "") << "the listing is of what was accepted";
  EXPECT_EQ(err(), "uprobe-run: standard input:2: No offset\n  p:a /x\n        ^\n  add one\n");
  EXPECT_EQ(code({"--check", "--strict", "-p", "p:a /x"}), 125);
  EXPECT_TRUE(
      err().ends_with("uprobe-run: -p: No offset\n  p:a /x\n        ^\n"
                      "  add one; the kernel refuses this without a message\n"));
  EXPECT_EQ(code({"--check", "--json", "-p", "p:a /x"}), 125);
  EXPECT_NE(out().find("\"listing\": [\"p:uprobes/a /x:0x1\"]"), std::string::npos);
}

TEST_F(CliRun, DeletionsAreNotLookedAtAlone) {
  engine_.bad["-:x"] = Error{.text = "No event matches"};
  engine_.together = Error{.text = "Something else", .where = "p:b /x:1", .column = 0, .definition = 2};
  EXPECT_EQ(code({"-p", "p:a /x:1", "-p", "-:x", "-p", "p:b /x:1", "zsh"}), 125);
  EXPECT_EQ(err(), "uprobe-run: -p: Something else\n  p:b /x:1\n  ^\n");
}

TEST_F(CliRun, TheProfileComesBeforeTheSummary) {
  engine_.totals.probes = {probe_summary(2)};
  EXPECT_EQ(code({"--profile", "-o", "/dev/null", "-p", "p:a /bin/zsh:x", "zsh"}), 0);
  EXPECT_EQ(err(), "  /bin/zsh a" + std::string(43, ' ') +
                       "               2               0\n"
                       "uprobe-run: uprobes/a /bin/zsh:0x1: 2 hits\n");
}

TEST_F(CliRun, TheProgramsEndIsOurs) {
  engine_.ending = {false, 7};
  EXPECT_EQ(code({"-p", "p:a x:y", "ls"}), 7);
  engine_.ending = {true, SIGSEGV};
  const Outcome outcome = run({"-p", "p:a x:y", "ls"});
  EXPECT_EQ(outcome.signal, SIGSEGV);
}

TEST_F(CliRun, FailuresHaveTheirCodes) {
  const Words words = {"-p", "p:a x:y", "nope"};
  engine_.missing_program = Error{.code = Code::not_found, .text = "No such file or directory", .where = "nope"};
  EXPECT_EQ(code(words), 127);
  EXPECT_EQ(err(), "uprobe-run: nope: No such file or directory\n");
  EXPECT_EQ(code({"-p", " ", "-p", "12", "nope"}) + code({"--dry-run", "-p", " ", "nope"}), 2 * 127);
  engine_.missing_program = Error{.code = Code::not_executable, .text = "Permission denied", .where = "nope"};
  EXPECT_EQ(code(words), 126);
  engine_.missing_program.reset();
  engine_.launch_error = Error{.code = Code::not_executable, .text = "Exec format error", .where = "nope"};
  EXPECT_EQ(code(words), 126);
  engine_.launch_error = Error{.code = Code::system, .text = "ptrace: Operation not permitted"};
  EXPECT_EQ(code(words), 125);
  engine_.launch_error.reset();
  engine_.run_error = Error{.code = Code::damaged, .text = "the ring makes no sense"};
  EXPECT_EQ(code(words), 125);
  EXPECT_EQ(code({"--nonsense"}), 125);
}

TEST_F(CliRun, AMissingObjectIsOurFailureNot127) {
  engine_.bad["gone"] = Error{.code = Code::not_found, .text = "no such file: /gone"};
  EXPECT_EQ(code({"-p", "p:a /gone:0", "ls"}), 125);
  EXPECT_TRUE(engine_.launched.empty());
  EXPECT_EQ(err(), "uprobe-run: -p: no such file: /gone\n  p:a /gone:0\n");
}

TEST_F(CliRun, AllBadDefinitionsAreShownAndNothingStarts) {
  engine_.bad["strng"] = Error{.text = "Unknown type is specified", .column = 10, .help = "did you mean 'string'?"};
  engine_.bad["%zz"] = Error{.text = "Invalid register name", .column = 8};
  EXPECT_EQ(code({"-p", "p:a x:y %di:strng", "-p", "p:ok x:y", "-p", "p:b x:y %zz", "ls"}), 125);
  EXPECT_EQ(err(),
            "uprobe-run: -p: Unknown type is specified\n"
            "  p:a x:y %di:strng\n"
            "            ^\n"
            "  did you mean 'string'?\n"
            "uprobe-run: -p: Invalid register name\n"
            "  p:b x:y %zz\n"
            "          ^\n");
  EXPECT_TRUE(engine_.launched.empty());
}

TEST_F(CliRun, WhatIsWrongOnlyTogetherIsShownToo) {
  engine_.together = Error{.text = "Event already exists", .where = "p:a x:z", .column = 2, .definition = 1};
  EXPECT_EQ(code({"-p", "p:a x:y", "-p", "p:a x:z # twice", "ls"}), 125);
  EXPECT_EQ(err(), "uprobe-run: -p: Event already exists\n  p:a x:z\n    ^\n");
}

TEST_F(CliRun, AmongManyDefinitionsTheLineIsNamedHoweverItIsWritten) {
  engine_.bad["%dii"] = Error{.text = "Invalid register name", .column = 8};
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += i == 70 ? "\n  p:b\tx:y    %dii # no\n" : "p:a x:y %di\n";
  input(lines);
  EXPECT_EQ(code({"-i", "-", "ls"}), 125);
  EXPECT_EQ(err(), "uprobe-run: standard input:72: Invalid register name\n  p:b x:y %dii\n          ^\n");
}

TEST_F(CliRun, ManyProblemsAreCounted) {
  engine_.bad["x"] = Error{.text = "bad"};
  Words words;
  for (int i = 0; i < 14; ++i) words.insert(words.end(), {"-p", std::string(1, 'x').append(std::to_string(i))});
  words.push_back("ls");
  EXPECT_EQ(code(words), 125);
  EXPECT_TRUE(err().ends_with("uprobe-run: and 4 more bad definitions\n")) << err();
}

TEST_F(CliRun, AHugeListIsNotCheckedOneByOne) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "good\n";
  input(lines + "bad\n");
  engine_.bad["bad"] = Error{.text = "bad"};
  EXPECT_EQ(code({"-i", "-", "ls"}), 125);
  EXPECT_EQ(engine_.checks, 0);
  EXPECT_EQ(err(), "uprobe-run: standard input:1001: bad\n  bad\n");
}

TEST_F(CliRun, DefinitionsFromStandardInput) {
  input("# comment\n\n  \t\np:a x:y\r\n  # more\np:b x:z");
  engine_.bad["p:b"] = Error{.text = "bad"};
  EXPECT_EQ(code({"-p", "p:c x:c", "-i", "-", "-p", "p:d x:d", "ls"}), 125);
  ASSERT_EQ(engine_.prepared.definitions.size(), 4u);
  EXPECT_EQ(engine_.prepared.definitions[1].text, "p:a x:y");
  EXPECT_EQ(engine_.prepared.definitions[2].text, "p:b x:z");
  EXPECT_EQ(engine_.prepared.definitions[3].text, "p:d x:d");
  EXPECT_EQ(err(), "uprobe-run: standard input:6: bad\n  p:b x:z\n");
}

TEST_F(CliRun, FilesOfDefinitionsThatAreNone) {
  EXPECT_EQ(code({"-i", "/nowhere/probes", "ls"}), 125);
  EXPECT_EQ(err(), "uprobe-run: open /nowhere/probes: No such file or directory\n");
  EXPECT_EQ(code({"-i", "/dev/null", "ls"}), 125);
  EXPECT_TRUE(err().ends_with("uprobe-run: /dev/null: contains no definition\n")) << err();
  EXPECT_EQ(code({"-i", "/tmp", "ls"}), 125);
  EXPECT_TRUE(err().ends_with("Is a directory\n")) << err();
  EXPECT_TRUE(engine_.launched.empty());
}

TEST_F(CliRun, AnOutputThatCannotBeOpenedStartsNothing) {
  EXPECT_EQ(code({"-o", "/tmp", "-p", "p:a x:y", "ls"}), 125);
  EXPECT_TRUE(engine_.launched.empty());
  EXPECT_EQ(err(),
            "uprobe-run: /tmp: cannot write to it: it is a directory\n"
            "  -o takes the name of a file, or - for standard output\n");
}

TEST_F(CliRun, AFullDiskIsToldOnceAndTheProgramsCodeStays) {
  engine_.lines = {"one\n", "two\n", "three\n"};
  engine_.ending = {false, 3};
  EXPECT_EQ(code({"-q", "-o", "/dev/full", "-p", "p:a x:y", "ls"}), 3);
  EXPECT_EQ(
      err(),
      "uprobe-run: /dev/full: writing failed: No space left on device; the trace ends here, the program goes on\n");
  EXPECT_EQ(engine_.answers, (std::vector<int>{0, ENOSPC, ENOSPC}));
}

TEST_F(CliRun, AReaderThatWentAwayIsNoNews) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  out_ = Fd(ends[1]);
  engine_.lines = {"one\n", "two\n"};
  engine_.ending = {false, 4};
  EXPECT_EQ(code({"-q", "-o", "-", "-p", "p:a x:y", "ls"}), 4);
  EXPECT_EQ(err(), "");
  EXPECT_EQ(engine_.answers, (std::vector<int>{0, EPIPE}));
}

TEST_F(CliRun, DryRunPrintsThePlanAndStartsNothing) {
  engine_.plan = {plan_report()};
  EXPECT_EQ(code({"--dry-run", "-p", "p:a /x:1"}), 0);
  EXPECT_EQ(out(), "p:uprobes/a /x:0x1\n  at    /x:0x1, address 0x0\n  tier  int3: because\n");
  EXPECT_TRUE(engine_.launched.empty());
  engine_.plan[0].tier = "refused";
  EXPECT_EQ(code({"--dry-run", "-p", "p:a /x:1", "ls"}), 125);
}

TEST_F(CliRun, ListingTheProgramOrAFile) {
  engine_.functions = {"p:zfree /bin/zsh:zfree", "p:zalloc /bin/zsh:zalloc"};
  EXPECT_EQ(code({"-lz*", "zsh"}), 0);
  EXPECT_EQ(out(), "p:zfree /bin/zsh:zfree\np:zalloc /bin/zsh:zalloc\n");
  EXPECT_EQ(engine_.listed, (Words{"/bin/zsh", "z*"}));
  EXPECT_EQ(code({"-x", "./demo", "-l"}), 0);
  EXPECT_EQ(engine_.listed, (Words{"./demo", ""}));
  EXPECT_EQ(err(), "");
}

TEST_F(CliRun, AnEmptyListSaysSo) {
  EXPECT_EQ(code({"-lz*", "zsh"}), 0);
  EXPECT_EQ(err(), "uprobe-run: /bin/zsh: no function matches 'z*'\n");
}

TEST_F(CliRun, AListOfAMissingProgramHelpsWithTheGlob) {
  engine_.missing_program = Error{.code = Code::not_found, .text = "No such file or directory", .where = "zfree"};
  EXPECT_EQ(code({"-l", "zfree", "zsh"}), 127);
  EXPECT_EQ(err(),
            "uprobe-run: zfree: No such file or directory\n"
            "  to list only some functions, attach the pattern: -l'zfree'\n");
}

TEST_F(CliRun, HelpAndVersionGoToStandardOutput) {
  EXPECT_EQ(code({"--help"}), 0);
  EXPECT_TRUE(out().starts_with("Usage: uprobe-run "));
  EXPECT_EQ(err(), "");
  out_ = Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(code({"--version"}), 125);
  EXPECT_EQ(err(), "uprobe-run: cannot write to standard output: No space left on device\n");
}

TEST_F(CliRun, VerboseTellsThePlanAndTheEnd) {
  engine_.plan = {plan_report()};
  engine_.ending = {true, SIGTERM};
  EXPECT_EQ(run({"-v", "-p", "p:a x:y", "ls"}).signal, SIGTERM);
  EXPECT_EQ(err(), "uprobe-run: /x:0x1: int3: because\nuprobe-run: tracing ls, PID " + std::to_string(::getpid()) +
                       "\nuprobe-run: the program was killed by signal 15\n");
}

TEST_F(CliRun, ColourWhenItIsAskedFor) {
  EXPECT_EQ(code({"--color=always", "--nonsense"}), 125);
  EXPECT_TRUE(err().starts_with("\x1b[1muprobe-run:\x1b[0m unknown option")) << err();
}

TEST_F(CliRun, AFailedLaunchLeavesNoPreliminaryFile) {
  char folder[] = "/tmp/cli_run_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  engine_.launch_error = Error{.code = Code::system, .text = "ptrace: Operation not permitted"};
  EXPECT_EQ(code({"-o", std::string(folder) + "/t-%p", "-p", "p:a x:y", "ls"}), 125);
  EXPECT_EQ(::rmdir(folder), 0) << "must be empty";
}

TEST_F(CliRun, AsksASessionInTheOrderOfTheWords) {
  engine_.reply = Reply{.text = "added a/b\n", .error = {}};
  EXPECT_EQ(code({"--control", "it", "-x", "/o", "-p", "p f", "--remove", "g/", "--stats", "--disable", "h"}), 0);
  EXPECT_EQ(text(out_), "added a/b\n");
  EXPECT_EQ(engine_.asked_session, "it");
  ASSERT_EQ(engine_.asked.size(), 4U);
  EXPECT_EQ(engine_.asked[0].kind, CommandKind::define);
  EXPECT_EQ(engine_.asked[0].text, "p f");
  EXPECT_EQ(engine_.asked[0].default_object, "/o");
  EXPECT_EQ(engine_.asked[1].kind, CommandKind::remove);
  EXPECT_EQ(engine_.asked[1].text, "g/");
  EXPECT_EQ(engine_.asked[2].kind, CommandKind::stats);
  EXPECT_EQ(engine_.asked[3].kind, CommandKind::disable);
  EXPECT_EQ(engine_.asked[3].text, "h");
}

TEST_F(CliRun, ShowsWhereTheOrderThatFailedIsWrong) {
  const Error error{.code = Code::usage, .text = "bad type", .where = "p:f /a:1 %di:u9", .column = 13};
  engine_.reply = Reply{.text = "removed x/y\n", .error = error, .failed = 1};
  EXPECT_EQ(code({"--control", "it", "--remove", "y", "-p", "p:f /a:1 %di:u9"}), kExitFailure);
  EXPECT_EQ(text(out_), "removed x/y\n");
  EXPECT_EQ(text(err_), "uprobe-run: -p: bad type\n  p:f /a:1 %di:u9\n               ^\n");
}

TEST_F(CliRun, ShowsNoControlBytesOfAReply) {
  engine_.reply = Reply{.text = "p:a/b /x\x1b[2J:0\n", .error = {}};
  EXPECT_EQ(code({"--control", "it", "--stats"}), 0);
  EXPECT_EQ(text(out_).find('\x1b'), std::string::npos);
  EXPECT_EQ(code({"--control", "it", "--skip-refused", "-p", "p f"}), 0);
  EXPECT_EQ(text(out_).find('\x1b'), std::string::npos);
}

TEST_F(CliRun, OrdersNeedASession) {
  EXPECT_EQ(code({"--remove", "x", "-p", "p f", "program"}), kExitFailure);
  EXPECT_NE(text(err_).find("--remove needs --control SESSION"), std::string::npos);
}

}  // namespace
}  // namespace uprobe::cli
