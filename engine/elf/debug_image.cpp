// SPDX-License-Identifier: MIT
#include "engine/elf/debug_image.h"

#include <algorithm>
#include <utility>

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMostSections = 0xffff;

// Loads parts of a file into its place in memory; the rest stays zero.
class Loader {
 public:
  Loader(const RegularFile& file, FileBytes& to, std::uint64_t most) : file_(file), to_(to), left_(most) {}

  Status part(std::uint64_t offset, std::uint64_t bytes) {
    if (bytes > left_) return Error{.code = Code::limit, .text = "has too many names or notes"};
    left_ -= bytes;
    return to_.load(file_.fd, offset, bytes);
  }
  BytesView view() const { return BytesView(to_.span()); }

 private:
  const RegularFile& file_;
  FileBytes& to_;
  std::uint64_t left_;
};

// The table of sections; its first entry has the counts that do not fit into the header.
Result<std::vector<Elf64_Shdr>> load_sections(Loader& loader) {
  RETURN_IF_ERROR(loader.part(0, sizeof(Elf64_Ehdr)));
  const auto header = loader.view().read<Elf64_Ehdr>(0);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return std::vector<Elf64_Shdr>();
  RETURN_IF_ERROR(loader.part(header->e_shoff, sizeof(Elf64_Shdr)));
  const auto first = loader.view().read<Elf64_Shdr>(header->e_shoff);
  if (!first) return std::vector<Elf64_Shdr>();
  const std::uint64_t count =
      std::min<std::uint64_t>(header->e_shnum != 0 ? header->e_shnum : first->sh_size, kMostSections);
  RETURN_IF_ERROR(loader.part(header->e_shoff, count * sizeof(Elf64_Shdr)));
  std::vector<Elf64_Shdr> sections;
  for (std::uint64_t i = 0; i < count; ++i)
    if (const auto one = loader.view().read<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr)))
      sections.push_back(*one);
  const std::uint64_t names = header->e_shstrndx != SHN_XINDEX ? header->e_shstrndx : first->sh_link;
  if (names < sections.size()) RETURN_IF_ERROR(loader.part(sections[names].sh_offset, sections[names].sh_size));
  return sections;
}

}  // namespace

// The bytes keep their address when they change owners.
Result<DebugImage> DebugImage::over(FileBytes bytes) {
  auto image = Image::parse_debug(BytesView(bytes.span()));
  if (!image) return image.error();
  return DebugImage(std::move(bytes), image.take());
}

Status DebugImage::load_tables(const RegularFile& file, FileBytes& to, std::uint64_t most, Parts parts) {
  Loader loader(file, to, most);
  const auto sections = load_sections(loader);
  if (!sections) return sections.error();
  for (const Elf64_Shdr& section : *sections) {
    const bool is_symbols = section.sh_type == SHT_SYMTAB && parts == Parts::names;
    if (!is_symbols && section.sh_type != SHT_NOTE) continue;
    RETURN_IF_ERROR(loader.part(section.sh_offset, section.sh_size));
    if (!is_symbols || section.sh_link >= sections->size()) continue;
    const Elf64_Shdr& names = (*sections)[section.sh_link];
    RETURN_IF_ERROR(loader.part(names.sh_offset, names.sh_size));
  }
  return ok();
}

Result<DebugImage> DebugImage::read(const RegularFile& file, std::uint64_t most, const std::string& path, Parts parts) {
  auto bytes = FileBytes::zeros(static_cast<std::uint64_t>(file.about.st_size), path);
  if (!bytes) return bytes.error();
  RETURN_IF_ERROR(load_tables(file, *bytes, most, parts));
  return over(bytes.take());
}

Result<DebugImage> DebugImage::read(const RegularFile& file, std::uint64_t most, const std::string& path) {
  return read(file, most, path, Parts::names);
}

Result<DebugImage> DebugImage::read_notes(const RegularFile& file, std::uint64_t most, const std::string& path) {
  return read(file, most, path, Parts::notes);
}

Result<DebugImage> DebugImage::copy_of(std::span<const std::uint8_t> bytes, const std::string& path) {
  auto copy = FileBytes::copy_of(bytes, path);
  if (!copy) return copy.error();
  return over(copy.take());
}

}  // namespace uprobe::elf
