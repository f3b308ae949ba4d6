// SPDX-License-Identifier: MIT
// Opening the debug information of a file: its own, or that of the debug file that its build-id leads to.
#include "engine/base/regular_file.h"
#include "engine/dwarf/handles.h"

namespace uprobe::dwarf {
namespace {

Elf* open_elf(std::span<const std::uint8_t> bytes) {
  static const unsigned version = elf_version(EV_CURRENT);
  if (version == EV_NONE) return nullptr;
  // For reading (ELF_C_READ): nothing is ever written to the memory.
  auto* image = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  return elf_memory(image, bytes.size());
}

constexpr std::size_t kMostDebugFile = std::size_t{4} << 30;

bool has_units(Dwarf* debug) {
  Dwarf_Off next = 0;
  std::size_t header = 0;
  return debug != nullptr && dwarf_nextcu(debug, 0, &next, &header, nullptr, nullptr, nullptr) == 0;
}

// The distributions' place: /usr/lib/debug/.build-id/ab/cdef....debug
std::string debug_file_of(std::span<const std::uint8_t> build_id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string path = "/usr/lib/debug/.build-id/";
  for (std::size_t i = 0; i < build_id.size(); ++i) {
    path += {kDigits[build_id[i] >> 4], kDigits[build_id[i] & 15]};
    if (i == 0) path += '/';
  }
  return path + ".debug";
}

}  // namespace

DebugInfo::DebugInfo(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
DebugInfo::DebugInfo(DebugInfo&&) noexcept = default;
DebugInfo& DebugInfo::operator=(DebugInfo&&) noexcept = default;
DebugInfo::~DebugInfo() = default;

Result<DebugInfo> DebugInfo::open(const elf::ElfFile& file) {
  auto handles = std::make_unique<Handles>();
  handles->file = &file;
  handles->elf.reset(open_elf(file.bytes()));
  if (handles->elf == nullptr) return Error{.code = Code::damaged, .text = file.path() + " cannot be read by libelf"};
  handles->frames.reset(dwarf_getcfi_elf(handles->elf.get()));
  handles->debug.reset(dwarf_begin_elf(handles->elf.get(), DWARF_C_READ, nullptr));
  if (has_units(handles->debug.get())) return DebugInfo(std::move(handles));
  const std::string beside = file.build_id().size() < 2 ? "" : debug_file_of(file.build_id());
  if (auto bytes = beside.empty() ? Result<std::string>(std::string()) : read_regular(beside, kMostDebugFile);
      bytes && !bytes->empty()) {
    handles->debug.reset();
    handles->debug_bytes.assign(bytes->begin(), bytes->end());
    handles->debug_elf.reset(open_elf(handles->debug_bytes));
    if (handles->debug_elf) handles->debug.reset(dwarf_begin_elf(handles->debug_elf.get(), DWARF_C_READ, nullptr));
    if (has_units(handles->debug.get())) return DebugInfo(std::move(handles));
  }
  return Error{.code = Code::refused,
               .text = file.path() + " has no debug information",
               .help = beside.empty() ? "compile it with -g" : "compile it with -g, or install " + beside};
}

}  // namespace uprobe::dwarf
