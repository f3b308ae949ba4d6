// SPDX-License-Identifier: MIT
#include "engine/inject/code_files.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace uprobe::control {
namespace {

constexpr std::size_t kMostHeaders = 64;

// The nearest lower mapping of the same file that starts with the file's first byte.
const target::Mapping* beginning_of(const std::vector<target::Mapping>& maps, const target::Mapping& code) {
  const target::Mapping* found = nullptr;
  for (const target::Mapping& m : maps) {
    if (m.begin > code.begin) break;
    if (m.inode == code.inode && m.device == code.device && m.path == code.path && m.offset == 0) found = &m;
  }
  return found;
}

std::vector<Elf64_Phdr> program_headers(target::Target& target, Addr base) {
  Elf64_Ehdr header{};
  if (!target.read(base, &header, sizeof header)) return {};
  const bool fits = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_phentsize == sizeof(Elf64_Phdr) &&
                    header.e_phnum <= kMostHeaders;
  if (!fits) return {};
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (!target.read(base + header.e_phoff, parts.data(), parts.size() * sizeof parts[0])) return {};
  return parts;
}

}  // namespace

shared::CodeFile code_file_of(target::Target& target, const std::vector<target::Mapping>& maps,
                              const target::Mapping& code) {
  shared::CodeFile file{.begin = code.begin.value, .end = code.end.value, .unwind_header = 0};
  const target::Mapping* beginning = beginning_of(maps, code);
  if (beginning == nullptr) return file;
  const auto parts = program_headers(target, beginning->begin);
  const auto of_type = [&](std::uint32_t type) {
    return std::find_if(parts.begin(), parts.end(), [=](const Elf64_Phdr& part) { return part.p_type == type; });
  };
  const auto first = of_type(PT_LOAD), unwind = of_type(PT_GNU_EH_FRAME);
  if (first == parts.end() || unwind == parts.end() || first->p_offset != 0) return file;
  file.unwind_header = beginning->begin.value - first->p_vaddr + unwind->p_vaddr;
  return file;
}

}  // namespace uprobe::control
