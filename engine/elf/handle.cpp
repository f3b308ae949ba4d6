// SPDX-License-Identifier: MIT
// Opens bytes in memory with libelf.
#include "engine/elf/handle.h"

#include <cstddef>
#include <string>

namespace uprobe::elf {
namespace {

// As many as fit into e_shnum. libelf makes a record of more than 200 bytes of every section that the table claims.
constexpr std::uint64_t kMaxSections = 0xffff;

// A count of sections that does not fit into the ELF header is in the first section header, where it has 64 bits: libelf
// refuses the whole file if it is over 32 bits, and allocates for it below that. A truncated table counts as none, in libelf as
// here.
bool has_absurd_section_count(BytesView bytes, const Elf64_Ehdr& header) {
  if (header.e_shnum != 0 || header.e_shoff == 0) return false;
  const auto first = bytes.read<Elf64_Shdr>(header.e_shoff);
  return first && first->sh_size > kMaxSections;
}

}  // namespace

Result<Handle> Handle::open(BytesView bytes) {
  static const unsigned version = elf_version(EV_CURRENT);  // libelf works only after this call
  const auto header = bytes.read<Elf64_Ehdr>(0);
  if (version == EV_NONE || !header) return Error{.code = Code::damaged, .text = "cannot be read by libelf"};
  Handle handle;
  if (has_absurd_section_count(bytes, *header)) {
    handle.without_sections_.assign(bytes.span().begin(), bytes.span().end());
    std::memset(handle.without_sections_.data() + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof header->e_shoff);
    bytes = BytesView(handle.without_sections_);
  }
  // The handle is for reading (ELF_C_READ): without elf_update nothing is ever written to the memory.
  auto* image = const_cast<char*>(reinterpret_cast<const char*>(bytes.span().data()));
  handle.elf_.reset(elf_memory(image, bytes.size()));
  if (elf_kind(handle.get()) == ELF_K_ELF) return handle;
  return Error{.code = Code::damaged, .text = std::string("cannot be read by libelf: ") + elf_errmsg(-1)};
}

Elf_Data* Handle::chunk(std::uint64_t offset, std::uint64_t size, Elf_Type type) const {
  if (size == 0 || offset > INT64_MAX) return nullptr;
  return elf_getdata_rawchunk(get(), static_cast<std::int64_t>(offset), size, type);
}

Elf_Data* Handle::section_data(std::uint64_t index) const { return elf_getdata(elf_getscn(get(), index), nullptr); }

}  // namespace uprobe::elf
