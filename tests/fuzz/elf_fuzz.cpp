// SPDX-License-Identifier: MIT
// Damaged ELF files: for any bytes every question has an answer, and the answers fit together.
#include <algorithm>
#include <cstdlib>

#include "engine/base/fd.h"
#include "engine/elf/elf_file.h"
#include "engine/elf/relocations.h"
#include "engine/symbolize/frame_walk.h"
#include "tests/elf/made_elf.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe::elf;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_functions(const ElfFile& file) {
  std::uint64_t last = 0;
  for (const Symbol& symbol : file.functions()) {
    require(symbol.address >= last);
    last = symbol.address;
    const auto offset = file.offset_of_address(symbol.address);
    require(offset && *offset < file.bytes().size() && file.is_executable_offset(*offset));
  }
  if (file.functions().empty()) return;
  const Symbol& middle = file.functions()[file.functions().size() / 2];
  const std::vector<Symbol> found =
      file.find_functions(middle.name + (middle.version.empty() ? "" : "@" + middle.version));
  // A name or version with '@' in it may be cut at another place; any other must be found at its address.
  const bool is_plain = (middle.name + middle.version).find('@') == std::string::npos;
  const auto is_it = [&](const Symbol& symbol) { return symbol.address == middle.address; };
  require(!is_plain || !middle.default_version || std::any_of(found.begin(), found.end(), is_it));
}

void check_ranges(const ElfFile& file) {
  const auto ranges = file.function_ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    require(ranges[i].begin < ranges[i].end);
    require(i == 0 || ranges[i - 1].begin < ranges[i].begin);
    require(file.offset_of_address(ranges[i].end - 1).has_value());
  }
  if (!ranges.empty()) require(file.range_at(ranges.back().begin) == ranges.back());
  for (const std::uint64_t start : file.known_starts()) require(file.offset_of_address(start).has_value());
}

class EverywhereTheSame final : public FrameMemory {
 public:
  std::optional<std::uint64_t> load(std::uint64_t address) const override { return address ^ 0x401008; }
};

void check_frames(const ElfFile& file) {
  CallFrames frames(file.bytes());
  FrameState state;
  for (std::size_t reg = 0; reg < kFrameRegisters; ++reg) state[reg] = 0x7000 + 8 * reg;
  for (const Range& range : file.function_ranges()) {
    for (const std::uint64_t address : {range.begin, range.begin + (range.end - range.begin) / 2, range.end - 1}) {
      const FrameRow* row = frames.row_at(address);
      if (row == nullptr) continue;
      FrameState caller = state;
      const Step step = step_up(*row, EverywhereTheSame(), caller);
      require(step == Step::up ? caller[kFrameIp] && caller[kFrameSp] : caller == state);
    }
  }
}

Elf64_Shdr section(std::uint32_t name, std::uint32_t type, std::uint64_t flags, std::uint64_t offset,
                   std::uint64_t size, std::uint32_t link) {
  return Elf64_Shdr{.sh_name = name,
                    .sh_type = type,
                    .sh_flags = flags,
                    .sh_addr = flags == 0 ? 0 : MadeElf::kBase + offset,
                    .sh_offset = offset,
                    .sh_size = size,
                    .sh_link = link,
                    .sh_info = 0,
                    .sh_addralign = 8,
                    .sh_entsize = 24};
}

// The tables of made_seed() once more, by section headers at 0x600.
void add_sections(MadeElf& made) {
  const Elf64_Shdr sections[] = {section(0, SHT_NULL, 0, 0, 0, 0),
                                 section(0, SHT_STRTAB, 0, 0x400, 0x20, 0),
                                 section(0, SHT_SYMTAB, 0, 0x380, 48, 1),
                                 section(0, SHT_RELA, SHF_ALLOC, 0x5a0, 48, 0),
                                 section(1, SHT_PROGBITS, SHF_ALLOC, 0x510, 0x30, 0),
                                 section(0, SHT_STRTAB, 0, 0x7c0, 0x10, 0)};
  made.header().e_shoff = 0x600;
  made.header().e_shnum = std::size(sections);
  made.header().e_shstrndx = std::size(sections) - 1;
  made.header().e_shentsize = sizeof(Elf64_Shdr);
  made.put(0x600, sections);
  made.put_bytes(0x7c0, {0, '.', 'e', 'h', '_', 'f', 'r', 'a', 'm', 'e', 0});
}

