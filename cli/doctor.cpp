// SPDX-License-Identifier: MIT
// See doctor.h.
#include "cli/doctor.h"

#include <algorithm>

#include "cli/text.h"

namespace uprobe::cli {
namespace {

std::string_view verdict_text(Verdict verdict) {
  return verdict == Verdict::good ? "ok       " : verdict == Verdict::limited ? "limited  " : "no       ";
}

}  // namespace

std::string render_findings(const std::vector<Finding>& findings) {
  const std::string indent(verdict_text(Verdict::good).size(), ' ');
  std::string text;
  for (const Finding& finding : findings) {
    text += std::string(verdict_text(finding.verdict)) + escape(finding.subject) + ": " + escape(finding.text) + "\n";
    if (!finding.advice.empty()) text += indent + "-> " + escape(finding.advice) + "\n";
  }
  return text;
}

bool any_bad(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.verdict == Verdict::bad; });
}

}  // namespace uprobe::cli
