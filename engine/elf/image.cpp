// SPDX-License-Identifier: MIT
// Checks the headers of an ELF file and maps offsets to addresses.
#include "engine/elf/image.h"

#include <algorithm>

#include "arch/abi/elf.h"

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMaxInterpreter = 4096;  // PATH_MAX, as in the kernel's loader
constexpr std::uint64_t kMaxSectionName = 64;    // longer than any that is looked for
constexpr std::uint64_t kMaxDynamic = 65536;     // entries of PT_DYNAMIC; real ones have a few dozen
// A program has up to three tables of notes, of a few hundred bytes. Both limits keep a file of overlapping tables from
// costing the square of its size: libelf also looks through all earlier tables when it is asked for one.
constexpr std::uint64_t kMaxNoteBytes = std::uint64_t{1} << 20;
constexpr unsigned kMaxNoteTables = 64;

Error damaged(std::string text) { return Error{.code = Code::damaged, .text = std::move(text)}; }
Error refused(std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; }

std::string machine_name(std::uint16_t machine) {
  switch (machine) {
    case EM_386:
      return "32-bit x86";
    case EM_ARM:
      return "32-bit Arm";
    case EM_AARCH64:
      return "AArch64";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "PowerPC";
    case EM_S390:
      return "S/390";
    case EM_BPF:
      return "BPF";
    default:
      return "machine number " + std::to_string(machine);
  }
}

Status check_type(std::uint16_t type) {
  switch (type) {
    case ET_EXEC:
    case ET_DYN:
      return ok();
    case ET_REL:
      return refused("is an object file that is not linked yet");
    case ET_CORE:
      return refused("is a core dump");
    default:
      return refused("is neither a program nor a library (ELF type " + std::to_string(type) + ")");
  }
}

Status check_header(const Elf64_Ehdr& header) {
  // The identification comes first: it decides how the fields after it are to be read.
  const int file_class = header.e_ident[EI_CLASS];
  if (file_class == ELFCLASS32) return refused("is a 32-bit program");
  if (file_class != ELFCLASS64) return damaged("has an unknown ELF class (" + std::to_string(file_class) + ")");
  if (header.e_ident[EI_DATA] == ELFDATA2MSB) return refused("is a program for a big-endian machine");
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) return damaged("has an unknown byte order");
  if (header.e_ident[EI_VERSION] != EV_CURRENT) return damaged("has an unknown ELF version");
  if (header.e_machine != arch::kElfMachine)
    return refused("is for another machine: " + machine_name(header.e_machine));
  return ok();
}

Error no_elf(BytesView bytes) {
  constexpr std::uint64_t kShown = 64;
  const auto beginning = bytes.slice(0, std::min<std::uint64_t>(bytes.size(), kShown)).span();
  const bool is_text = std::all_of(beginning.begin(), beginning.end(),
                                   [](unsigned char c) { return c == '\n' || c == '\t' || c == '\r' || c >= ' '; });
  Error error = damaged("is not an ELF file");
  if (bytes.size() == 0) return error.help = "it is empty", error;
  if (is_text) error.help = "it is text: a script is run by the program that its first line names, as in #!/bin/sh";
  return error;
}

}  // namespace

// The header, checked, and libelf's view.
Result<Image> Image::begin(BytesView bytes) {
  const auto magic = bytes.slice(0, SELFMAG).span();
  if (magic.size() != SELFMAG || std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0) return no_elf(bytes);
  Image image;
  image.bytes_ = bytes;
  const std::uint64_t present = std::min<std::uint64_t>(bytes.size(), sizeof(Elf64_Ehdr));
  std::memcpy(&image.header_, bytes.span().data(), present);
  // A 32-bit header is shorter; its class is all that is read of it.
  if (present < sizeof(Elf64_Ehdr) && image.header_.e_ident[EI_CLASS] != ELFCLASS32)
    return damaged("is cut off in its ELF header");
  RETURN_IF_ERROR(check_header(image.header_));
  Result<Handle> handle = Handle::open(bytes);
  if (!handle) return handle.error();
  image.handle_ = handle.take();
  return image;
}

Result<Image> Image::parse(BytesView bytes) {
  auto image = begin(bytes);
  if (!image) return image;
  RETURN_IF_ERROR(check_type(image->header_.e_type));
  RETURN_IF_ERROR(image->read_program_headers());
  RETURN_IF_ERROR(image->check_segments());
  RETURN_IF_ERROR(image->read_interpreter());
  image->read_dynamic();
  image->read_sections();
  return image;
}