// A dense seed: the parts that a mutation may change are close together.
std::string made_seed(bool with_sections) {
  const auto entry = [](std::int64_t tag, std::uint64_t value) {
    return Elf64_Dyn{.d_tag = tag, .d_un = {.d_val = value}};
  };
  const std::uint64_t base = MadeElf::kBase;
  const Elf64_Dyn entries[] = {entry(DT_SYMTAB, base + 0x380),
                               entry(DT_STRTAB, base + 0x400),
                               entry(DT_STRSZ, 0x20),
                               entry(DT_GNU_HASH, base + 0x440),
                               entry(DT_VERSYM, base + 0x480),
                               entry(DT_VERDEF, base + 0x490),
                               entry(DT_VERDEFNUM, 2),
                               entry(DT_INIT_ARRAY, base + 0x4d0),
                               entry(DT_INIT_ARRAYSZ, 8),
                               entry(DT_RELA, base + 0x5a0),
                               entry(DT_RELASZ, 48)};
  const Elf64_Rela relocations[] = {{.r_offset = base, .r_info = 8, .r_addend = 0x40},
                                    {.r_offset = base + 8, .r_info = 37, .r_addend = 0x1000}};
  const Elf64_Sym symbol{.st_name = 1,
                         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                         .st_other = 0,
                         .st_shndx = 1,
                         .st_value = base + MadeElf::kCode,
                         .st_size = 8};
  const Elf64_Verdef version{
      .vd_version = 1, .vd_flags = 0, .vd_ndx = 2, .vd_cnt = 1, .vd_hash = 0, .vd_aux = 20, .vd_next = 0};
  MadeElf made;
  made.add_part(PT_DYNAMIC, 0x200, sizeof entries);
  made.add_part(PT_GNU_EH_FRAME, 0x500, 12);
  made.add_part(PT_NOTE, 0x1c0, 32);
  made.put(0x200, entries);
  made.put(0x398, symbol);
  made.put_bytes(0x400, {0, '_', 'Z', '1', 'f', 'i', 0, 'V', '1', 0});
  made.put_bytes(0x440,
                 {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0});
  made.put_bytes(0x480, {0, 0, 2, 0});
  made.put(0x490, version);
  made.put(0x4a4, Elf64_Verdaux{.vda_name = 7, .vda_next = 0});
  made.put(0x4d0, base + MadeElf::kCode + 16);
  made.put_bytes(0x500, {1, 0x1b, 0x03, 0x3b, 0x0c, 0, 0, 0});
  made.put_bytes(0x510, {16, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x03, 0, 0, 0});  // CIE: udata4
  made.put_bytes(0x524, {16, 0, 0, 0, 24, 0, 0, 0, 0, 0x10, 0x40, 0, 32, 0, 0, 0, 0, 0, 0, 0});     // FDE at 0x401000
  made.put_bytes(0x1c0, {4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0, 1, 2, 3, 4});
  made.put(0x5a0, relocations);
  if (with_sections) add_sections(made);
  const std::vector<std::uint8_t> bytes = made.bytes();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const uprobe::Result<ElfFile> file = ElfFile::parse("input", std::vector<std::uint8_t>(data, data + size));
  if (!file) {
    require(!file.error().text.empty() && file.error().where == "input");
    return 0;
  }
  check_functions(*file);
  check_ranges(*file);
  check_frames(*file);
  for (const char* name : {"alpha", "swap@V1", "shapes::area", "x@@y", "@"}) {
    (void)file->find_functions(name);
    (void)file->find_any(name);
  }
  // Two tables of PT_DYNAMIC may be the same bytes.
  require(relocations_of(*file).size() <= 2 * size / sizeof(Elf64_Rela));
  require(file->close_names("alhpa").size() <= 3);
  for (const Segment& segment : file->segments()) (void)file->address_of_offset(segment.offset - 1);
  require(std::equal(data, data + size, file->bytes().begin(), file->bytes().end()));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds{made_seed(false), made_seed(true)};
#ifdef UPROBE_ELF_FIXTURES
  for (const char* name : {"elf_tiny", "elf_pie", "elf_stripped", "elf_versions", "elf_overloads", "elf_ifunc"}) {
    auto text = uprobe::read_file(std::string(UPROBE_ELF_FIXTURES) + "/" + name);
    if (text) seeds.push_back(text.take());
  }
#endif
  return seeds;
}
