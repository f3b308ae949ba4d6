// SPDX-License-Identifier: MIT
#include "engine/dwarf/package.h"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string_view>

#include "engine/elf/debug_files.h"

namespace uprobe::dwarf {
namespace {

using elf::BytesView;

constexpr unsigned kGnu = 2, kDwarf5 = 5;  // versions of the index
constexpr std::uint32_t kHeaderBytes = 16, kRowOfHash = 8;
constexpr std::uint64_t kStringLimit = 1 << 20;

// By the numbers of DW_SECT_*.
constexpr std::optional<Share> kGnuParts[] = {std::nullopt,       Share::info,    Share::types,
                                              Share::abbrev,      Share::line,    Share::loc,
                                              Share::str_offsets, Share::macinfo, Share::macro};
constexpr std::optional<Share> kDwarf5Parts[] = {std::nullopt,       Share::info,  std::nullopt,
                                                 Share::abbrev,      Share::line,  Share::loclists,
                                                 Share::str_offsets, Share::macro, Share::rnglists};
constexpr const char* kNames[kShares] = {
    ".debug_info.dwo",     ".debug_types.dwo",       ".debug_abbrev.dwo",  ".debug_line.dwo",  ".debug_loc.dwo",
    ".debug_loclists.dwo", ".debug_str_offsets.dwo", ".debug_macinfo.dwo", ".debug_macro.dwo", ".debug_rnglists.dwo"};
constexpr const char* kStrings = ".debug_str.dwo";

constexpr std::size_t number_of(Share part) { return static_cast<std::size_t>(part); }

template <class T>
void put(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& to, BytesView bytes) {
  to.append(reinterpret_cast<const char*>(bytes.span().data()), bytes.size());
}

// A table of the offsets of strings, and those strings, counted anew.
struct Strings {
  std::string offsets, text;
};

// DWARF 5 has a header before the offsets: a length, a version and two bytes of padding. Nothing: damaged, or too large.
std::optional<Strings> strings_of(BytesView offsets, BytesView all, bool has_header, std::uint64_t most) {
  constexpr std::uint64_t kHeader = 8, kEntry = 4;
  Strings made;
  std::uint64_t at = 0;
  if (has_header && !offsets.empty()) {
    if (offsets.size() < kHeader || *offsets.read<std::uint32_t>(0) == UINT32_MAX) return {};
    put(made.offsets, offsets.slice(0, kHeader));
    at = kHeader;
  }
  for (; at + kEntry <= offsets.size(); at += kEntry) {
    const auto text = all.text(*offsets.read<std::uint32_t>(at), kStringLimit);
    put(made.offsets, static_cast<std::uint32_t>(text ? made.text.size() : 0));
    if (!text) continue;
    if (made.text.size() + text->size() + 1 > most) return {};
    made.text.append(*text).push_back('\0');
  }
  return made;
}

// An ELF file of sections alone.
class Container {
 public:
  void add(const char* name, std::string_view contents) {
    if (contents.empty()) return;
    while (text_.size() % alignof(std::uint64_t) != 0) text_.push_back('\0');
    add_header(name, SHT_PROGBITS, contents);
  }
  std::string finish() {
    std::string all(sizeof(Elf64_Ehdr), '\0');
    add_header(".shstrtab", SHT_STRTAB, {});
    Elf64_Shdr& names = headers_.back();
    names.sh_size = names_.size();
    text_ += names_;
    while (text_.size() % alignof(std::uint64_t) != 0) text_.push_back('\0');
    Elf64_Ehdr file{};
    std::copy_n(ELFMAG, SELFMAG, file.e_ident);
    file.e_ident[EI_CLASS] = ELFCLASS64, file.e_ident[EI_DATA] = ELFDATA2LSB, file.e_ident[EI_VERSION] = EV_CURRENT;
    file.e_type = ET_REL, file.e_machine = EM_NONE, file.e_version = EV_CURRENT;
    file.e_ehsize = sizeof file, file.e_shentsize = sizeof(Elf64_Shdr);
    file.e_shoff = sizeof file + text_.size();
    file.e_shnum = static_cast<Elf64_Half>(headers_.size());
    file.e_shstrndx = static_cast<Elf64_Half>(headers_.size() - 1);
    all.clear();
    put(all, file);
    all += text_;
    for (const Elf64_Shdr& header : headers_) put(all, header);
    return all;
  }

 private:
  void add_header(const char* name, Elf64_Word type, std::string_view contents) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names_.size());
    header.sh_type = type;
    header.sh_offset = sizeof(Elf64_Ehdr) + text_.size();
    header.sh_size = contents.size();
    header.sh_addralign = 1;
    headers_.push_back(header);
    names_.append(name).push_back('\0');
    text_ += contents;
  }

  std::vector<Elf64_Shdr> headers_{Elf64_Shdr{}};
  std::string names_{'\0'}, text_;
};

