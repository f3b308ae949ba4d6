// SPDX-License-Identifier: MIT
#include "engine/dwarf/version.h"

#include <elfutils/libdwfl.h>
#include <elfutils/version.h>

namespace uprobe::dwarf {

LibraryVersions library_versions() {
  const char* const running = dwfl_version(nullptr);
  return {.libdw = running != nullptr ? running : "unknown", .libelf = "0." + std::to_string(_ELFUTILS_VERSION)};
}

}  // namespace uprobe::dwarf
