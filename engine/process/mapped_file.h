// SPDX-License-Identifier: MIT
// The file of another process's mapping, as the tool can reach it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/target/maps.h"

namespace uprobe::control {

// By stat; nothing: there is no such file.
std::optional<elf::Identity> identity_of(const std::string& path);

// Names of the mapped file, the surest one first. The kernel's link to it takes privileges; a path is shown as seen from this
// process's root or, where that does not reach it (another mount namespace), from the root of the other process.
std::array<std::string, 3> names_of(pid_t pid, const target::Mapping& mapping);

// By stat: the device and inode in /proc/PID/maps are not stat's on every file system.
std::optional<elf::Identity> mapped_identity(pid_t pid, const target::Mapping& mapping);

// An executable mapping of a file.
struct MappedText {
  target::Mapping mapping;
  elf::Identity file;
};
// Nothing where the process has ended, or may not be looked at.
std::vector<MappedText> mapped_text(pid_t pid);
// Where a byte of a file is; nothing: in none of these.
std::optional<Addr> address_in(const std::vector<MappedText>& text, const elf::Identity& file, std::uint64_t offset);

// A path by which the tool can open the file. Code::not_found when there is none.
Result<std::string> mapped_name(pid_t pid, const target::Mapping& mapping, const elf::Identity& identity);

}  // namespace uprobe::control
