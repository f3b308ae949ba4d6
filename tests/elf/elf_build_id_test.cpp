// SPDX-License-Identifier: MIT
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "engine/elf/debug_files.h"
#include "engine/elf/elf_file.h"

namespace uprobe::elf {
namespace {

// A head, a segment of notes, and the notes.
struct Made {
  Elf64_Ehdr head{};
  Elf64_Phdr segment{};
  Elf64_Nhdr first{.n_namesz = 6, .n_descsz = 3, .n_type = NT_GNU_BUILD_ID};
  char other[12] = {'O', 't', 'h', 'e', 'r', 0, 0, 0, 'n', 'o', 't', 0};
  Elf64_Nhdr note{.n_namesz = 4, .n_descsz = 3, .n_type = NT_GNU_BUILD_ID};
  char owner[4] = {'G', 'N', 'U', 0};
  char id[4] = {'\x01', '\xab', '\x00', 0};

  Made() {
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64, head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_phoff = offsetof(Made, segment), head.e_phnum = 1, head.e_phentsize = sizeof segment;
    segment.p_type = PT_NOTE, segment.p_offset = offsetof(Made, first), segment.p_align = 4;
    segment.p_filesz = sizeof(Made) - offsetof(Made, first);
  }
};

std::string id_of(const Made& made, std::size_t bytes = sizeof(Made)) {
  const Fd file(::memfd_create("made", MFD_CLOEXEC));
  EXPECT_EQ(write_all(file.get(), &made, bytes), 0);
  return build_id_in(file);
}

TEST(BuildId, IsThatOfTheFile) {
  const auto own = ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(own);
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const std::string id = build_id_in(file);
  EXPECT_EQ(id.size(), 2 * own->build_id().size());
  EXPECT_EQ(build_id_name(own->build_id()), ".build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug");
}

TEST(BuildId, IsTheNoteOfItsOwner) { EXPECT_EQ(id_of({}), "01ab00"); }

TEST(BuildId, OfADamagedFileThereIsNone) {
  for (std::size_t bytes = 0; bytes < sizeof(Made); bytes += 4) EXPECT_EQ(id_of({}, bytes), "") << bytes;
  const auto is_none = [](const auto& change) {
    Made made;
    change(made);
    return id_of(made).empty();
  };
  EXPECT_TRUE(is_none([](Made& m) { m.head.e_ident[EI_CLASS] = ELFCLASS32; }));
  EXPECT_TRUE(is_none([](Made& m) { m.head.e_phnum = 0xffff; }));
  EXPECT_TRUE(is_none([](Made& m) { m.head.e_phoff = ~std::uint64_t{0} - 8; }));
  EXPECT_TRUE(is_none([](Made& m) { m.segment.p_offset = ~std::uint64_t{0}; }));
  EXPECT_TRUE(is_none([](Made& m) { m.segment.p_filesz = ~std::uint64_t{0}; }));
  EXPECT_TRUE(is_none([](Made& m) { m.first.n_namesz = 0xffffffff; }));
  EXPECT_TRUE(is_none([](Made& m) { m.first.n_descsz = 0xfffffffc; }));
  EXPECT_TRUE(is_none([](Made& m) { m.note.n_descsz = 64; }));
  EXPECT_TRUE(is_none([](Made& m) { m.owner[0] = 'X'; }));
}

}  // namespace
}  // namespace uprobe::elf
