// SPDX-License-Identifier: MIT
// Prints the plan. See dry_run.h.
#include "cli/dry_run.h"

#include <capstone/capstone.h>

#include <algorithm>

#include "arch/abi/disassembler.h"
#include "cli/text.h"
#include "engine/base/text.h"

namespace uprobe::cli {

namespace {

constexpr std::string_view kRefused = "refused";

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

// A Capstone handle that closes itself; 0 when it could not be opened.
class Disassembler {
 public:
  Disassembler() {
    if (cs_open(arch::kCapstoneArch, arch::kCapstoneMode, &handle_) != CS_ERR_OK) handle_ = 0;
    if (handle_ != 0) cs_option(handle_, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
  }
  ~Disassembler() {
    if (handle_ != 0) cs_close(&handle_);
  }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;
  csh handle() const { return handle_; }

 private:
  csh handle_ = 0;
};

std::string decoded_text(const cs_insn& insn, std::size_t expected) {
  std::string text = insn.mnemonic;
  if (insn.op_str[0] != '\0') text += std::string(" ") + insn.op_str;
  if (insn.size != expected) text += " (Capstone reads " + std::to_string(insn.size) + " bytes)";
  return text;
}

std::string why_text(const PlanReport& report) {
  return escape(report.tier) + (report.why.empty() ? "" : ": " + escape(report.why));
}

std::string plan_lines(const PlanReport& report) {
  std::string text = escape(report.definition) + "\n  at    ";
  text += escape(report.path) + ":" + hex(report.offset);
  if (!report.symbol.empty()) text += ", " + escape(report.symbol);
  text += ", address " + hex(report.address) + "\n";
  if (!report.bytes.empty())
    text += "  insn  " + hex_bytes(report.bytes) + "   " + disassembly(report.bytes, report.address) + "\n";
  if (!report.returns.empty()) text += "  by    " + escape(report.returns) + "\n";
  return text + "  tier  " + why_text(report) + "\n";
}

}  // namespace

std::string disassembly(const std::vector<std::uint8_t>& bytes, std::uint64_t address) {
  const Disassembler disassembler;
  if (disassembler.handle() == 0) return "(no disassembler)";
  cs_insn* insn = nullptr;
  const std::size_t count = cs_disasm(disassembler.handle(), bytes.data(), bytes.size(), address, 1, &insn);
  if (count == 0) return "(not decoded)";
  const std::string text = decoded_text(*insn, bytes.size());
  cs_free(insn, count);
  return text;
}

std::string render_plan(const std::vector<PlanReport>& reports) {
  std::string text;
  for (const PlanReport& report : reports) text += plan_lines(report);
  return text;
}

std::string plan_line(const PlanReport& report) {
  std::string text = report.path + ":" + hex(report.offset);
  if (!report.symbol.empty()) text += " (" + report.symbol + ")";
  if (!report.returns.empty()) text += ": " + report.returns;
  return text + ": " + report.tier + (report.why.empty() ? "" : ": " + report.why);
}

bool any_refused(const std::vector<PlanReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const PlanReport& r) { return r.tier == kRefused; });
}

}  // namespace uprobe::cli
