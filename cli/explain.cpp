// SPDX-License-Identifier: MIT
// See explain.h.
#include "cli/explain.h"

#include <algorithm>

#include "arch/code/relocate.h"
#include "cli/text.h"
#include "engine/base/text.h"
#include "engine/names/demangle.h"

namespace uprobe::cli {
namespace {

bool is_jump(const PlanReport& report) { return report.tier == "jump"; }
bool is_generated(const PlanReport& report) { return report.tier == "hardware"; }
bool is_by_stub(const PlanReport& report) { return report.returns == "a stub"; }

// Of "p:GROUP/EVENT PATH:OFFSET FETCH...", whose path may contain blanks.
std::string event_of(const PlanReport& report) {
  const std::size_t colon = report.definition.find(':'), end = report.definition.find(' ');
  return report.definition.substr(colon + 1, end - colon - 1);
}

std::string fetches_of(const PlanReport& report) {
  if (is_generated(report)) {
    const std::string generated = " " + report.path + ":" + report.symbol + " ";
    const std::size_t end = report.definition.find(generated);
    return end == std::string::npos ? std::string() : report.definition.substr(end + generated.size());
  }
  const std::size_t place = report.definition.find(" " + report.path + ":");
  if (place == std::string::npos) return {};
  const std::size_t end = report.definition.find(' ', place + report.path.size() + 2);
  return end == std::string::npos ? std::string() : report.definition.substr(end + 1);
}

// "ns::f(int)+0x4" of a symbol as the file has it.
std::string spoken(const std::string& symbol) {
  const std::size_t distance = std::min(symbol.find("+0x"), symbol.size());
  return elf::demangle(symbol.substr(0, distance)) + symbol.substr(distance);
}

// "each call of zfree in /bin/zsh", "each time zsh_main+0x4 in /bin/zsh is reached"
std::string occasion(const PlanReport& report) {
  if (is_generated(report))
    return "each call of the functions " + report.symbol +
           " that the program generates, as /tmp/perf-PID.map names them";
  const std::string file = " in " + report.path + " (offset " + hex(report.offset) + ")";
  const std::string place = report.symbol.empty() ? "the instruction" : spoken(report.symbol);
  if (!report.returns.empty()) return "each return of " + place + file;
  const bool is_entry = !report.symbol.empty() && report.symbol.find('+') == std::string::npos;
  return is_entry ? "each call of " + place + file : "each time that " + place + file + " is reached";
}

std::string way(const PlanReport& report) {
  if (is_generated(report))
    return "The probe is a breakpoint of the processor, which changes no byte of the code; there are four.";
  std::string insn = report.bytes.empty() ? std::string() : arch::disassemble(report.bytes, Addr{report.address});
  if (!insn.empty()) insn = " on '" + insn + "'";
  std::string text = is_jump(report) ? "The probe is a jump" + insn + ", without a trap or a system call."
                                     : "The probe is a breakpoint" + insn + ", because " + report.why + ".";
  if (is_jump(report) && !report.why.empty()) text += " It is at " + report.why + ".";
  if (report.returns.empty()) return text;
  if (is_by_stub(report)) return text + " At a call the return address is replaced by that of a stub.";
  return text + " The returns are seen at " + report.returns + ".";
}

std::string in_processes(const PlanReport& report) {
  std::string text;
  for (const PlaceInProcess& place : report.processes) {
    const std::string process = "Process " + std::to_string(place.pid);
    text += place.address ? process + " has it at address " + hex(*place.address) + ".\n"
                          : process + " has not mapped the file yet; it is probed there once that has happened.\n";
  }
  return text;
}

std::string cost(const PlanReport& report) {
  if (is_by_stub(report))
    return is_jump(report) ? "A call with its return costs about 200 nanoseconds."
                           : "A call with its return costs about 1,500 nanoseconds.";
  if (is_generated(report)) return "A hit costs some microseconds, in a virtual machine some ten.";
  return is_jump(report) ? "A hit costs about 20 nanoseconds." : "A hit costs about 1,300 nanoseconds.";
}

std::string advice(const PlanReport& report) {
  if (is_generated(report)) return {};
  if (!is_jump(report) && report.why.find("--tier") != std::string::npos)
    return "Without --tier=int3 it would be a jump where that is safe.";
  if (report.changes_program) return "The summary counts each change.";
  if (report.why.starts_with("Go code in") || report.why.starts_with("Go code of"))
    return "So it is everywhere in its Go code.";
  if (!is_jump(report))
    return "Another instruction of the function may take a jump, at a sixtieth of the cost: --dry-run shows each "
           "place's tier.";
  if (is_by_stub(report)) return "A probe at the function's entry, p: instead of r:, costs a tenth.";
  return {};
}

// A name in a file may hold a newline: it must not become a line of its own.
PlanReport escaped(PlanReport report) {
  for (std::string* text : {&report.definition, &report.path, &report.symbol, &report.returns, &report.why})
    *text = escape(*text);
  return report;
}

std::string paragraph(const PlanReport& report) {
  const std::string event = event_of(report), fetches = fetches_of(report);
  if (report.tier == "refused") return event + " is refused: " + report.why + ".\n";
  std::string text = event + " records " + occasion(report) + ".\n";
  text += fetches.empty() ? "It writes time, CPU, thread and address, and no values: add some, e.g. %di or $arg1.\n"
                          : "It writes time, CPU, thread, address, and: " + fetches + "\n";
  text += way(report) + "\n" + in_processes(report) + cost(report);
  if (const std::string better = advice(report); !better.empty()) text += " " + better;
  return text + "\n";
}

}  // namespace

std::string render_explanation(const std::vector<PlanReport>& reports) {
  std::string text;
  for (const PlanReport& report : reports) text += (text.empty() ? "" : "\n") + paragraph(escaped(report));
  return text;
}

}  // namespace uprobe::cli
