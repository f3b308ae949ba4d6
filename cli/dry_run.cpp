// SPDX-License-Identifier: MIT
// Prints the plan. See dry_run.h.
#include "cli/dry_run.h"

#include <algorithm>

#include "arch/code/relocate.h"
#include "cli/text.h"
#include "engine/base/text.h"

namespace uprobe::cli {

namespace {

constexpr std::string_view kRefused = "refused", kHardware = "hardware";

std::string hex_bytes(const std::vector<std::uint8_t>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    if (!text.empty()) text += ' ';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// In AT&T syntax, as objdump and gdb print it.
std::string disassembly(const PlanReport& report) {
  const std::string text = arch::disassemble(report.bytes, Addr{report.address});
  return text.empty() ? "(not decoded)" : text;
}

std::string why_text(const PlanReport& report) {
  return escape(report.tier) + (report.why.empty() ? "" : ": " + escape(report.why));
}

std::string process_text(const PlaceInProcess& place) {
  const std::string process = "process " + std::to_string(place.pid);
  return place.address ? process + ", address " + hex(*place.address) : process + ", which has not mapped the file";
}

std::string plan_lines(const PlanReport& report) {
  std::string text = escape(report.definition) + "\n  at    ";
  if (report.tier == kHardware)
    return text + escape(report.symbol) + ", wherever the program generates it\n  tier  " + why_text(report) + "\n";
  text += escape(report.path) + ":" + hex(report.offset);
  if (!report.symbol.empty()) text += ", " + escape(report.symbol);
  text += ", address " + hex(report.address) + "\n";
  if (!report.bytes.empty()) text += "  insn  " + hex_bytes(report.bytes) + "   " + disassembly(report) + "\n";
  if (!report.returns.empty()) text += "  by    " + escape(report.returns) + "\n";
  for (const PlaceInProcess& place : report.processes) text += "  in    " + process_text(place) + "\n";
  return text + "  tier  " + why_text(report) + "\n";
}

}  // namespace

std::string render_plan(const std::vector<PlanReport>& reports) {
  std::string text;
  for (const PlanReport& report : reports) text += plan_lines(report);
  return text;
}

std::string plan_line(const PlanReport& report) {
  if (report.tier == kHardware) return report.path + ":" + report.symbol + ": " + report.tier + ": " + report.why;
  std::string text = report.path + ":" + hex(report.offset);
  if (!report.symbol.empty()) text += " (" + report.symbol + ")";
  if (!report.returns.empty()) text += ": " + report.returns;
  return text + ": " + report.tier + (report.why.empty() ? "" : ": " + report.why);
}

bool any_refused(const std::vector<PlanReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const PlanReport& r) { return r.tier == kRefused; });
}

}  // namespace uprobe::cli
