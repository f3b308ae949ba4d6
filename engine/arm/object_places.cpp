// SPDX-License-Identifier: MIT
// An object is where its code is mapped, if all of its segments are in the right places relative to it. That is not so while
// the dynamic loader is at work, or if the program has mapped something over a part of the object.
#include "engine/arm/object_places.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

using target::Mapping;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t page(std::uint64_t address) { return address & ~(kPage - 1); }

// Whether a segment's file bytes are mapped from the file, and the bytes after them from none.
bool is_in_place(const elf::Segment& segment, std::uint64_t bias, const std::vector<Mapping>& maps, const Mapping& of) {
  if (segment.memory_bytes == 0) return true;
  const Addr begin{page(segment.address) + bias};
  const std::uint64_t file_end = segment.address + segment.file_bytes, end = segment.address + segment.memory_bytes;
  const std::uint64_t after = segment.file_bytes == 0 ? page(segment.address) : page(file_end + kPage - 1);
  if (segment.file_bytes != 0) {
    const Mapping* m = target::mapping_at(maps, begin);
    if (m == nullptr || m->shared || m->inode != of.inode || m->device != of.device) return false;
    if (m->offset + (begin - m->begin) != page(segment.offset)) return false;
  }
  if (after >= end) return true;
  const Mapping* zeros = target::mapping_at(maps, Addr{after + bias});
  return zeros != nullptr && !zeros->is_file() && zeros->writable;
}

bool has_code(const elf::ElfFile& file) {
  const auto segments = file.segments();
  return std::any_of(segments.begin(), segments.end(), [](const elf::Segment& s) { return s.executable; });
}

}  // namespace

std::set<std::uint64_t> biases_of(pid_t pid, const std::vector<Mapping>& maps, const NamedObject& object,
                                  std::string& why) {
  std::set<std::uint64_t> found;
  const elf::ElfFile& file = *object.file;
  const bool by_code = has_code(file);
  MappedVersions versions(pid);
  for (const Mapping& m : maps) {
    if (!m.is_file() || m.shared || !(by_code ? m.executable : m.writable)) continue;
    const auto& version = versions.of(m);
    if (!version || version->identity != file.identity()) continue;
    if (object.version && *object.version != *version) {
      why = "the file has changed since it was read: its data is not shown";
      continue;
    }
    for (const elf::Segment& s : file.segments()) {
      if ((by_code && !s.executable) || m.offset < page(s.offset) || m.offset >= s.offset + s.file_bytes) continue;
      const std::uint64_t bias = m.begin.value - (s.address - s.offset + m.offset);
      const auto segments = file.segments();
      if (std::all_of(segments.begin(), segments.end(),
                      [&](const elf::Segment& each) { return is_in_place(each, bias, maps, m); }))
        found.insert(bias);
    }
  }
  return found;
}

namespace {

// Nothing: it is not mapped, or more than once.
std::optional<std::uint64_t> bias_of(pid_t pid, const std::vector<Mapping>& maps, const NamedObject& object,
                                     std::string& why) {
  const std::set<std::uint64_t> found = biases_of(pid, maps, object, why);
  if (found.size() > 1) why = "it is mapped more than once: its data is not shown";
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

// The offset of eight bytes that differ between files: of the build ID, or of the header's field for the section headers.
std::optional<std::uint64_t> sentinel_offset(const elf::ElfFile& file) {
  const auto id = file.build_id(), bytes = file.bytes();
  if (id.size() >= 8 && id.data() >= bytes.data() && id.data() + 8 <= bytes.data() + bytes.size())
    return static_cast<std::uint64_t>(id.data() - bytes.data());
  return bytes.size() >= sizeof(Elf64_Ehdr) ? std::optional<std::uint64_t>(offsetof(Elf64_Ehdr, e_shoff))
                                            : std::nullopt;
}

// Whether libraries use the program's definition of that name, and not their own.
bool defines(const elf::ElfFile& program, const std::string& name) {
  const auto symbol = program.find_any(name);
  return symbol && symbol->dynamic && symbol->binding != elf::Binding::local;
}

}  // namespace

// The program of a process. /proc/PID/exe may be neither a program nor have an interpreter: it is the dynamic loader then, run
// directly, and the program is another file, which is not known.
const ObjectPlaces::Program* ObjectPlaces::program_of(pid_t pid) {
  const std::string path = procfs::path(pid, "exe");
  const auto version = version_of(path);
  if (!version) return nullptr;
  constexpr std::size_t kMostPrograms = 8;  // each one is kept whole
  if (programs_.size() >= kMostPrograms && !programs_.contains(*version)) programs_.clear();
  const auto [at, is_new] = programs_.try_emplace(*version);
  if (is_new) {
    auto opened = elf::ElfFile::open(path, elf::NamedBy::target);
    if (opened && opened->identity() == version->identity && (opened->is_program() || !opened->interpreter().empty())) {
      at->second.file = std::make_shared<const elf::ElfFile>(opened.take());
      at->second.copies = elf::copies_of(*at->second.file);
    }
  }
  return at->second.file ? &at->second : nullptr;
}

// The library's data may have several names, and the program may have copied it under another one than the user gave. Then it
// is not known which of the two is meant, unless both lead to the copy.
std::optional<std::uint64_t> ObjectPlaces::bias_of_exported(pid_t pid, const std::vector<Mapping>& maps,
                                                            const NamedObject& object, std::uint64_t bias,
                                                            std::string& why) {
  const Program* program = program_of(pid);
  const std::string name = object.exported.substr(0, object.exported.find('@'));
  const auto none = [&](const std::string& because) -> std::optional<std::uint64_t> {
    why = because + ": the library's '" + name + "' is not shown";
    return std::nullopt;
  };
  if (program == nullptr) return none("the program is not known, and may use a copy of its own");
  const auto has = [](const std::vector<std::uint64_t>& all, std::uint64_t one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  for (const elf::CopiedSymbol& copy : program->copies) {
    if (!copy.name.empty() && !has(object.file->addresses_of(copy.name), object.exported_address)) continue;
    const auto there = bias_of(pid, maps, {.file = program->file}, why);
    if (copy.name.empty() || !there || !has(program->file->addresses_of(name), copy.place))
      return none("the program uses a copy of its own under another name");
    return *there + copy.place - object.exported_address;
  }
  return defines(*program->file, name) ? none("the program has one of its own") : std::optional(bias);
}

shared::MappedObject ObjectPlaces::find(target::Target& target, const std::vector<Mapping>& maps,
                                        const NamedObject& object, std::string& why) {
  const pid_t pid = target.pid();
  const auto bias = bias_of(pid, maps, object, why);
  const auto offset = sentinel_offset(*object.file);
  const auto sentinel_address = offset ? object.file->address_of_offset(*offset) : std::nullopt;
  if (!bias || !sentinel_address) return {};
  const auto data = object.exported.empty() ? bias : bias_of_exported(pid, maps, object, *bias, why);
  if (!data) return {};
  shared::MappedObject place{.bias = *data, .sentinel_at = *bias + *sentinel_address, .sentinel = 0};
  std::memcpy(&place.sentinel, object.file->bytes().data() + *offset, sizeof place.sentinel);
  std::uint64_t there = 0;
  const bool is_it = target.read(Addr{place.sentinel_at}, &there, sizeof there) && there == place.sentinel;
  return is_it ? place : shared::MappedObject{};
}

}  // namespace uprobe::control
