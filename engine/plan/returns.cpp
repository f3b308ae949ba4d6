// SPDX-License-Identifier: MIT
#include "engine/plan/returns.h"

#include <algorithm>

#include "arch/code/scan.h"
#include "engine/base/text.h"
#include "engine/plan/exit_place.h"
#include "engine/plan/override_fit.h"
#include "engine/plan/stub_fit.h"

namespace uprobe::plan {
namespace {

Error refused(std::string text, std::string help = {}) {
  return Error{.code = Code::refused, .text = std::move(text), .help = std::move(help)};
}

std::string name_of(const Site& site) {
  return site.symbol.empty() ? "the function at " + hex(site.offset) : "'" + site.symbol + "'";
}

// Whether an argument is what the program's registers or memory hold at the return, or when that is: before another function
// has returned in this one's stead that is not known.
bool depends_on_return(const spec::Argument& argument) {
  using spec::Sink;
  const bool is_constant =
      argument.sink == Sink::value && argument.steps.size() == 1 && argument.steps[0].kind == spec::StepKind::constant;
  const bool is_of_entry =
      argument.sink == Sink::value && argument.steps.size() == 1 && argument.steps[0].kind == spec::StepKind::entry;
  return argument.sink != Sink::comm && argument.sink != Sink::text && !is_constant && !is_of_entry;
}

// What the arguments take from registers.
RegisterSet registers_of(const spec::ProbeSpec& spec) {
  RegisterSet all = 0;
  for (const spec::Argument& argument : spec.arguments)
    for (const spec::Step& step : argument.steps)
      if (step.kind == spec::StepKind::reg) all |= RegisterSet{1} << static_cast<unsigned>(step.reg);
  return all;
}

}  // namespace

const FunctionEntries& ReturnPlanner::entries_of(const FileFlow& flow) {
  auto& entries = entries_[&flow];
  if (!entries) entries = std::make_unique<FunctionEntries>(flow);
  return *entries;
}

namespace {

// Calls of the function and jumps of others are new calls; one from inside begins it anew with other registers.
bool begins_anew(const FileFlow& flow, std::uint64_t entry) {
  const SweptFunction* function = flow.swept_at(entry);
  if (function == nullptr) return true;
  arch::Scanned insn;
  const elf::Range& range = function->range;
  for (auto at = flow.next_start(entry, range.end); at; at = flow.next_start(*at + 1, range.end)) {
    if (!arch::scan(flow.bytes_at(*at), Addr{*at}, insn)) return true;
    const bool jumps = insn.leads == arch::Leads::jump || insn.leads == arch::Leads::jump_if;
    if (jumps && insn.target == entry) return true;
  }
  return false;
}

// Why values of the entry cannot be had at the return; empty: they can.
std::string reason_against_entry(const FileFlow& flow, const Site& site) {
  if (flow.is_go()) return "is Go's, whose stacks move: what it was called with is not known at its return";
  if (begins_anew(flow, site.address))
    return "jumps to its own beginning: what it was called with is not known at its return";
  return {};
}

}  // namespace

Result<ReturnPlan> ReturnPlanner::plan_exits(const spec::ProbeSpec& spec, const Site& site, const char* stub_help) {
  if (site.is_ifunc)
    return refused(name_of(site) + " is chosen at run time (IFUNC): its returns are not known before",
                   "probe the implementation by its own name");
  const FileFlow& flow = flows_.of(site.file);
  const std::string reason = spec::wants_entry(spec) ? reason_against_entry(flow, site) : "";
  if (!reason.empty()) return refused(name_of(site) + " " + reason);
  auto exits = exits_of(flow, entries_of(flow), site.address);
  if (!exits) return refused(name_of(site) + " " + exits.error().text);
  ReturnPlan plan{.mode = ReturnMode::exits, .exits = {}, .sites = {}};
  for (Exit& exit : *exits) {
    exit = place_for(flow, exit, registers_of(spec));
    auto place = site_at(site.file, site.file->offset_of_address(exit.address).value_or(0));
    if (!place) return place.error();
    plan.sites.push_back(place.take());
  }
  const auto jump = std::find_if(exits->begin(), exits->end(), [](const Exit& exit) { return exit.is_jump; });
  const auto argument = std::find_if(spec.arguments.begin(), spec.arguments.end(), depends_on_return);
  if (jump == exits->end() || argument == spec.arguments.end()) {
    plan.exits = exits.take();
    return plan;
  }
  Error error =
      refused(name_of(site) + " ends at " + hex(site.file->offset_of_address(jump->address).value_or(jump->address)) +
                  " in another function, which returns for it: '" + argument->name + "' is not known there",
              "without arguments its returns can be probed" + std::string(stub_help));
  error.column = argument->column;
  return error;
}

// Exits where they do: nothing on a stack changes. What cannot be had by them returns by a stub, if one is right for it.
Result<ReturnPlan> ReturnPlanner::plan(const spec::ProbeSpec& spec, const Site& site, ReturnMode wanted) {
  if (!begins_function(*site.file, site.address))
    return refused("a return probe belongs at the beginning of a function, and " + hex(site.offset) + " is none",
                   site.symbol.empty() ? std::string() : "it is " + site.symbol);
  const std::string against = reason_against_stub(flows_.of(site.file), site);
  if (wanted == ReturnMode::stub && !against.empty())
    return refused(name_of(site) + " " + against, "--return=exits probes its returns");
  const ReturnPlan stub{.mode = ReturnMode::stub, .exits = {}, .sites = {}};
  if (wanted == ReturnMode::stub) return stub;
  auto exits = plan_exits(spec, site, against.empty() ? "; --return=stub follows it to its return" : "");
  return exits || wanted == ReturnMode::exits || !against.empty() ? exits : Result<ReturnPlan>(stub);
}

}  // namespace uprobe::plan
