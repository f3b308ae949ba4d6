// SPDX-License-Identifier: MIT
#include "engine/resolve/event_enable_plan.h"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace uprobe {
namespace {

using program::TriggerProgram;
using program::TriggerSpec;

Error about(const std::string& trigger, std::size_t at, std::string text, int err) {
  return Error{
      .code = Code::usage, .text = std::move(text), .where = trigger, .column = static_cast<int>(at), .err = err};
}

class Planner {
 public:
  Planner(const spec::DefinitionSet& definitions, const std::vector<program::EventLayout>& layouts, unsigned cpus,
          const ChangeRules& rules)
      : definitions_(definitions),
        layouts_(layouts),
        cpus_(cpus),
        rules_(rules),
        probes_(definitions.probes()),
        events_(definitions.events()) {}

  Result<SwitchPlan> plan();

 private:
  const spec::EventControls& controls_of(const spec::EventProbes& event) const {
    return definitions_.controls_of(probes_[event.probes.front()]);
  }
  Status add_event(std::uint32_t number);
  Result<TriggerProgram> make(const TriggerSpec& spec, const std::string& text, std::uint32_t number);
  Status add_histogram(const TriggerSpec& spec, const std::string& text, std::uint32_t number);
  Status add_change(const TriggerSpec& spec, const std::string& text, std::uint32_t number, TriggerProgram& made) const;
  std::optional<std::uint32_t> find(const std::string& group, const std::string& event) const;
  std::string events_help() const;

