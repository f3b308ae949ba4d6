#include "engine/check.h"

#include "engine/places.h"
#include "engine/program/compile.h"
#include "engine/spec/definition_set.h"
#include "engine/spec/listing.h"
#include "engine/spec/messages.h"

namespace uprobe {
namespace {

// The kernel numbers all its events; ours have the numbers of their order.
EventFormat format_of(const spec::ProbeSpec& first_probe, const program::EventLayout& layout, unsigned id) {
  return {.event = first_probe.group + "/" + first_probe.event,
          .print_format = program::print_format(layout),
          .fields = program::format_fields(layout),
          .file = program::format_file(layout, id)};
}

void describe(const spec::DefinitionSet& set, CheckReport& report) {
  const std::vector<spec::ProbeSpec> probes = set.probes();
  for (const spec::ProbeSpec& probe : probes) report.listing.push_back(spec::listing(probe));
  for (const spec::EventProbes& event : set.events()) {
    const spec::ProbeSpec& first = probes[event.probes.front()];
    // A layout fails for what no definition that was accepted has.
    if (const auto layout = program::make_layout(first))
      report.formats.push_back(format_of(first, *layout, static_cast<unsigned>(report.formats.size() + 1)));
  }
}

}  // namespace

CheckReport check_definitions(const std::vector<Definition>& writes, bool strict) {
  CheckReport report;
  plan::FileCache files;
  Places places(files);
  spec::DefinitionSet set({.strict = strict}, strict ? spec::Resolve() : std::ref(places));
  for (; report.write < writes.size(); ++report.write) {
    const Definition& text = writes[report.write];
    const Status written = set.write(text.text, text.default_object);
    if (written) continue;
    report.error = written.error();
    report.is_kernels = spec::message::is_kernels(written.error().text);
    report.line = set.last_line();
    break;
  }
  describe(set, report);
  report.notes = places.notes();
  return report;
}

}  // namespace uprobe
