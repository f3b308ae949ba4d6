// SPDX-License-Identifier: MIT
#include "engine/resolve/check.h"

#include "engine/base/text.h"
#include "engine/program/compile.h"
#include "engine/program/filter.h"
#include "engine/resolve/event_enable_plan.h"
#include "engine/resolve/locations.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/listing.h"
#include "engine/spec/messages.h"

namespace uprobe {
namespace {

// The kernel numbers all of its events; these get their ordinal numbers.
EventFormat format_of(const spec::ProbeSpec& first_probe, const program::EventLayout& layout, unsigned id) {
  return {.event = first_probe.group + "/" + first_probe.event,
          .print_format = program::print_format(layout),
          .fields = program::format_fields(layout),
          .file = program::format_file(layout, id)};
}

// Shows the function's name, if the file has one there.
std::string listing_2009(const spec::ProbeSpec& probe, plan::FileCache& files) {
  const auto found = plan::look_up(probe, files);
  if (!found) return spec::listing(probe);
  return spec::listing_2009(probe,
                            plan::place_of_2009(plan::symbol_near(*found->file, found->address), found->address));
}

// As the kernel takes it.
std::string listing(const spec::ProbeSpec& probe, std::vector<std::string>& notes) {
  std::string unknown;
  const spec::ProbeSpec form = spec::kernel_form(probe, unknown);
  if (!unknown.empty()) notes.push_back(probe.group + "/" + probe.event + ": the kernel cannot fetch " + unknown);
  return spec::listing(form);
}

void describe(const spec::DefinitionSet& set, const CheckOptions& options, plan::FileCache& files,
              CheckReport& report) {
  const std::vector<spec::ProbeSpec> probes = set.probes();
  const bool as_2009 = options.style == spec::Style::kprobes_2009;
  for (const spec::ProbeSpec& probe : probes)
    report.listing.push_back(as_2009 ? listing_2009(probe, files) : listing(probe, report.notes));
  for (const spec::EventProbes& event : set.events()) {
    const spec::ProbeSpec& first = probes[event.probes.front()];
    // A layout never fails for a definition that was accepted.
    if (const auto layout = program::make_layout(first))
      report.formats.push_back(format_of(first, *layout, static_cast<unsigned>(report.formats.size() + 1)));
  }
}

// For the events that the last write has defined.
Status apply_controls(spec::DefinitionSet& set, const Definition& write) {
  set.control({.filter = write.filter, .triggers = write.triggers, .is_disabled = write.is_disabled});
  unsigned id = 0;
  const unsigned cpus = program::possible_cpus();
  const std::vector<spec::ProbeSpec> probes = set.probes();
  for (const spec::EventProbes& event : set.events()) {
    ++id;
    const spec::ProbeSpec& first = probes[event.probes.front()];
    const spec::EventControls& controls = set.controls_of(first);
    const auto layout = program::make_layout(first);
    if (!controls.filter || !layout) continue;
    program::EventProgram program{.layout = *layout, .insns = {}, .text = {}, .filter = {}};
    const program::FilterContext context{.id = id, .cpus = cpus};
    if (Status status = program::set_filter(program, *controls.filter, context); !status)
      return of_filter(controls, status.error());
  }
  return ok();
}

// The number, from 1, of the line that begins in this way.
int line_of(const std::string& text, const std::string& beginning) {
  std::size_t at = text.find(beginning);
  while (at != std::string::npos && at != 0 && text[at - 1] != '\n') at = text.find(beginning, at + 1);
  return at == std::string::npos
             ? 0
             : 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

// Checked last, because triggers may name events that are defined later.
void check_triggers(const spec::DefinitionSet& set, CheckReport& report) {
  std::vector<program::EventLayout> layouts;
  for (const spec::ProbeSpec& probe : set.probes()) {
    auto layout = program::make_layout(probe);
    if (!layout) return;
    layouts.push_back(layout.take());
  }
  const auto planned = plan_switches(set, layouts, program::possible_cpus());
  if (planned) return;
  report.option = "--trigger";
  report.error = planned.error();
}

// False at a mistake, which the report then has.
bool take_write(spec::DefinitionSet& set, const Definition& text, CheckReport& report) {
  const auto fail = [&](const Error& error) {
    report.error = error;
    return false;
  };
  if (const Status written = set.write(text.text, text.default_object); !written) {
    report.is_kernels = spec::message::is_kernels(written.error().text);
    report.line = set.last_line();
    return fail(written.error());
  }
  if (const Status filtered = apply_controls(set, text); !filtered) {
    const std::string& where = filtered.error().where;
    report.option = text.filter && text.filter->starts_with(where) ? "--filter" : "";
    report.is_kernels = true;
    report.line = line_of(text.text, where);
    return fail(filtered.error());
  }
  return true;
}

}  // namespace

CheckReport check_definitions(const std::vector<Definition>& writes, const CheckOptions& options) {
  CheckReport report;
  plan::FileCache files;
  LocationResolver places(files);
  spec::DefinitionSet set(
      {.strict = options.strict, .words_2009 = !options.strict && options.style == spec::Style::kprobes_2009},
      options.strict ? spec::Resolve() : std::ref(places));
  for (; report.write < writes.size(); ++report.write) {
    const Definition& text = writes[report.write];
    if (options.style == spec::Style::kprobes_2009 && is_all_blank(text.text)) set.clear();
    if (!take_write(set, text, report)) break;
  }
  if (!report.error) check_triggers(set, report);
  report.notes = places.notes();
  describe(set, options, files, report);
  return report;
}

}  // namespace uprobe
