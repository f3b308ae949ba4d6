// SPDX-License-Identifier: MIT
// The findings of --doctor as text.
#include <gtest/gtest.h>

#include "cli/doctor.h"

namespace uprobe::cli {
namespace {

TEST(CliDoctor, ALineForEachFindingAndOneForItsAdvice) {
  const std::vector<Finding> findings = {{Verdict::good, "kernel", "Linux", ""},
                                         {Verdict::limited, "attaching", "to its own", "use sudo"}};
  EXPECT_EQ(render_findings(findings),
            "ok       kernel: Linux\n"
            "limited  attaching: to its own\n"
            "         -> use sudo\n");
  EXPECT_FALSE(any_bad(findings));
}

TEST(CliDoctor, NoNameForgesALine) {
  const std::vector<Finding> findings = {{Verdict::bad, "process 1 (a\nok x)", "is\x1b a ghost", ""}};
  EXPECT_EQ(render_findings(findings), "no       process 1 (a\\nok x): is\\x1b a ghost\n");
  EXPECT_TRUE(any_bad(findings));
}

}  // namespace
}  // namespace uprobe::cli
