// SPDX-License-Identifier: MIT
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/flow/go_program.h"

namespace uprobe::plan {
namespace {

using Bytes = std::vector<std::uint8_t>;

// A program as small as can be: one executable segment, the section of Go's table of functions, and that of its version.
class Program {
 public:
  std::string version = "go1.19.8";
  std::uint8_t flags = 2;
  bool is_dynamic = false, has_interpreter = false, has_table = true;
  Bytes code = {0xe9, 0x03, 0,    0,    0,    0xcc, 0xcc, 0xcc, 0x48, 0x8b, 0x3c,
                0x24, 0x48, 0x8d, 0x74, 0x24, 0x08, 0xe9, 0,    0,    0,    0};

  GoProgram judge() const {
    const Bytes file = bytes();
    const auto image = elf::Image::parse(elf::BytesView(file));
    EXPECT_TRUE(image);
    return image ? go_program_of(*image) : GoProgram::none;
  }

 private:
  static constexpr std::uint64_t kBase = 0x400000, kCode = 0x1000, kInfo = 0x2000, kNames = 0x3000,
                                 kInterpreter = 0x3800, kSections = 0x4000, kSize = 0x5000;

  template <class T>
  static void put(Bytes& file, std::uint64_t at, const T& value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  }

  Bytes bytes() const {
    Bytes file(kSize);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB,
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = is_dynamic ? ET_DYN : ET_EXEC, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
    header.e_entry = kBase + kCode, header.e_phoff = sizeof header, header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = has_interpreter ? 2 : 1;
    header.e_shoff = kSections, header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = 4, header.e_shstrndx = 3;
    put(file, 0, header);
    const Elf64_Phdr load{.p_type = PT_LOAD,
                          .p_flags = PF_R | PF_X,
                          .p_offset = 0,
                          .p_vaddr = kBase,
                          .p_paddr = kBase,
                          .p_filesz = kSize,
                          .p_memsz = kSize,
                          .p_align = 0x1000};
    const Elf64_Phdr interpreter{.p_type = PT_INTERP,
                                 .p_flags = PF_R,
                                 .p_offset = kInterpreter,
                                 .p_vaddr = kBase + kInterpreter,
                                 .p_paddr = kBase + kInterpreter,
                                 .p_filesz = 8,
                                 .p_memsz = 8,
                                 .p_align = 1};
    put(file, sizeof header, load);
    put(file, sizeof header + sizeof load, interpreter);
    std::memcpy(file.data() + kInterpreter, "/lib/ld", 8);
    std::memcpy(file.data() + kCode, code.data(), code.size());
    std::memcpy(file.data() + kInfo, "\xff Go buildinf:", 14);
    file[kInfo + 14] = 8, file[kInfo + 15] = flags, file[kInfo + 32] = static_cast<std::uint8_t>(version.size());
    std::memcpy(file.data() + kInfo + 33, version.data(), version.size());
    const char names[] = "\0.gopclntab\0.go.buildinfo\0.shstrtab\0.other";
    std::memcpy(file.data() + kNames, names, sizeof names);
    const auto section = [&](unsigned index, std::uint32_t name, std::uint32_t type, std::uint64_t at,
                             std::uint64_t size) {
      put(file, kSections + index * sizeof(Elf64_Shdr),
          Elf64_Shdr{.sh_name = name,
                     .sh_type = type,
                     .sh_flags = SHF_ALLOC,
                     .sh_addr = kBase + at,
                     .sh_offset = at,
                     .sh_size = size,
                     .sh_link = 0,
                     .sh_info = 0,
                     .sh_addralign = 1,
                     .sh_entsize = 0});
    };
    section(1, has_table ? 1 : 37, SHT_PROGBITS, kCode, 16);
    section(2, 12, SHT_PROGBITS, kInfo, 0x100);
    section(3, 26, SHT_STRTAB, kNames, sizeof names);
    return file;
  }
};

TEST(GoProgram, OfAKnownVersionWithoutACLibrary) {
  EXPECT_EQ(Program{}.judge(), GoProgram::plain);
  for (const char* version : {"go1.19", "go1.22.0 X:none", "go1.26.1"}) {
    Program program;
    program.version = version;
    EXPECT_EQ(program.judge(), GoProgram::plain) << version;
  }
}

TEST(GoProgram, OfAVersionThatIsNotKnown) {
  for (const char* version : {"go1.18.10", "go1.27", "go2.19", "devel go1.22-1234", "go1.", "go1.x", "", "1.19",
                              "go1.99999999999999999999"}) {
    Program program;
    program.version = version;
    EXPECT_EQ(program.judge(), GoProgram::other_version) << version;
  }
  Program by_pointer;
  by_pointer.flags = 0;
  EXPECT_EQ(by_pointer.judge(), GoProgram::other_version);
}

TEST(GoProgram, WhereOtherCodeRunsBefore) {
  Program dynamic, interpreted, c_start, elsewhere;
  dynamic.is_dynamic = true;
  interpreted.has_interpreter = true;
  c_start.code[8] = 0x31;  // another first instruction
  elsewhere.code[3] = 0x7f;
  for (const Program* program : {&dynamic, &interpreted, &c_start, &elsewhere})
    EXPECT_EQ(program->judge(), GoProgram::with_libc);
}

TEST(GoProgram, NoneAtAll) {
  Program program;
  program.has_table = false;
  EXPECT_EQ(program.judge(), GoProgram::none);
}

}  // namespace
}  // namespace uprobe::plan