  const spec::DefinitionSet& definitions_;
  const std::vector<program::EventLayout>& layouts_;
  unsigned cpus_;
  const ChangeRules& rules_;
  std::vector<spec::ProbeSpec> probes_;
  std::vector<spec::EventProbes> events_;
  SwitchPlan plan_;
};

std::optional<std::uint32_t> Planner::find(const std::string& group, const std::string& event) const {
  for (std::uint32_t i = 0; i < events_.size(); ++i)
    if (events_[i].group == group && events_[i].event == event) return i;
  return std::nullopt;
}

// Which events there are, as triggers name them.
std::string Planner::events_help() const {
  constexpr std::size_t kShown = 10;
  std::string names;
  for (std::size_t i = 0; i < std::min(events_.size(), kShown); ++i)
    names += (names.empty() ? "there are: " : ", ") + events_[i].group + ":" + events_[i].event;
  return names + (events_.size() > kShown ? ", ..." : "");
}

Status Planner::add_histogram(const TriggerSpec& spec, const std::string& text, std::uint32_t number) {
  const program::EventLayout& layout = layouts_[events_[number].probes.front()];
  auto plan = program::parse_histogram(text, spec.attributes_at, spec.attributes_end, layout);
  if (!plan) return plan.error();
  plan->filter = spec.filter;
  std::uint32_t others = 0;
  for (const trace::EventHistogram& other : plan_.histograms) {
    if (other.event != number) continue;
    if (program::are_same(other.plan, *plan)) return about(text, 0, "Hist trigger already exists", EEXIST);
    if (++others == shared::kMaxEventHistograms)
      return about(text, 0, "an event can have at most four histograms", EINVAL);
  }
  plan_.histograms.push_back({.event = number, .plan = plan.take()});
  return ok();
}

// Why a trigger does not suit the kind of its event; null: it does.
const char* reason_against(const TriggerSpec& spec, bool is_return) {
  if (spec.kind == shared::TriggerKind::override_return && is_return)
    return "return= is for the entry of a function, and this probe is at its return: there is 'set $retval=VALUE'";
  if (spec.kind != shared::TriggerKind::set_register || spec.action.is_of_return == is_return) return nullptr;
  return is_return ? "at a return only $retval can be set" : "$retval can be set at a return, with r: or -r";
}

// Of several places one that cannot be changed refuses all.
Status Planner::add_change(const TriggerSpec& spec, const std::string& text, std::uint32_t number,
                           TriggerProgram& made) const {
  const std::vector<std::size_t>& places = events_[number].probes;
  if (!rules_.are_allowed) {
    Error error = about(text, 0, "this trigger changes the program", EPERM);
    error.help = "--allow-change permits it";
    return error;
  }
  if (spec.kind == shared::TriggerKind::call_back && !rules_.may_call_back)
    return about(text, 0, "callbacks are for a program that attaches to itself (uprobe/session.h)", EPERM);
  if (const char* why = reason_against(spec, probes_[places.front()].is_return)) return about(text, 0, why, EINVAL);
  made.value = spec.action.value, made.error_number = spec.action.error_number;
  if (spec.kind == shared::TriggerKind::set_register) made.target = static_cast<std::uint32_t>(spec.action.target);
  if (spec.kind == shared::TriggerKind::call_back) made.target = spec.action.callback;
  for (const std::size_t probe : places) {
    const auto found = rules_.look ? rules_.look(probe, spec) : Result<ErrnoSource>(ErrnoSource{});
    if (!found) return about(text, 0, found.error().text, EINVAL);
    made.errno_place = found->place, made.errno_at = found->at, made.libc = found->libc;
  }
  return ok();
}

Result<TriggerProgram> Planner::make(const TriggerSpec& spec, const std::string& text, std::uint32_t number) {
  TriggerProgram made{.kind = spec.kind, .target = 0, .count = spec.count, .condition = {}};
  if (!spec.event.empty()) {
    const auto target = find(spec.group, spec.event);
    if (!target) {
      Error error = about(text, spec.target_at, "no event " + spec.group + ":" + spec.event + " is defined", EINVAL);
      error.help = events_help();
      return error;
    }
    made.target = *target;
  }
  if (spec.kind == shared::TriggerKind::histogram) {
    RETURN_IF_ERROR(add_histogram(spec, text, number));
    made.target = static_cast<std::uint32_t>(plan_.histograms.size() - 1);
  }
  if (shared::changes_program(spec.kind)) RETURN_IF_ERROR(add_change(spec, text, number, made));
  const program::EventLayout& layout = layouts_[events_[number].probes.front()];
  auto condition = program::compile_condition(spec, text, layout, {.id = number + 1, .cpus = cpus_});
  if (!condition) return condition.error();
  made.condition = condition.take();
  program::EventProgram alone{
      .layout = layout, .insns = {}, .text = made.condition.text, .filter = made.condition.tests};
  RETURN_IF_ERROR(program::verify_filter(alone));
  return made;
}

// The newest trigger acts first, as in the kernel.
Status Planner::add_event(std::uint32_t number) {
  const spec::EventControls& controls = controls_of(events_[number]);
  const auto first = static_cast<std::uint32_t>(plan_.triggers.size());
  std::vector<TriggerSpec> known;
  for (const std::string& text : controls.triggers) {
    auto spec = program::parse_trigger(text);
    if (!spec) return spec.error();
    const auto excludes = [&](const TriggerSpec& other) { return program::exclude_each_other(*spec, other); };
    if (std::ranges::any_of(known, excludes)) return about(text, 0, "the event already has such a trigger", EEXIST);
    auto made = make(*spec, text, number);
    if (!made) return made.error();
    const bool is_paused = spec->kind == shared::TriggerKind::histogram && plan_.histograms.back().plan.is_paused;
    if (!is_paused) plan_.triggers.push_back(made.take());
    known.push_back(spec.take());
  }
  std::reverse(plan_.triggers.begin() + first, plan_.triggers.end());
  const auto count = static_cast<std::uint32_t>(plan_.triggers.size()) - first;
  for (const std::size_t probe : events_[number].probes)
    plan_.switches[probe] = {
        .number = number, .is_off = controls.is_disabled, .first_trigger = first, .trigger_count = count};
  return ok();
}

Result<SwitchPlan> Planner::plan() {
  const bool any = std::ranges::any_of(events_, [&](const spec::EventProbes& event) {
    const spec::EventControls& controls = controls_of(event);
    return controls.is_disabled || !controls.triggers.empty();
  });
  if (!any) return std::move(plan_);
  plan_.switches.resize(probes_.size());
  for (std::uint32_t number = 0; number < events_.size(); ++number) RETURN_IF_ERROR(add_event(number));
  return std::move(plan_);
}

bool is_stack(const program::HistogramWord& key) {
  return static_cast<shared::HistogramSource>(key.field.source) == shared::HistogramSource::stack;
}

bool shows_symbol(const program::HistogramWord& key) {
  return key.modifier == program::HistogramModifier::symbol ||
         key.modifier == program::HistogramModifier::symbol_offset || is_stack(key);
}

bool has_key(const SwitchPlan& plan, bool (*is_it)(const program::HistogramWord&)) {
  return std::ranges::any_of(plan.histograms, [is_it](const trace::EventHistogram& histogram) {
    return std::ranges::any_of(histogram.plan.keys, is_it);
  });
}

}  // namespace

bool changes_program(const SwitchPlan& plan, std::size_t probe) {
  if (probe >= plan.switches.size()) return false;
  const trace::EventSwitch& of = plan.switches[probe];
  const auto begin = plan.triggers.begin() + of.first_trigger;
  return std::any_of(begin, begin + of.trigger_count,
                     [](const TriggerProgram& trigger) { return shared::changes_program(trigger.kind); });
}

bool shows_addresses(const SwitchPlan& plan) {
  const bool has_stacks = std::ranges::any_of(
      plan.triggers, [](const TriggerProgram& trigger) { return trigger.kind == shared::TriggerKind::stack; });
  return has_stacks || has_key(plan, shows_symbol);
}

bool has_stack_keys(const SwitchPlan& plan) { return has_key(plan, is_stack); }

Result<SwitchPlan> plan_switches(const spec::DefinitionSet& definitions,
                                 const std::vector<program::EventLayout>& layouts, unsigned cpus,
                                 const ChangeRules& rules) {
  return Planner(definitions, layouts, cpus, rules).plan();
}

}  // namespace uprobe
