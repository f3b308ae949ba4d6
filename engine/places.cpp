#include "engine/places.h"

#include "engine/session.h"
#include "engine/spec/parse.h"

namespace uprobe {
namespace {

Error at_path(const spec::ProbeSpec& spec, Error error) {
  error.where = spec.definition;
  error.column = spec.place.path_column;
  return error;
}

// A name without a slash is a program, found as the shell finds it.
Status find_object(spec::ProbeSpec& spec) {
  spec::Place& place = spec.place;
  if (place.path.find('/') != std::string::npos) return ok();
  auto program = find_program(place.path);
  if (!program) return at_path(spec, Error{.code = Code::not_found, .text = program.error().text});
  place.path = program.take();
  const spec::FileState state = spec::look_up_file(place.path);
  place.device = state.device;
  place.inode = state.inode;
  return ok();
}

}  // namespace

Result<std::vector<spec::ProbeSpec>> Places::operator()(spec::ProbeSpec spec) {
  if (Status found = find_object(spec); !found) return found.error();
  if (spec.place.symbol.empty()) return std::vector{std::move(spec)};
  auto found = plan::look_up(spec, files_);
  if (!found) return found.error();
  spec.place.file_offset = found->offset;
  spec.place.is_ifunc = found->is_ifunc;
  return std::vector{std::move(spec)};
}

}  // namespace uprobe
