// SPDX-License-Identifier: MIT
// The elfutils versions of the tool.
#pragma once

#include <string>

namespace uprobe::dwarf {

struct LibraryVersions {
  std::string libdw;   // at run time
  std::string libelf;  // at build time: libelf does not report its own
};
LibraryVersions library_versions();

}  // namespace uprobe::dwarf
