// SPDX-License-Identifier: MIT
#include "engine/resolve/generated_places.h"

#include <string>

namespace uprobe {
namespace {

Error refused(const spec::ProbeSpec& spec, int column, std::string text, std::string help = {}) {
  return at_column(spec, column, Error{.code = Code::refused, .text = std::move(text), .help = std::move(help)});
}

bool wants_a_file(const spec::Argument& argument) {
  if (!argument.variable.empty() || !argument.symbol.empty() || argument.address || !argument.object.empty())
    return true;
  return !argument.steps.empty() && argument.steps[0].kind == spec::StepKind::file_offset;
}

}  // namespace

Status check_generated(const spec::ProbeSpec& spec) {
  const int column = spec.place.place_column;
  if (spec.is_return)
    return refused(spec, column, "returns of generated code cannot be probed",
                   "p: probes the beginnings of its functions");
  if (spec.style != spec::Style::event)
    return refused(spec, column, "functions of generated code have no prototype", "p: in its stead");
  for (const spec::Argument& argument : spec.arguments) {
    if (wants_a_file(argument))
      return refused(spec, argument.column, "'" + argument.body + "' needs a file, and generated code has none",
                     "registers, memory and $argN work");
    if (argument.kind == spec::Kind::symbol)
      return refused(spec, argument.column, "names of addresses are not known in generated code",
                     "x64 shows the address");
  }
  return ok();
}

Result<plan::Site> site_of_generated(const spec::ProbeSpec& spec, plan::FileCache& files) {
  auto file = files.open("/proc/self/exe");
  if (!file) return at_column(spec, spec.place.path_column, file.error());
  return plan::Site{.file = file.take(), .symbol = spec.place.symbol};
}

}  // namespace uprobe
