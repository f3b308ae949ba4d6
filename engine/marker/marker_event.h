// SPDX-License-Identifier: MIT
// A marker as an event: all places of its name, in all objects, become definitions of one event, with one layout of the record.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/elf/elf_file.h"
#include "engine/marker/notes.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::marker {

struct MarkerPlace {
  std::string path;
  std::shared_ptr<const elf::ElfFile> file;
  Marker marker;
};

// The places of one event. Its name is the definition's, or the marker's; marks of one name with different formats are an event
// each: NAME, NAME_2, NAME_3.
struct MarkerEvent {
  std::string group, event;
  std::string format = {};  // of marks
  std::string also = {};    // the name without that number, where it has one
  std::vector<MarkerPlace> places;
};

// The markers of the object that the definition's PROVIDER and NAME match (fnmatch), added to the events. A place that two notes
// give is one place. `path`: as the events' listings show the object.
void add_matches(const spec::ProbeSpec& definition, const std::string& path,
                 const std::shared_ptr<const elf::ElfFile>& file, const Notes& notes, std::vector<MarkerEvent>& events);

// Looks up what the definition of one place names in its file.
using FindData = std::function<Status(const MarkerPlace& place, spec::ProbeSpec& spec)>;

// For the user, of each event whose name has a number: which format it has.
std::vector<std::string> notes_of_formats(const std::vector<MarkerEvent>& events);

// A definition for each place. Without written arguments all of the marker's are recorded, a mark's by the names of its format;
// those that cannot be, for all places alike, are left out with a note. A written argument that cannot be fetched is an error with its
// column.
Result<std::vector<spec::ProbeSpec>> specs_of(const spec::ProbeSpec& definition, const MarkerEvent& event,
                                              const FindData& find_data, std::vector<std::string>& notes);

}  // namespace uprobe::marker
