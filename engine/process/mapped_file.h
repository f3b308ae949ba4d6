// SPDX-License-Identifier: MIT
// The file behind a mapping of another process, as it can be reached from here.
#pragma once

#include <optional>
#include <string>

#include "engine/elf/elf_file.h"
#include "engine/target/maps.h"

namespace uprobe::control {

// By stat: the numbers in maps are not stat's on every file system.
std::optional<elf::Identity> identity_behind(pid_t pid, const target::Mapping& mapping);

// A path of ours that leads to it. Code::not_found when there is none.
Result<std::string> name_behind(pid_t pid, const target::Mapping& mapping, const elf::Identity& identity);

}  // namespace uprobe::control
