// Checks the headers of an ELF file and maps offsets to addresses.
#include "engine/elf/image.h"

#include <algorithm>

namespace uprobe::elf {
namespace {

// User addresses on x86-64 with five-level paging end here; anything above cannot be loaded.
constexpr std::uint64_t kAddressLimit = std::uint64_t{1} << 56;
constexpr std::uint64_t kMaxInterpreter = 4096;  // PATH_MAX, as in the kernel's loader

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
  if (header.e_machine != EM_X86_64) return refused("is for another machine: " + machine_name(header.e_machine));
  return check_type(header.e_type);
}

}  // namespace

Result<Image> Image::parse(BytesView bytes) {
  const auto magic = bytes.slice(0, SELFMAG).span();
  if (magic.size() != SELFMAG || std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0) return damaged("is not an ELF file");
  Image image;
  image.bytes_ = bytes;
  const std::uint64_t present = std::min<std::uint64_t>(bytes.size(), sizeof(Elf64_Ehdr));
  std::memcpy(&image.header_, bytes.span().data(), present);
  // A 32-bit header is shorter; its class is all that is read of it.
  if (present < sizeof(Elf64_Ehdr) && image.header_.e_ident[EI_CLASS] != ELFCLASS32)
    return damaged("is cut off in its ELF header");
  if (const Status status = check_header(image.header_); !status) return status.error();
  if (const Status status = image.read_program_headers(); !status) return status.error();
  if (const Status status = image.check_segments(); !status) return status.error();
  if (const Status status = image.read_interpreter(); !status) return status.error();
  image.read_section_table();
  return image;
}

Status Image::read_program_headers() {
  if (header_.e_phnum == 0) return damaged("has no program headers");
  if (header_.e_phentsize != sizeof(Elf64_Phdr)) return damaged("has program headers of a wrong size");
  const BytesView table = bytes_.slice(header_.e_phoff, std::uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr));
  if (table.empty()) return damaged("has program headers outside of the file");
  for (std::uint64_t at = 0; at < table.size(); at += sizeof(Elf64_Phdr)) {
    const auto entry = *table.read<Elf64_Phdr>(at);
    Status status = ok();
    if (entry.p_type == PT_LOAD) status = add_segment(entry);
    if (!status) return status;
    if (entry.p_type == PT_INTERP) interpreter_header_ = entry;
    if (entry.p_type == PT_NOTE) read_notes(entry);
    if (entry.p_type == PT_DYNAMIC) dynamic_ = entry.p_vaddr;
    if (entry.p_type == PT_GNU_EH_FRAME) eh_frame_header_ = entry.p_vaddr;
  }
  return ok();
}

Status Image::add_segment(const Elf64_Phdr& entry) {
  if (entry.p_memsz == 0) return ok();
  if (entry.p_filesz > entry.p_memsz) return damaged("has a segment with more bytes in the file than in memory");
  if (!bytes_.holds(entry.p_offset, entry.p_filesz)) return damaged("is cut off: a segment lies outside of the file");
  if (entry.p_memsz > kAddressLimit || entry.p_vaddr > kAddressLimit - entry.p_memsz)
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
  const Elf64_Phdr& entry = *interpreter_header_;
  const auto name = bytes_.slice(entry.p_offset, entry.p_filesz).text(0, kMaxInterpreter);
  if (!name || name->empty()) return damaged("has a damaged interpreter name");
  interpreter_ = *name;
  return ok();
}

void Image::read_notes(const Elf64_Phdr& entry) {
  const std::uint64_t alignment = entry.p_align == 8 ? 8 : 4;
  const auto padded = [alignment](std::uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
  const BytesView notes = bytes_.slice(entry.p_offset, entry.p_filesz);
  for (std::uint64_t at = 0; build_id_.empty();) {
    const auto note = notes.read<Elf64_Nhdr>(at);
    if (!note) return;
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
    const std::uint64_t value_at = at + padded(sizeof(Elf64_Nhdr) + note->n_namesz);
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && notes.text(name_at, 3) == "GNU")
      build_id_ = notes.slice(value_at, note->n_descsz).span();
    at = value_at + padded(note->n_descsz);
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

// A program runs without section headers, so whatever is wrong with them only means that there are none.
void Image::read_section_table() {
  if (header_.e_shoff == 0 || header_.e_shentsize != sizeof(Elf64_Shdr)) return;
  const auto first = bytes_.read<Elf64_Shdr>(header_.e_shoff);
  if (!first) return;
  // Counts that do not fit into 16 bits are in the first entry.
  const std::uint64_t count = header_.e_shnum != 0 ? header_.e_shnum : first->sh_size;
  if (count > bytes_.size() / sizeof(Elf64_Shdr)) return;
  section_table_ = bytes_.slice(header_.e_shoff, count * sizeof(Elf64_Shdr));
  const std::uint64_t names = header_.e_shstrndx == SHN_XINDEX ? first->sh_link : header_.e_shstrndx;
  if (const auto strings = section(names)) section_names_ = bytes_.slice(strings->sh_offset, strings->sh_size);
}

std::optional<Elf64_Shdr> Image::section(std::uint64_t index) const {
  if (index >= section_table_.size() / sizeof(Elf64_Shdr)) return std::nullopt;
  return section_table_.read<Elf64_Shdr>(index * sizeof(Elf64_Shdr));
}

std::optional<Elf64_Shdr> Image::find_section(std::uint32_t type, std::string_view name) const {
  for (std::uint64_t at = 0; at < section_table_.size(); at += sizeof(Elf64_Shdr)) {
    const auto entry = section_table_.read<Elf64_Shdr>(at);
    if (!entry || entry->sh_type != type) continue;
    if (name.empty() || section_names_.text(entry->sh_name, name.size()) == name) return entry;
  }
  return std::nullopt;
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

std::optional<std::uint64_t> Image::dynamic(std::int64_t tag) const {
  if (!dynamic_) return std::nullopt;
  const BytesView table = bytes_at(*dynamic_);
  for (std::uint64_t at = 0;; at += sizeof(Elf64_Dyn)) {
    const auto entry = table.read<Elf64_Dyn>(at);
    if (!entry || entry->d_tag == DT_NULL) return std::nullopt;
    if (entry->d_tag == tag) return entry->d_un.d_val;
  }
}

}  // namespace uprobe::elf
