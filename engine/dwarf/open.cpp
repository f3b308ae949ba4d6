// SPDX-License-Identifier: MIT
// Opening the debug information of a file: its own, or that of its debug file; and the file that dwz has made of what several debug
// files have in common.
#include <elfutils/libdwelf.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/debuginfod.h"
#include "engine/dwarf/handles.h"
#include "engine/elf/debug_files.h"
#include "engine/elf/debug_image.h"

namespace uprobe::dwarf {
namespace {

using Further = DebugInfo::Handles::Further;

bool has_units(Dwarf* debug) {
  Dwarf_Off next = 0;
  std::size_t header = 0;
  return debug != nullptr && dwarf_nextcu(debug, 0, &next, &header, nullptr, nullptr, nullptr) == 0;
}

std::optional<Further> read(const RegularFile& file, const std::string& path) {
  auto bytes = elf::FileBytes::read(file.fd, static_cast<std::uint64_t>(file.about.st_size), elf::kMostDebugFile, path);
  if (!bytes) return {};
  Further further{.path = path, .bytes = bytes.take(), .elf = {}, .debug = {}};
  further.elf.reset(open_image(further.bytes.span()));
  if (further.elf) further.debug.reset(dwarf_begin_elf(further.elf.get(), DWARF_C_READ, nullptr));
  if (!has_units(further.debug.get())) return {};
  return further;
}

// .gnu_debugaltlink: a path and a build id.
struct AltLink {
  std::string name;
  std::span<const std::uint8_t> build_id;
};

std::optional<AltLink> alt_link_of(Dwarf* debug) {
  const char* name = nullptr;
  const void* id = nullptr;
  const ssize_t bytes = dwelf_dwarf_gnu_debugaltlink(debug, &name, &id);
  if (bytes <= 0) return {};
  return AltLink{name, {static_cast<const std::uint8_t*>(id), static_cast<std::size_t>(bytes)}};
}

// `holder`: the file that has the link. The ".." of a path do not lead out of the root of the process.
std::vector<std::string> places_of(const AltLink& link, const std::string& holder) {
  namespace fs = std::filesystem;
  constexpr const char* kFolder = "/.dwz/";
  const elf::Folders folders = elf::folders_of(holder);
  std::vector<std::string> places;
  const auto add = [&](const fs::path& path) {
    if (!folders.root.empty()) places.push_back(folders.root + path.lexically_normal().string());
    places.push_back(path.lexically_normal().string());
  };
  for (const std::string& folder : folders.names) add(fs::path(folder + "/") / link.name);
  if (const std::string name = elf::build_id_name(link.build_id); !name.empty())
    add(std::string(elf::kDebugFolder) + "/" + name);
  if (std::string cached = debuginfod::cached_file(link.build_id); !cached.empty()) places.push_back(std::move(cached));
  if (const std::size_t at = link.name.rfind(kFolder); at != std::string::npos)
    add(elf::kDebugFolder + link.name.substr(at));
  return places;
}

// Without its companion, which no other file can stand in for, units that refer to it have no names there.
void add_shared(DebugInfo::Handles& handles, const std::string& holder) {
  const auto link = alt_link_of(handles.debug);
  if (!link) return;
  for (const std::string& path : places_of(*link, holder)) {
    const auto file = open_regular(path);
    if (!file || static_cast<std::uint64_t>(file->about.st_size) > elf::kMostDebugFile) continue;
    const auto image = elf::DebugImage::read(*file, elf::kMostDebugFile, path);
    if (!image || !std::ranges::equal(image->build_id(), link->build_id)) continue;
    handles.shared = read(*file, path);
    if (handles.shared) return dwarf_setalt(handles.debug, handles.shared->debug.get());
  }
  handles.missing_shared.assign(link->build_id.begin(), link->build_id.end());
}

Error no_debug_information(const elf::ElfFile& file, const elf::DebugFileSearch& search) {
  const std::string name = elf::build_id_name(file.build_id());
  std::string help = "compile it with -g";
  if (!name.empty()) help += ", or install " + std::string(elf::kDebugFolder) + "/" + name;
  for (const std::string& wrong : search.wrong) help += "; " + wrong;
  return Error{.code = Code::refused, .text = file.path() + " has no debug information", .help = std::move(help)};
}

}  // namespace

DebugInfo::DebugInfo(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
DebugInfo::DebugInfo(DebugInfo&&) noexcept = default;
DebugInfo& DebugInfo::operator=(DebugInfo&&) noexcept = default;
DebugInfo::~DebugInfo() = default;

std::span<const std::uint8_t> DebugInfo::missing_shared() const { return handles_->missing_shared; }

Result<DebugInfo> DebugInfo::open(const elf::ElfFile& file) {
  auto handles = std::make_unique<Handles>();
  handles->file = &file;
  handles->elf.reset(open_image(file.bytes()));
  if (handles->elf == nullptr) return Error{.code = Code::damaged, .text = file.path() + " cannot be read by libelf"};
  handles->frames.reset(dwarf_getcfi_elf(handles->elf.get()));
  handles->own.reset(dwarf_begin_elf(handles->elf.get(), DWARF_C_READ, nullptr));
  handles->debug = handles->own.get();
  std::string holder = file.path();
  if (!has_units(handles->debug)) {
    const auto search = elf::find_debug_file(file);
    if (search.found) handles->separate = read(search.found->file, search.found->path);
    if (!handles->separate) return no_debug_information(file, search);
    handles->debug = handles->separate->debug.get();
    holder = handles->separate->path;
  }
  add_shared(*handles, holder);
  return DebugInfo(std::move(handles));
}

}  // namespace uprobe::dwarf
