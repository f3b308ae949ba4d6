// SPDX-License-Identifier: MIT
// What an IFUNC chose in a process.
#pragma once

#include <memory>
#include <optional>

#include "engine/elf/relocations.h"
#include "engine/plan/resolve.h"
#include "engine/target/target.h"

namespace uprobe::control {

// `relocations` are the file's.
// The implementation that the resolver at `site` chose (or chooses) in the process that has `file` mapped by `mapping`.
// Nothing: the object is not relocated yet, ask again later. An Error: it cannot be found out here.
//
// First source: the slot of an IRELATIVE relocation for this resolver, once it differs from what the file says. Second: the
// resolver is called in the target, which is allowed as soon as the object is relocated (resolvers run at any time after).
Result<std::optional<plan::Site>> chosen_implementation(target::Target& target,
                                                        std::shared_ptr<const elf::ElfFile> file,
                                                        const std::vector<elf::Relocation>& relocations,
                                                        const target::Mapping& mapping, const plan::Site& site);

}  // namespace uprobe::control