// What dwz has made is no program, by its type.
Result<Image> Image::parse_debug(BytesView bytes) {
  auto image = begin(bytes);
  if (!image) return image;
  image->read_sections();
  for (const Section& section : image->sections_)
    if (section.header.sh_type == SHT_NOTE)
      image->read_notes(section.header.sh_offset, section.header.sh_size, section.header.sh_addralign);
  return image;
}

Status Image::read_program_headers() {
  if (header_.e_phnum == 0) return damaged("has no program headers");
  if (header_.e_phentsize != sizeof(Elf64_Phdr)) return damaged("has program headers of a wrong size");
  // The value says that the true count is in the section headers: the kernel loads no such program.
  if (header_.e_phnum == PN_XNUM) return damaged("has more program headers than a program can have");
  std::size_t count = 0;
  // libelf counts what is inside the file.
  if (elf_getphdrnum(handle_.get(), &count) != 0 || count != header_.e_phnum)
    return damaged("has program headers outside of the file");
  for (int index = 0; index < header_.e_phnum; ++index) {
    GElf_Phdr entry;
    if (gelf_getphdr(handle_.get(), index, &entry) == nullptr)
      return damaged("has program headers outside of the file");
    Status status = ok();
    if (entry.p_type == PT_LOAD) status = add_segment(entry);
    if (!status) return status;
    if (entry.p_type == PT_INTERP) interpreter_header_ = entry;
    if (entry.p_type == PT_NOTE) read_notes(entry.p_offset, entry.p_filesz, entry.p_align);
    if (entry.p_type == PT_DYNAMIC) dynamic_address_ = entry.p_vaddr;
    if (entry.p_type == PT_GNU_EH_FRAME) eh_frame_header_ = entry.p_vaddr;
  }
  return ok();
}

Status Image::add_segment(const GElf_Phdr& entry) {
  if (entry.p_memsz == 0) return ok();
  if (entry.p_filesz > entry.p_memsz) return damaged("has a segment with more bytes in the file than in memory");
  if (!bytes_.holds(entry.p_offset, entry.p_filesz)) return damaged("is cut off: a segment lies outside of the file");
  if (entry.p_memsz > arch::kAddressLimit || entry.p_vaddr > arch::kAddressLimit - entry.p_memsz)
    return damaged("has a segment at an impossible address");
  segments_.push_back(Segment{.offset = entry.p_offset,
                              .file_bytes = entry.p_filesz,
                              .address = entry.p_vaddr,
                              .memory_bytes = entry.p_memsz,
                              .executable = (entry.p_flags & PF_X) != 0,
                              .writable = (entry.p_flags & PF_W) != 0});
  return ok();
}

Status Image::read_interpreter() {
  if (!interpreter_header_) return ok();
  const GElf_Phdr& entry = *interpreter_header_;
  const auto name = bytes_.slice(entry.p_offset, entry.p_filesz).text(0, kMaxInterpreter);
  if (!name || name->empty()) return damaged("has a damaged interpreter name");
  interpreter_ = *name;
  return ok();
}

// Offsets are aligned to 8 only where the segment is (GNU properties).
Elf_Data* Image::notes_of(std::uint64_t offset, std::uint64_t size, std::uint64_t alignment) {
  if (!build_id_.empty() || size > kMaxNoteBytes || note_tables_ == kMaxNoteTables) return nullptr;
  ++note_tables_;
  return handle_.chunk(offset, size, alignment == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
}

void Image::read_notes(std::uint64_t offset, std::uint64_t size, std::uint64_t alignment) {
  Elf_Data* notes = notes_of(offset, size, alignment);
  const BytesView bytes = bytes_of(notes);
  GElf_Nhdr note;
  std::size_t at = 0, name_at = 0, value_at = 0;
  while (build_id_.empty() && (at = gelf_getnote(notes, at, &note, &name_at, &value_at)) != 0) {
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || bytes.text(name_at, 3) != "GNU") continue;
    build_id_ = bytes_.slice(offset + value_at, note.n_descsz).span();
  }
}

Status Image::check_segments() {
  if (segments_.empty()) return damaged("has no segment to load");
  std::sort(segments_.begin(), segments_.end(),
            [](const Segment& a, const Segment& b) { return a.address < b.address; });
  for (std::size_t i = 1; i < segments_.size(); ++i) {
    const Segment& before = segments_[i - 1];
    if (before.address + before.memory_bytes > segments_[i].address) return damaged("has segments that overlap");
  }
  const auto is_code = [](const Segment& segment) { return segment.executable; };
  const auto is_hollow = [](const Segment& segment) { return segment.executable && segment.file_bytes == 0; };
  const auto hollow = std::count_if(segments_.begin(), segments_.end(), is_hollow);
  if (hollow != 0 && hollow == std::count_if(segments_.begin(), segments_.end(), is_code))
    return refused("holds no code (it is a file of debug information)");
  return ok();
}

