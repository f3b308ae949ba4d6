// SPDX-License-Identifier: MIT
#include "engine/resolve/probe_builder.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "arch/code/instruction_bytes.h"
#include "arch/code/vector_state.h"
#include "engine/base/process_paths.h"
#include "engine/base/text.h"
#include "engine/plan/override_fit.h"
#include "engine/program/compile.h"
#include "engine/program/filter.h"
#include "engine/program/histogram_fields.h"
#include "engine/program/verify.h"
#include "engine/resolve/generated_places.h"
#include "engine/spec/argument.h"
#include "engine/summary/call_times.h"

namespace uprobe {
namespace {

void set_style(Probe& probe, spec::Style wanted) {
  program::EventLayout& layout = probe.program.layout;
  if (layout.style == spec::Style::event) layout.style = wanted;
  const std::string& symbol = probe.spec.place.symbol;  // perhaps with a version
  layout.place = layout.style == spec::Style::kprobes_2009 ? plan::place_of_2009(probe.site.symbol, probe.site.address)
                                                           : symbol.substr(0, symbol.find('@'));
}

// The beginning of the function whose entry or return is probed. An entry that was moved after the prologue still is its function's.
std::string function_of(const Probe& probe) {
  const spec::Place& place = probe.spec.place;
  if (place.is_generated || (!place.symbol.empty() && place.offset != 0)) return {};
  std::uint64_t offset = probe.site.offset;
  const std::size_t plus = probe.site.symbol.rfind("+0x");
  if (!place.symbol.empty() && plus != std::string::npos)
    offset -= std::strtoull(probe.site.symbol.c_str() + plus + 1, nullptr, 16);
  return probe.site.file->path() + ":" + hex(offset);
}

// Checks the traced machine, which is this one.
Status check_vectors(const spec::ProbeSpec& spec) {
  for (const spec::Argument& argument : spec.arguments)
    if (argument.sink == spec::Sink::value && spec::fixed_size(argument) > shared::kXmmBytes && !arch::has_ymm())
      return spec::at_column(spec, argument.column,
                             Error{.code = Code::refused, .text = "this processor has no %ymm registers"});
  return ok();
}

// The kernel's rule, and that the file has the counter at all.
Status check_counter(const Probe& probe) {
  const auto counter = probe.spec.place.reference_counter;
  if (!counter) return ok();
  const auto refused = [&](const char* why) {
    return spec::at_column(probe.spec, probe.spec.place.place_column,
                           Error{.code = Code::refused, .text = why, .err = EINVAL});
  };
  if (probe.spec.place.is_generated) return refused("generated code has no reference counter");
  if (*counter % 2 != 0) return refused("a reference counter has two bytes, at an even offset");
  for (const elf::Segment& segment : probe.site.file->segments())
    if (segment.writable && *counter >= segment.offset && *counter - segment.offset + 2 <= segment.file_bytes &&
        *counter - segment.offset < segment.file_bytes)
      return ok();
  return refused("the reference counter is not in writable data of the file");
}

bool fetches(const spec::ProbeSpec& spec, shared::Reg reg) {
  return std::ranges::any_of(spec.arguments, [&](const spec::Argument& argument) {
    return std::ranges::any_of(
        argument.steps, [&](const spec::Step& step) { return step.kind == spec::StepKind::reg && step.reg == reg; });
  });
}

// glibc's. That of musl is its libc, which links nothing later on.
bool is_loader(const std::string& path) { return path.substr(path.rfind('/') + 1).starts_with("ld-linux"); }

}  // namespace

bool shows_symbols(const Probe& probe) {
  const auto& fields = probe.program.layout.fields;
  return probe.program.layout.style != spec::Style::event ||
         std::any_of(fields.begin(), fields.end(), [](const auto& field) { return field.kind == spec::Kind::symbol; });
}

bool is_function_entry(const Probe& probe) {
  if (probe.returns) return false;
  if (probe.spec.place.is_generated) return true;
  const auto& symbol = probe.site.symbol;
  const auto& insn = probe.site.insn;
  return (!symbol.empty() && symbol.find('+') == std::string::npos) || arch::is_function_start(insn);
}

void add_points(const Probe& probe, std::uint16_t event, control::ProbeSet& to) {
  if (const auto counter = probe.spec.place.reference_counter) to.add_semaphore(probe.site.file, *counter, event);
  if (probe.spec.place.is_generated) return to.add_generated({event, probe.spec.place.symbol});
  if (!probe.returns) return to.add(probe.site, {.event = event, .changes_program = probe.changes_program});
  if (probe.returns->mode == plan::ReturnMode::stub)
    return to.add(probe.site,
                  {.event = event, .kind = shared::ConsumerKind::stub, .changes_program = probe.changes_program});
  if (spec::wants_entry(probe.spec)) to.add(probe.site, {.event = event, .kind = shared::ConsumerKind::note});
  for (std::size_t i = 0; i < probe.returns->exits.size(); ++i) {
    const plan::Exit& exit = probe.returns->exits[i];
    to.add(probe.returns->sites[i], {.event = event,
                                     .kind = shared::ConsumerKind::exit,
                                     .distance = static_cast<std::int32_t>(exit.address - probe.site.address),
                                     .pops = exit.pops,
                                     .lead = exit.lead,
                                     .restored = exit.restored,
                                     .changes_program = probe.changes_program});
  }
}

Status number_objects(std::vector<Probe>& probes, control::ProbeSet& in) {
  for (Probe& probe : probes)
    for (shared::Insn& insn : probe.program.insns) {
      if (insn.op != shared::Op::load_object) continue;
      const auto number = in.number_of(probe.objects[insn.count]);
      if (!number) return spec::at_column(probe.spec, probe.spec.place.place_column, number.error());
      insn.count = *number;
    }
  return ok();
}

ProbeBuilder::ProbeBuilder(const SessionOptions& options, plan::FlowCache& flows)
    : options_(options),
      flows_(flows),
      planner_(flows),
      resolver_(files_, [this](const spec::ProbeSpec& spec, const plan::Site& site) { return can_probe(spec, site); }),
      definitions_(
          {.strict = options.strict,
           .words_2009 = !options.strict && options.style == spec::Style::kprobes_2009,
           .file_check = [this](const std::string& path) { return spec::look_up_file(as_seen_by(program_, path)); }},
          options.strict ? spec::Resolve() : [this](spec::ProbeSpec spec) { return find(std::move(spec)); }) {}

// A function is in a summary once, whatever patterns it matches.
void ProbeBuilder::leave_out_summed(std::vector<spec::ProbeSpec>& specs) {
  std::erase_if(specs, [&](const spec::ProbeSpec& spec) {
    return spec.place.found && !summed_.emplace(spec.place.path, spec.place.found->offset).second;
  });
}

Result<std::vector<spec::ProbeSpec>> ProbeBuilder::find(spec::ProbeSpec spec) {
  if (!sums_calls_) return mark_thinned(spec), resolver_(std::move(spec));
  auto found = resolver_(summary::sums_of(std::move(spec)));
  if (!found) return found;
  leave_out_summed(*found);
  return found;
}

// The choice among returns is the entry record.
void ProbeBuilder::mark_thinned(spec::ProbeSpec& spec) const {
  spec.needs_entry = spec.is_return && !spec.sums_calls && options_.thinning.needs_entry();
}

Status ProbeBuilder::check_thinning(const spec::ProbeSpec& spec) const {
  if (options_.thinning.min_latency == 0 || spec.is_return || spec.sums_calls) return ok();
  return spec::at_column(
      spec, spec.place.place_column,
      Error{.code = Code::refused,
            .text = "--min-latency chooses among returns: an entry is recorded before it is known how "
                    "long the call lasts",
            .help = "-r alone; its entry($arg1) is a value of the entry"});
}

Status ProbeBuilder::can_probe(const spec::ProbeSpec& spec, const plan::Site& site) {
  if (!options_.force) RETURN_IF_ERROR(plan::check_start(site.file, site.address, files_, flows_));
  if (!spec.is_return) return ok();
  const auto planned = planner_.plan(spec, site, options_.returns);
  return planned ? ok() : Status(planned.error());
}

Status ProbeBuilder::add(const Definition& definition) {
  if (options_.style == spec::Style::kprobes_2009 && is_all_blank(definition.text)) definitions_.clear();
  program_ = definition.default_object;
  sums_calls_ = definition.sums_calls;
  const bool may_have_fields = !options_.strict && !definition.triggers.empty();
  const auto fields = may_have_fields ? program::fields_for(definition.text, definition.triggers)
                                      : program::HistogramFields{definition.triggers, definition.text, definition.text};
  const bool has_variables =
      fields.with_variables != fields.definition && definitions_.add(fields.with_variables, definition.default_object);
  if (!has_variables) RETURN_IF_ERROR(definitions_.add(fields.definition, definition.default_object));
  spec::EventControls controls{
      .filter = definition.filter, .triggers = fields.triggers, .is_disabled = definition.is_disabled};
  controls.is_disabled = controls.is_disabled || sums_calls_;
  definitions_.control(controls);
  return ok();
}

Status ProbeBuilder::read(const Definition& definition) {
  const int number = reads_++;
  if (const Status added = add(definition); !added) {
    Error error = added.error();
    error.definition = number;
    return error;
  }
  const auto& all = definitions_.by_id();
  const spec::DefinitionSet::Id known = read_by_.empty() ? 0 : read_by_.rbegin()->first + 1;
  for (auto at = all.lower_bound(known); at != all.end(); ++at) read_by_.emplace(at->first, number);
  return ok();
}

// The number of each probe's event, as in format files.
std::map<spec::DefinitionSet::Id, unsigned> ProbeBuilder::event_numbers() const {
  std::vector<spec::DefinitionSet::Id> ids;
  for (const auto& [id, definition] : definitions_.by_id()) ids.push_back(id);
  std::map<spec::DefinitionSet::Id, unsigned> numbers;
  unsigned number = 0;
  for (const spec::EventProbes& event : definitions_.events()) {
    ++number;
    for (const std::size_t probe : event.probes) numbers[ids[probe]] = number;
  }
  return numbers;
}

// Decides how a return probe catches the returns, and which places that needs.
Status ProbeBuilder::plan_returns(Probe& probe) {
  auto returns = planner_.plan(probe.spec, probe.site, options_.returns);
  if (!returns) {
    const int argument = returns.error().column;
    return spec::at_column(probe.spec, argument < 0 ? probe.spec.place.place_column : argument, returns.error());
  }
  probe.returns = returns.take();
  return ok();
}

Result<Probe> ProbeBuilder::make(const spec::ProbeSpec& definition, unsigned event_number) {
  RETURN_IF_ERROR(check_thinning(definition));
  Probe probe{.spec = definition, .site = {}, .program = {}, .returns = {}};
  mark_thinned(probe.spec);
  auto site = definition.place.is_generated ? site_of_generated(definition, files_)
                                            : plan::resolve(probe.spec, files_, flows_, {.force = options_.force});
  if (!site) return site.error();
  probe.site = site.take();
  RETURN_IF_ERROR(check_counter(probe));
  RETURN_IF_ERROR(check_vectors(probe.spec));
  auto program = program::compile(probe.spec);
  if (!program) return program.error();
  const spec::EventControls& controls = definitions_.controls_of(definition);
  if (controls.filter && definition.sums_calls)
    return of_filter(controls,
                     Error{.code = Code::refused,
                           .text = "a summary has all calls of a function, and no filter chooses among them"});
  if (controls.filter) {
    const program::FilterContext context{.id = event_number, .cpus = cpus_};
    if (Status set = program::set_filter(*program, *controls.filter, context); !set)
      return of_filter(controls, set.error());
  }
  program->sums_calls = definition.sums_calls;
  if (!definition.sums_calls) program->thinning = options_.thinning;
  if (options_.unseen_thread != 0) {
    program::leave_out_thread(*program, options_.unseen_thread);
    probe.just_unseen = !controls.filter;
  }
  RETURN_IF_ERROR(program::verify(*program));
  for (const program::ObjectData& data : program->objects) {
    control::NamedObject object{resolver_.object(data.path), std::nullopt, data.exported, data.exported_address};
    if (!object.file) return Error{.code = Code::not_found, .text = data.path + " was not looked up"};
    object.version = control::version_of(data.path);
    if (!object.version || object.version->identity != object.file->identity())
      return Error{.code = Code::refused, .text = data.path + " was replaced while it was read"};
    probe.objects.push_back(std::move(object));
  }
  probe.program = program.take();
  set_style(probe, options_.style);
  probe.program.layout.function = function_of(probe);
  if (definition.is_return) RETURN_IF_ERROR(plan_returns(probe));
  return probe;
}

Result<std::vector<Probe>> ProbeBuilder::make_new() {
  std::vector<Probe> made;
  std::vector<spec::DefinitionSet::Id> fresh;
  const auto& all = definitions_.by_id();
  for (auto at = all.lower_bound(made_); at != all.end(); ++at) fresh.push_back(at->first);
  const auto numbers = event_numbers();
  for (const spec::DefinitionSet::Id id : fresh) {
    auto probe = make(all.at(id), numbers.at(id));
    if (!probe) {
      Error error = probe.error();
      error.definition = read_by_.at(id);
      for (const spec::DefinitionSet::Id unmade : fresh) forget(unmade);
      return error;
    }
    probe->id = id, probe->definition = read_by_.at(id);
    made.push_back(probe.take());
  }
  if (!fresh.empty()) made_ = fresh.back() + 1;
  definitions_.keep_names();
  resolver_.close_debug_info();
  return made;
}

// Of the probed file itself, else of the libc that the program is linked with, else of the system's.
std::optional<plan::ErrnoPlace> ProbeBuilder::errno_for(const Probe& probe) {
  if (auto own = plan::errno_place_in(probe.site.file)) return own;
  for (const LoadedObject& object : load_order(probe.spec.place.program, files_))
    if (const auto file = files_.open(object.path))
      if (auto found = plan::errno_place_in(*file)) return found;
  const auto file = files_.open(find_library("libc.so.6"));
  return file ? plan::errno_place_in(*file) : std::nullopt;
}

// Whether the trigger can act at the probe's place.
Result<ErrnoSource> ProbeBuilder::look_at_change(const Probe& probe, const program::TriggerSpec& trigger,
                                                 control::ProbeSet& in) {
  const auto refused = [](std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; };
  if (probe.spec.place.is_generated) return refused("a probe in generated code cannot change the program");
  if (trigger.action.is_of_return && !fetches(probe.spec, shared::kReturnRegister))
    return refused("the definition has to fetch $retval, so that the record shows what it was");
  if (probe.returns && probe.returns->mode == plan::ReturnMode::stub)
    return refused(
        "the returns of the function are seen by a stub, and there nothing can be changed (--return=exits says why)");
  const bool calls_back = trigger.kind == shared::TriggerKind::call_back;
  if (calls_back && is_loader(probe.spec.place.path))
    return refused("a callback cannot run in the dynamic loader, whose work it needs itself");
  if (calls_back && probe.returns && !fetches(probe.spec, shared::kReturnRegister))
    return refused("the definition of a callback at the return has to fetch $retval");
  if (calls_back && probe.returns) return ErrnoSource{.at = trigger.action.cookie};
  if (!calls_back && trigger.kind != shared::TriggerKind::override_return) return ErrnoSource{};
  const std::string why = plan::reason_against_override(flows_.of(probe.site.file), probe.site);
  if (!why.empty())
    return refused(std::string(calls_back ? "a callback" : "return=") +
                   " does not suit the place: " + probe.spec.place.path + ":" + hex(probe.site.offset) + " " + why);
  if (calls_back) return ErrnoSource{.at = trigger.action.cookie};
  if (trigger.action.error_number == 0) return ErrnoSource{};
  const auto found = errno_for(probe);
  if (!found) return refused("it is not known where the program's libc has errno: leave errno= out");
  const auto number = in.number_of({.file = found->libc, .version = control::version_of(found->libc->path())});
  if (!number) return number.error();
  return ErrnoSource{.place = found->place, .at = found->at, .libc = *number};
}

Result<SwitchPlan> ProbeBuilder::plan_switches(const std::vector<Probe>& probes, control::ProbeSet& in) {
  std::vector<program::EventLayout> layouts;
  layouts.reserve(probes.size());
  for (const Probe& probe : probes) layouts.push_back(probe.program.layout);
  std::set<std::string> called;  // places with a callback: a hit calls one
  const auto look = [&](std::size_t number, const program::TriggerSpec& trigger) -> Result<ErrnoSource> {
    const Probe& probe = probes[number];
    const std::string place = probe.spec.place.path + ":" + hex(probe.site.offset) + (probe.returns ? "%return" : "");
    if (trigger.kind == shared::TriggerKind::call_back && !called.insert(place).second)
      return Error{.code = Code::refused, .text = "another callback is at " + place + ", and a hit has one"};
    return look_at_change(probe, trigger, in);
  };
  const ChangeRules rules{
      .are_allowed = options_.allows_change, .may_call_back = options_.allows_callbacks, .look = look};
  auto plan = uprobe::plan_switches(definitions_, layouts, cpus_, rules);
  if (plan && has_stack_keys(*plan)) in.want_unwinding();
  return plan;
}

}  // namespace uprobe
