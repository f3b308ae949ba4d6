// SPDX-License-Identifier: MIT
#include "engine/process/mapped_file.h"

#include <sys/stat.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "engine/base/procfs.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/memory.h"

namespace uprobe::control {

namespace {

std::string map_file(pid_t pid, const target::Mapping& m) {
  char name[96];
  std::snprintf(name, sizeof name, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m.begin.value, m.end.value);
  return name;
}

}  // namespace

std::array<std::string, 3> names_of(pid_t pid, const target::Mapping& m) {
  return {map_file(pid, m), procfs::path(pid, "root") + m.path, m.path};
}

std::optional<elf::Identity> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return elf::Identity{status.st_dev, status.st_ino};
}

namespace {

std::optional<elf::Identity> identity_for(std::optional<proxy::Owner> user, pid_t pid, const target::Mapping& m) {
  for (const std::string& name : names_of(pid, m))
    if (const auto status = proxy::status_of(user, name)) return elf::Identity{status->st_dev, status->st_ino};
  return std::nullopt;
}

}  // namespace

std::optional<elf::Identity> mapped_identity(pid_t pid, const target::Mapping& m) {
  return identity_for(proxy::Foreign(pid).user(), pid, m);
}

std::vector<MappedText> mapped_text(pid_t pid) {
  std::vector<MappedText> found;
  const auto user = proxy::Foreign(pid).user();
  const auto maps = proxy::read_of(pid, procfs::path(pid, "maps"));
  if (!maps) return found;
  for (target::Mapping& mapping : target::parse_maps(*maps)) {
    if (!mapping.is_file() || !mapping.executable) continue;
    if (const auto file = identity_for(user, pid, mapping)) found.push_back({std::move(mapping), *file});
  }
  return found;
}

std::optional<Addr> address_in(const std::vector<MappedText>& text, const elf::Identity& file, std::uint64_t offset) {
  for (const auto& [mapping, identity] : text) {
    const std::uint64_t size = mapping.end.value - mapping.begin.value;
    if (identity == file && offset >= mapping.offset && offset - mapping.offset < size)
      return Addr{mapping.begin.value + (offset - mapping.offset)};
  }
  return std::nullopt;
}

Result<std::string> mapped_name(pid_t pid, const target::Mapping& m, const elf::Identity& identity) {
  const auto names = names_of(pid, m);
  for (const std::string& name : {names[1], names[2], names[0]})
    if (identity_of(name) == identity) return name;
  return Error{.code = Code::not_found, .text = "cannot be opened from this mount namespace", .where = m.path};
}

}  // namespace uprobe::control