std::string_view as_text(BytesView bytes) { return {reinterpret_cast<const char*>(bytes.span().data()), bytes.size()}; }

// Where debuggers look for the package of a file.
std::vector<std::string> places_of(const elf::ElfFile& file, const std::string& debug_file) {
  namespace fs = std::filesystem;
  constexpr std::string_view kDebug = ".debug";
  std::vector<std::string> places{file.path() + ".dwp"};
  std::error_code error;
  const elf::Folders folders = elf::folders_of(file.path());
  const auto add = [&](const std::string& path) {
    if (!folders.root.empty()) places.push_back(folders.root + path);
    places.push_back(path);
  };
  for (const std::string& folder : folders.names)
    add(folder + "/" + fs::path(file.path()).filename().string() + ".dwp");
  if (const fs::path real = fs::canonical(file.path(), error); !error) places.push_back(real.string() + ".dwp");
  if (debug_file != file.path()) {
    places.push_back(debug_file + ".dwp");
    if (debug_file.ends_with(kDebug))
      places.push_back(debug_file.substr(0, debug_file.size() - kDebug.size()) + ".dwp");
  }
  if (std::string name = elf::build_id_name(file.build_id()); !name.empty())
    add(std::string(elf::kDebugFolder) + "/" + name.substr(0, name.size() - kDebug.size()) + ".dwp");
  return places;
}

}  // namespace

std::optional<UnitIndex> UnitIndex::read(BytesView section) {
  UnitIndex index;
  index.bytes_ = section;
  const auto first = section.read<std::uint32_t>(0);
  if (!first || !section.holds(0, kHeaderBytes)) return {};
  index.version_ = *first == kGnu ? kGnu : *first & 0xffff;
  if (index.version_ != kGnu && index.version_ != kDwarf5) return {};
  index.columns_ = *section.read<std::uint32_t>(4);
  index.units_ = *section.read<std::uint32_t>(8);
  index.slots_ = *section.read<std::uint32_t>(12);
  constexpr std::uint64_t kEntry = 4;
  const std::uint64_t ids_at = kHeaderBytes + std::uint64_t{index.slots_} * (kRowOfHash + kEntry);
  const std::uint64_t row = kEntry * index.columns_;
  index.rows_at_ = ids_at + row;
  const bool is_usual = (index.slots_ == 0 || std::has_single_bit(index.slots_)) && index.columns_ <= kShares;
  if (!is_usual || !section.holds(index.rows_at_, 2 * row * index.units_)) return {};
  for (std::uint32_t i = 0; i < index.columns_; ++i) {
    const std::uint32_t id = *section.read<std::uint32_t>(ids_at + kEntry * i);
    const auto known = index.version_ == kGnu ? std::span(kGnuParts) : std::span(kDwarf5Parts);
    index.parts_.push_back(id < known.size() ? known[id] : std::nullopt);
  }
  return index;
}

std::optional<UnitIndex::Row> UnitIndex::row(std::uint32_t number) const {
  if (number >= units_) return {};
  Row row;
  const std::uint64_t table = std::uint64_t{4} * columns_ * units_;
  for (std::uint32_t i = 0; i < columns_; ++i) {
    const std::uint64_t at = rows_at_ + (std::uint64_t{number} * columns_ + i) * 4;
    if (!parts_[i]) continue;
    row[dwarf::number_of(*parts_[i])] = Range{*bytes_.read<std::uint32_t>(at), *bytes_.read<std::uint32_t>(at + table)};
  }
  return row;
}

std::optional<UnitIndex::Row> UnitIndex::find(std::uint64_t signature) const {
  if (slots_ == 0) return {};
  const std::uint32_t mask = slots_ - 1;
  auto slot = static_cast<std::uint32_t>(signature) & mask;
  const auto step = (static_cast<std::uint32_t>(signature >> 32) & mask) | 1;
  for (std::uint32_t tried = 0; tried < slots_; ++tried, slot = (slot + step) & mask) {
    const auto number =
        *bytes_.read<std::uint32_t>(kHeaderBytes + std::uint64_t{kRowOfHash} * slots_ + std::uint64_t{4} * slot);
    if (number == 0) return {};
    if (*bytes_.read<std::uint64_t>(kHeaderBytes + std::uint64_t{kRowOfHash} * slot) == signature)
      return row(number - 1);
  }
  return {};
}

std::vector<std::uint64_t> UnitIndex::signatures() const {
  std::vector<std::uint64_t> all;
  for (std::uint32_t slot = 0; slot < slots_; ++slot)
    if (*bytes_.read<std::uint32_t>(kHeaderBytes + std::uint64_t{kRowOfHash} * slots_ + std::uint64_t{4} * slot) != 0)
      all.push_back(*bytes_.read<std::uint64_t>(kHeaderBytes + std::uint64_t{kRowOfHash} * slot));
  return all;
}

