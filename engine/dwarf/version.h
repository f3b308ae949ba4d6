// SPDX-License-Identifier: MIT
// Which elfutils the tool works with.
#pragma once

#include <string>

namespace uprobe::dwarf {

struct LibraryVersions {
  std::string libdw;   // that runs
  std::string libelf;  // that was there at build time: libelf does not say its own
};
LibraryVersions library_versions();

}  // namespace uprobe::dwarf
