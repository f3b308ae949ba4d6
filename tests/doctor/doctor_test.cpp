// SPDX-License-Identifier: MIT
// The rules of ptrace in the situations that a machine can be in, and findings about real processes.
#include "engine/doctor/doctor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace uprobe {
namespace {

struct Row {
  PtraceRules rules;
  Verdict verdict;
  const char* says;
};

TEST(Doctor, TheRulesOfPtrace) {
  const Row rows[] = {
      {{.yama_scope = "", .is_root = false, .may_trace_all = false}, Verdict::good, "own processes"},
      {{.yama_scope = "0", .is_root = false, .may_trace_all = false}, Verdict::good, "own processes"},
      {{.yama_scope = "1", .is_root = false, .may_trace_all = false}, Verdict::limited, "scope is 1"},
      {{.yama_scope = "2", .is_root = false, .may_trace_all = false}, Verdict::bad, "scope is 2"},
      {{.yama_scope = "3", .is_root = true, .may_trace_all = true}, Verdict::bad, "scope is 3"},
      {{.yama_scope = "1", .is_root = true, .may_trace_all = true}, Verdict::good, "all users"},
      {{.yama_scope = "", .is_root = true, .may_trace_all = true, .is_in_user_namespace = true},
       Verdict::limited,
       "holds there alone"},
      {{.yama_scope = "2", .is_root = true, .may_trace_all = false}, Verdict::bad, "CAP_SYS_PTRACE"},
      {{.yama_scope = "", .is_root = true, .may_trace_all = false}, Verdict::limited, "lacks CAP_SYS_PTRACE"},
  };
  for (const Row& row : rows) {
    const Finding finding = judge_attaching(row.rules);
    EXPECT_EQ(finding.verdict, row.verdict) << finding.text;
    EXPECT_NE(finding.text.find(row.says), std::string::npos) << finding.text;
    EXPECT_EQ(finding.advice.empty(), row.verdict == Verdict::good) << finding.text;
  }
}

TEST(Doctor, EachFindingIsASentenceAboutSomething) {
  const std::vector<Finding> findings = examine_machine();
  EXPECT_GE(findings.size(), 8U);
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.subject.empty());
    EXPECT_FALSE(finding.text.empty()) << finding.subject;
    EXPECT_EQ(finding.text.find('\n'), std::string::npos) << finding.text;
  }
}

TEST(Doctor, AProcessStaysAsItIs) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  const std::vector<Finding> findings = examine_process(child, false);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG | WUNTRACED), 0) << "neither stopped nor ended";
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, Verdict::good) << findings[0].text;
  EXPECT_EQ(findings[0].text, "can be attached to");
}

TEST(Doctor, WhyAProcessCannotBeAttachedTo) {
  EXPECT_NE(examine_process(::getpid(), false).at(0).text.find("is this uprobe-run itself"), std::string::npos);
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const Finding gone = examine_process(ended, false).at(0);
  EXPECT_EQ(gone.verdict, Verdict::bad);
  EXPECT_NE(gone.text.find("no process"), std::string::npos) << gone.text;
}

}  // namespace
}  // namespace uprobe