std::optional<Package> Package::find(const elf::ElfFile& file, const std::string& debug_file) {
  for (const std::string& path : places_of(file, debug_file)) {
    const auto opened = open_regular(path);
    if (!opened) continue;
    auto bytes =
        elf::FileBytes::read(opened->fd, static_cast<std::uint64_t>(opened->about.st_size), elf::kMostDebugFile, path);
    if (!bytes) continue;
    if (auto package = parse(path, bytes.take())) return package;
  }
  return {};
}

std::optional<Package> Package::parse(const std::string& path, elf::FileBytes bytes) {
  Package package(path, std::move(bytes));
  package.elf_.reset(open_image(package.bytes_.span()));
  std::size_t names = 0;
  if (!package.elf_ || elf_getshdrstrndx(package.elf_.get(), &names) != 0) return {};
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(package.elf_.get(), section)) != nullptr;) {
    const Elf64_Shdr* header = elf64_getshdr(section);
    if (header == nullptr || header->sh_type == SHT_NOBITS) continue;
    const char* name = elf_strptr(package.elf_.get(), names, header->sh_name);
    if ((header->sh_flags & SHF_COMPRESSED) != 0 && elf_compress(section, 0, 0) < 0) continue;
    const Elf_Data* data = elf_rawdata(section, nullptr);
    if (name == nullptr || data == nullptr || data->d_buf == nullptr) continue;
    const BytesView view({static_cast<const std::uint8_t*>(data->d_buf), data->d_size});
    const auto* known =
        std::ranges::find(kNames, std::string_view(name), [](const char* one) { return std::string_view(one); });
    if (known != std::end(kNames)) package.sections_[static_cast<std::size_t>(known - kNames)] = view;
    if (name == std::string_view(kStrings)) package.strings_ = view;
    if (name == std::string_view(".debug_cu_index")) package.units_ = UnitIndex::read(view);
    if (name == std::string_view(".debug_tu_index")) package.types_ = UnitIndex::read(view);
  }
  if (!package.units_) return {};
  for (std::uint32_t i = 0; package.types_ && i < package.types_->units(); ++i)
    if (const auto row = package.types_->row(i); row && (*row)[number_of(Share::abbrev)])
      package.types_by_abbrev_.emplace((*row)[number_of(Share::abbrev)]->offset, i);
  return package;
}

BytesView Package::part(const UnitIndex::Row& row, Share which) const {
  const auto& range = row[number_of(which)];
  return range ? sections_[number_of(which)].slice(range->offset, range->bytes) : BytesView();
}

// A type unit that several files have had is in the package once, with the abbreviations and strings of one of them: the other files'
// units do without it. False: too large.
bool Package::add_types(const UnitIndex::Row& of, std::uint64_t most, std::string& info, std::string& types) const {
  const auto& abbrev = of[number_of(Share::abbrev)];
  const auto& strings = of[number_of(Share::str_offsets)];
  if (!abbrev) return true;
  const auto [begin, end] = types_by_abbrev_.equal_range(abbrev->offset);
  for (auto at = begin; at != end; ++at) {
    const auto row = types_->row(at->second);
    if (!row || !strings || !(*row)[number_of(Share::str_offsets)]) continue;
    if ((*row)[number_of(Share::str_offsets)]->offset != strings->offset) continue;
    put(info, types_->version() == kDwarf5 ? part(*row, Share::info) : BytesView());
    put(types, types_->version() == kGnu ? part(*row, Share::types) : BytesView());
    if (info.size() + types.size() > most) return false;
  }
  return true;
}

std::optional<std::string> Package::unit(std::uint64_t id, std::uint64_t most) const {
  const auto row = units_->find(id);
  if (!row) return {};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kShares; ++i) {
    const BytesView one = part(*row, static_cast<Share>(i));
    if ((*row)[i] && one.size() != (*row)[i]->bytes) return {};
    bytes += one.size();
  }
  const bool has_header = units_->version() == kDwarf5;
  const auto strings = strings_of(part(*row, Share::str_offsets), strings_, has_header, most);
  std::string info(as_text(part(*row, Share::info))), types;
  if (!strings || info.empty() || bytes > most || !add_types(*row, most, info, types)) return {};
  Container made;
  for (std::size_t i = 0; i < kShares; ++i) {
    const Share which = static_cast<Share>(i);
    made.add(kNames[i], which == Share::info          ? info
                        : which == Share::types       ? types
                        : which == Share::str_offsets ? strings->offsets
                                                      : as_text(part(*row, which)));
  }
  made.add(kStrings, strings->text);
  std::string file = made.finish();
  return file.size() <= most ? std::optional(std::move(file)) : std::nullopt;
}

}  // namespace uprobe::dwarf
