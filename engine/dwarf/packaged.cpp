// SPDX-License-Identifier: MIT
// Units of a package, for libdw: it opens the file (.dwo) that a skeleton names, and keeps what it has found. For that moment the
// skeleton names a file in memory.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/base/fd.h"
#include "engine/dwarf/package.h"

namespace uprobe::dwarf {
namespace {

constexpr std::uint64_t kMostUnit = std::uint64_t{1} << 30;

// A write beyond the limit would end the process.
std::uint64_t most_bytes() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 ? 0 : std::min<std::uint64_t>(limit.rlim_cur, kMostUnit);
}

Fd file_in_memory(std::string_view contents) {
  Fd fd(::memfd_create("uprobe-unit", MFD_CLOEXEC));
  return fd && write_all(fd.get(), contents.data(), contents.size()) == 0 ? std::move(fd) : Fd();
}

const char* name_of_split(Dwarf_Die skeleton) {
  Dwarf_Attribute attribute;
  for (const unsigned name : {DW_AT_dwo_name + 0U, DW_AT_GNU_dwo_name + 0U})
    if (dwarf_attr(&skeleton, name, &attribute) != nullptr) return dwarf_formstring(&attribute);
  return nullptr;
}

bool holds(std::span<const std::uint8_t> bytes, const void* at, std::size_t size) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()), from = reinterpret_cast<std::uintptr_t>(at);
  return from >= begin && from - begin <= bytes.size() && size <= bytes.size() - (from - begin);
}

// Whether so many bytes from a string of libdw's on are in memory that this process has for itself: a copy of the file, or of a
// section that was compressed.
bool is_writable(const DebugInfo::Handles& handles, const char* at, std::size_t size) {
  if (holds(handles.separate ? handles.separate->bytes.span() : handles.file->bytes(), at, size)) return true;
  Elf* elf = dwarf_getelf(handles.debug);
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    const Elf_Data* data = elf_getdata(section, nullptr);
    if (data != nullptr && data->d_buf != nullptr &&
        holds({static_cast<const std::uint8_t*>(data->d_buf), data->d_size}, at, size))
      return true;
  }
  return false;
}

// Lets libdw look for the skeleton's file at a path.
bool open_at(const DebugInfo::Handles& handles, Dwarf_Die skeleton, const std::string& path) {
  const char* name = name_of_split(skeleton);
  const std::size_t size = path.size() + 1;
  if (name == nullptr || !is_writable(handles, name, size)) return false;
  auto* at = const_cast<char*>(name);
  const std::string before(name, size);
  std::memcpy(at, path.c_str(), size);
  Dwarf_Die split{};
  const bool is_asked = dwarf_cu_info(skeleton.cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) == 0;
  std::memcpy(at, before.data(), size);
  return is_asked && split.addr != nullptr;
}

}  // namespace

void open_packaged(const DebugInfo::Handles& handles, Dwarf_Die skeleton, std::uint64_t id) {
  Packaged& known = *handles.packaged;
  if (!known.is_looked_for) {
    known.is_looked_for = true;
    known.package = Package::find(*handles.file, handles.separate ? handles.separate->path : handles.file->path());
  }
  if (!known.package) return;
  const auto [unit, is_new] = known.units.try_emplace(id, false);
  if (!is_new) return;
  const auto contents = known.package->unit(id, most_bytes());
  if (!contents) return;
  const Fd file = file_in_memory(*contents);
  if (file) unit->second = open_at(handles, skeleton, "/proc/self/fd/" + std::to_string(file.get()));
}

}  // namespace uprobe::dwarf
