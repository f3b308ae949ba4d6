// Reads relocations through libelf.
#include "engine/elf/relocations.h"

#include <gelf.h>

#include <utility>

#include "engine/elf/image.h"

namespace uprobe::elf {
namespace {

class Gather {
 public:
  explicit Gather(const Image& image) : image_(image) {}

  // Tables do not overlap, so all together hold no more entries than fit into the file. A file with many sections of
  // the same bytes ends there; asking libelf for a table may cost a copy of it, so each counts whether it is one or
  // not.
  void add_sections() {
    std::uint64_t entries_left = image_.bytes().size() / sizeof(Elf64_Rela);
    for (const Section& section : image_.sections()) {
      const bool loaded = (section.header.sh_flags & SHF_ALLOC) != 0;
      const std::uint64_t count = section.header.sh_size / sizeof(Elf64_Rela);
      if (section.header.sh_type != SHT_RELA || !loaded || count == 0 || count > entries_left) continue;
      entries_left -= count;
      add(image_.section_data(section.index));
    }
  }
  void add_dynamic(std::int64_t address_tag, std::int64_t size_tag) {
    const auto address = image_.dynamic(address_tag);
    const auto size = image_.dynamic(size_tag);
    if (address && size) add(image_.table_at(*address, *size, ELF_T_RELA));
  }
  std::vector<Relocation> take() { return std::move(found_); }
  bool empty() const { return found_.empty(); }

 private:
  void add(Elf_Data* table) {
    for (std::uint64_t i = 0;; ++i) {
      const auto entry = entry_of(gelf_getrela, table, i);
      if (!entry) return;
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry->r_info));
      if (type == kRelative || type == kIrelative)
        found_.push_back({entry->r_offset, type, static_cast<std::uint64_t>(entry->r_addend)});
    }
  }

  const Image& image_;
  std::vector<Relocation> found_;
};

}  // namespace

std::vector<Relocation> relocations_of(const ElfFile& file) {
  // With a libelf handle of its own, so that it may be called from several threads.
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  Gather gather(*image);
  gather.add_sections();
  if (gather.empty()) {
    gather.add_dynamic(DT_RELA, DT_RELASZ);
    gather.add_dynamic(DT_JMPREL, DT_PLTRELSZ);
  }
  return gather.take();
}

std::optional<Relocation> first_packed_relocation(const ElfFile& file) {
  constexpr std::int64_t kTable = 36, kTableBytes = 35;  // DT_RELR and DT_RELRSZ, which older elf.h do not have
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return std::nullopt;
  const auto address = image->dynamic(kTable), bytes = image->dynamic(kTableBytes);
  if (!address || !bytes || *bytes < sizeof(std::uint64_t)) return std::nullopt;
  // The table begins with an address; bit maps, which are odd, follow (gABI, "Relative Relocation Table").
  const auto place = image->bytes_at(*address).read<std::uint64_t>(0);
  if (!place || *place % 2 != 0) return std::nullopt;
  const auto addend = image->bytes_at(*place).read<std::uint64_t>(0);
  if (!addend) return std::nullopt;
  return Relocation{*place, kRelative, *addend};
}

}  // namespace uprobe::elf