// The dynamic linker reads as far as DT_NULL, whatever size the program header gives.
void Image::read_dynamic() {
  if (!dynamic_address_) return;
  Elf_Data* table = table_at(*dynamic_address_, kMaxDynamic * sizeof(Elf64_Dyn), ELF_T_DYN);
  for (std::uint64_t i = 0;; ++i) {
    const auto entry = entry_of(gelf_getdyn, table, i);
    if (!entry || entry->d_tag == DT_NULL) return;
    dynamic_.push_back(*entry);
  }
}

// A program runs without section headers, so whatever is wrong with them only means that there are none. libelf does
// not look at the size of an entry, and takes the file's first bytes for a table at offset 0.
void Image::read_sections() {
  if (header_.e_shoff == 0 || header_.e_shentsize != sizeof(Elf64_Shdr)) return;
  std::size_t names_index = 0;
  BytesView names;
  if (elf_getshdrstrndx(handle_.get(), &names_index) == 0) names = bytes_of(section_data(names_index));
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(handle_.get(), section)) != nullptr;) {
    Section one{.index = elf_ndxscn(section)};
    if (gelf_getshdr(section, &one.header) == nullptr) continue;
    // Not elf_strptr, which looks for the end of the last name of the table each time: in a table without one that is
    // the whole table.
    one.name = names.text(one.header.sh_name, kMaxSectionName).value_or(std::string_view());
    sections_.push_back(one);
  }
}

const Section* Image::find_section(std::uint32_t type, std::string_view name) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(), [&](const Section& section) {
    return section.header.sh_type == type && (name.empty() || section.name == name);
  });
  return found == sections_.end() ? nullptr : &*found;
}

BytesView Image::section_bytes(std::string_view name) const {
  for (const Section& section : sections_)
    if (section.name == name && section.header.sh_type != SHT_NOBITS)
      return bytes_.slice(section.header.sh_offset, section.header.sh_size);
  return {};
}

// An offset may be loaded twice where segments share a page of the file; code is what a probe is about.
std::optional<std::uint64_t> Image::address_of_offset(std::uint64_t offset) const {
  std::optional<std::uint64_t> found;
  for (const Segment& segment : segments_) {
    if (offset < segment.offset || offset - segment.offset >= segment.file_bytes) continue;
    const std::uint64_t address = segment.address + (offset - segment.offset);
    if (segment.executable) return address;
    if (!found) found = address;
  }
  return found;
}

bool Image::is_executable_offset(std::uint64_t offset) const {
  return std::any_of(segments_.begin(), segments_.end(), [offset](const Segment& segment) {
    return segment.executable && offset >= segment.offset && offset - segment.offset < segment.file_bytes;
  });
}

const Segment* Image::segment_at(std::uint64_t address) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), address,
                                [](std::uint64_t value, const Segment& segment) { return value < segment.address; });
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = *--after;
  return address - segment.address < segment.file_bytes ? &segment : nullptr;
}

std::optional<std::uint64_t> Image::offset_of_address(std::uint64_t address) const {
  const Segment* segment = segment_at(address);
  if (segment == nullptr) return std::nullopt;
  return segment->offset + (address - segment->address);
}

const Segment* Image::executable_at(std::uint64_t address) const {
  const Segment* segment = segment_at(address);
  return segment != nullptr && segment->executable ? segment : nullptr;
}

BytesView Image::bytes_at(std::uint64_t address) const {
  const Segment* segment = segment_at(address);
  if (segment == nullptr) return {};
  return bytes_.slice(segment->offset, segment->file_bytes).from(address - segment->address);
}

Elf_Data* Image::table_at(std::uint64_t address, std::uint64_t most, Elf_Type type) const {
  const auto offset = offset_of_address(address);
  return offset ? handle_.chunk(*offset, std::min(most, bytes_at(address).size()), type) : nullptr;
}

std::vector<std::uint64_t> Image::all_dynamic(std::int64_t tag) const {
  std::vector<std::uint64_t> values;
  for (const GElf_Dyn& entry : dynamic_)
    if (entry.d_tag == tag) values.push_back(entry.d_un.d_val);
  return values;
}

std::optional<std::uint64_t> Image::dynamic(std::int64_t tag) const {
  const auto found =
      std::find_if(dynamic_.begin(), dynamic_.end(), [tag](const GElf_Dyn& entry) { return entry.d_tag == tag; });
  return found == dynamic_.end() ? std::nullopt : std::optional<std::uint64_t>(found->d_un.d_val);
}

}  // namespace uprobe::elf
