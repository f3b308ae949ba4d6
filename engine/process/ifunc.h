// SPDX-License-Identifier: MIT
// Finds the function that an IFUNC has chosen in a process.
#pragma once

#include <memory>
#include <optional>

#include "engine/elf/relocations.h"
#include "engine/plan/resolve.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The implementation that the resolver at `site` chose (or chooses) in the process that has `file` mapped by `mapping`.
// `relocations`: the file's. Nothing: the object is not relocated yet, ask again later. An Error: the choice cannot be found
// out.
//
// First source: the slot of an IRELATIVE relocation for this resolver, once it differs from the file's word. Second: calls the
// resolver in the target, which is allowed once the object is relocated (programs call resolvers at any time after that).
Result<std::optional<plan::Site>> chosen_implementation(target::Target& target,
                                                        std::shared_ptr<const elf::ElfFile> file,
                                                        const std::vector<elf::Relocation>& relocations,
                                                        const target::Mapping& mapping, const plan::Site& site);

}  // namespace uprobe::control
