// SPDX-License-Identifier: MIT
// Fuzzes the notes of markers, which a file may have of any kind. The first byte chooses: the rest is the bytes of a section of
// notes, the arguments of one note, the bytes of a section of marks' notes, or the format of a mark. What is accepted of a note lies in the file, and what is fetched passes the verifier.
#include <cstdlib>
#include <optional>

#include "engine/marker/arguments.h"
#include "engine/marker/listing.h"
#include "engine/marker/marker_event.h"
#include "engine/marker/marks.h"
#include "engine/program/compile.h"
#include "engine/program/verify.h"
#include "engine/spec/name.h"
#include "tests/fuzz/driver.h"
#include "tests/marker/made_markers.h"

namespace {

using namespace uprobe;
using namespace uprobe::marker;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_place(const Marker& marker) {
  require(marker.address >= MadeMarkers::kText && marker.address < MadeMarkers::kText + MadeMarkers::kDataOffset);
  require(marker.offset < MadeMarkers::kDataOffset);
  if (!marker.semaphore) return;
  require(*marker.semaphore % 2 == 0 && *marker.semaphore >= MadeMarkers::kDataOffset);
  require(*marker.semaphore + 2 <= MadeMarkers::kEnd);
}

// As the resolver leaves them: data is at a distance.
Status find_data(const MarkerPlace&, spec::ProbeSpec& spec) {
  for (spec::Argument& argument : spec.arguments) argument.symbol.clear();
  return ok();
}

void check_event(const spec::ProbeSpec& definition, const MarkerEvent& event) {
  std::vector<std::string> notes;
  const auto specs = specs_of(definition, event, find_data, notes);
  if (!specs) return;
  require(specs->size() == event.places.size());
  for (const spec::ProbeSpec& spec : *specs) {
    require(spec.arguments.size() == specs->front().arguments.size());
    const auto program = program::compile(spec);
    if (program) require(bool(program::verify(*program)));
  }
}

void check_event(const MarkerEvent& event, const std::vector<spec::WrittenArgument>& written) {
  spec::ProbeSpec definition;
  definition.is_bare = true;
  definition.written = written;
  check_event(definition, event);
}

// A format has as many conversions as the mark has arguments.
void check_marks(const std::shared_ptr<const elf::ElfFile>& file) {
  const Notes notes = read_marks(*file);
  for (const Marker& marker : notes.markers) {
    check_place(marker);
    const auto format = spec::read_print_format(marker.format);
    require(bool(format) && format->conversions.size() == noted_arguments(marker.arguments).size());
  }
  spec::ProbeSpec all;
  all.is_bare = all.place.is_mark = true;
  all.place.provider = all.place.marker = "*";
  std::vector<MarkerEvent> events;
  add_matches(all, "/made", file, notes, events);
  for (const MarkerEvent& event : events) {
    require(event.event.size() <= spec::kMaxEventName);
    check_event(all, event);
  }
  static_cast<void>(notes_of_formats(events));
  static_cast<void>(list_marks("/made", *file, "*"));
}

void check_file(const MadeMarkers& made) {
  auto parsed = elf::ElfFile::parse("/made", made.bytes());
  require(bool(parsed));
  const auto file = std::make_shared<const elf::ElfFile>(parsed.take());
  const Notes notes = read_notes(*file);
  for (const Marker& marker : notes.markers) check_place(marker);
  spec::ProbeSpec all;
  all.is_bare = true;
  all.place.provider = all.place.marker = "*";
  std::vector<MarkerEvent> events;
  add_matches(all, "/made", file, notes, events);
  for (const MarkerEvent& event : events) {
    check_event(event, {});
    check_event(event, {{.text = "$arg1:string"}, {.text = "a=+8($arg2):u32"}});
    check_event(event, {{.text = "$arg1:x64"}, {.text = "$arg2:s16"}, {.text = "$arg3:f64"}});
  }
  static_cast<void>(list_markers("/made", *file, "*"));
  check_marks(file);
}

std::string seed_of(const std::string& arguments) { return "a" + arguments; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 8192) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  MadeMarkers made;
  if (data[0] % 4 == 2) {
    made.set_notes(rest);
  } else {
    const std::string arguments = data[0] % 4 == 1 ? rest.substr(0, rest.find('\0')) : "-4@%edi 8@%rsi 8f@%rax";
    made.add({.arguments = arguments});
    made.add({.place = MadeMarkers::kCode + 1, .arguments = "-4@%ebx 8@16(%rsp) 8f@%xmm1"});
    made.add_mark("n=%d text=%s took=%f", MadeMarkers::kCode + 1);
    if (data[0] % 4 == 0) made.set_marks(rest);
    if (data[0] % 4 == 3) made.add_mark(rest);
  }
  check_file(made);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const auto section = [](const MadeMarkers::Note& note) {
    MadeMarkers made;
    made.add(note);
    made.add({.place = MadeMarkers::kCode + 2, .semaphore = MadeMarkers::kData, .arguments = "8@%rax"});
    const auto bytes = made.bytes();
    // the notes begin where the data ends
    return "b" + std::string(bytes.begin() + static_cast<std::ptrdiff_t>(MadeMarkers::kEnd), bytes.end());
  };
  return {section({.arguments = "-4@%edi 8@(%rsp)"}),
          section({.place = 0x1010, .base = 0x1800, .semaphore = 0x202010}),
          seed_of("8@%rdi -4@%eax 1@%ah 2@%r8w"),
          seed_of("-4@-16(%rbp) 8@8(%rax,%rbx,4) 8@(,%rbx,8)"),
          seed_of("8@table+8(%rip) 8@$table 4@16+count(%rip) 4@4210688"),
          seed_of("-4@$-1 8@$0x10 8f@%xmm3 4f@-8(%rbp)"),
          seed_of("8@%fs:0x28 8@f@GOTPCREL(%rip) 9@%rax"),
          "cfd=%d path=%s took=%f ns",
          "ca=%-5d b='%.3s' 100%% c=%08.3e",
          "c%*d %n %Lf",
          "d" + std::string("\7\0\0\0\30\0\0\0\1\0\0\0uprobe\0\0\0\20\100\0\0\0\0\0", 28)};
}
