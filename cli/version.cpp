// SPDX-License-Identifier: MIT
// See version.h. The libraries report their versions at run time where they can.
#include "cli/version.h"

#include "arch/abi/elf.h"
#include "arch/code/relocate.h"
#include "cli/text.h"
#include "engine/dwarf/version.h"
#include "engine/shared/layout.h"

namespace uprobe::cli {

std::string version_text(const std::string& agent) {
  const dwarf::LibraryVersions elfutils = dwarf::library_versions();
  return "uprobe-run " UPROBE_VERSION "\ncommit: " + std::string(commit()) +
         "\nagent: " + (agent.empty() ? "missing" : escape(agent)) +
         "\nagent ABI: " + std::to_string(shared::kAbiVersion) + "\nlibraries: " + arch::decoder_version() +
         ", libdw " + elfutils.libdw + ", libelf " + elfutils.libelf + "\nmachine: " + arch::kMachineName +
         "; tiers: jump, int3; modes: launch, attach, list, dry-run, check, LD_PRELOAD\n";
}

}  // namespace uprobe::cli
