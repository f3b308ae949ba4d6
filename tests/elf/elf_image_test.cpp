// SPDX-License-Identifier: MIT
// Opening: files that are accepted, messages for those that are refused, offsets and addresses, hostile headers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "tests/elf/fixture.h"
#include "tests/elf/made_elf.h"

namespace uprobe::elf {
namespace {

// The error's text, or "" and a failed test.
Error error_of(const Result<ElfFile>& file) {
  if (!file) return file.error();
  ADD_FAILURE() << "was accepted";
  return {};
}

Error parse_error(Bytes bytes) { return error_of(ElfFile::parse("made", std::move(bytes))); }

Error made_error(const std::function<void(MadeElf&)>& change) {
  MadeElf made;
  change(made);
  return parse_error(made.bytes());
}

class TemporaryFolder : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_), nullptr); }
  void TearDown() override {
    for (const char* name : {"fifo", "secret", "short"}) ::unlink(path(name).c_str());
    EXPECT_EQ(::rmdir(folder_), 0);
  }
  std::string path(const std::string& name) const { return std::string(folder_) + "/" + name; }

 private:
  char folder_[32] = "/tmp/uprobe-elf-XXXXXX";
};

TEST(Open, MissingFileIsNotFound) {
  const Error error = error_of(ElfFile::open("/no/such/file"));
  EXPECT_EQ(error.code, Code::not_found);
  EXPECT_EQ(error.text, "No such file or directory");
  EXPECT_EQ(error.where, "/no/such/file");
  EXPECT_EQ(error_of(ElfFile::open(fixture("elf_pie") + "/below")).code, Code::not_found);
}

TEST(Open, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(error_of(ElfFile::open("/")).text, "is a directory");
  EXPECT_EQ(error_of(ElfFile::open("/")).code, Code::refused);
  EXPECT_EQ(error_of(ElfFile::open("/dev/zero")).text, "is a device");
}

TEST_F(TemporaryFolder, FifoDoesNotHang) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of(ElfFile::open(path("fifo"))).text, "is a fifo");
}

TEST_F(TemporaryFolder, UnreadableFileNamesTheReason) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  std::ofstream(path("secret")) << "x";
  ASSERT_EQ(::chmod(path("secret").c_str(), 0), 0);
  const Error error = error_of(ElfFile::open(path("secret")));
  EXPECT_EQ(error.code, Code::system);
  EXPECT_EQ(error.text, "cannot be opened: Permission denied");
}

TEST_F(TemporaryFolder, EmptyAndTextFilesAreNoElf) {
  std::ofstream(path("short")) << "";
  EXPECT_EQ(error_of(ElfFile::open(path("short"))).text, "is not an ELF file");
  std::ofstream(path("short")) << "#!/bin/sh\n";
  EXPECT_EQ(error_of(ElfFile::open(path("short"))).code, Code::damaged);
}

TEST(Open, ObjectFileIsRefused) {
  const Error error = error_of(ElfFile::open(fixture("elf_object.o")));
  EXPECT_EQ(error.code, Code::refused);
  EXPECT_EQ(error.text, "is an object file that is not linked yet");
}

TEST(Parse, OtherMachinesAndKindsAreRefused) {
  const auto is_refused = [](const std::function<void(Elf64_Ehdr&)>& change, const std::string& text) {
    const Error error = made_error([&](MadeElf& made) { change(made.header()); });
    EXPECT_EQ(error.code, Code::refused) << text;
    EXPECT_EQ(error.text, text);
  };
  is_refused([](Elf64_Ehdr& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }, "is a 32-bit program");
  is_refused([](Elf64_Ehdr& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; }, "is a program for a big-endian machine");
  is_refused([](Elf64_Ehdr& h) { h.e_machine = EM_AARCH64; }, "is for another machine: AArch64");
  is_refused([](Elf64_Ehdr& h) { h.e_machine = 999; }, "is for another machine: machine number 999");
  is_refused([](Elf64_Ehdr& h) { h.e_type = ET_CORE; }, "is a core dump");
  is_refused([](Elf64_Ehdr& h) { h.e_type = 77; }, "is neither a program nor a library (ELF type 77)");
}

TEST(Parse, DamagedHeadersAreErrors) {
  const auto is_damaged = [](const std::function<void(MadeElf&)>& change) {
    const Error error = made_error(change);
    EXPECT_EQ(error.code, Code::damaged) << error.text;
    EXPECT_EQ(error.where, "made");
  };
  is_damaged([](MadeElf& m) { m.header().e_ident[EI_CLASS] = 9; });
  is_damaged([](MadeElf& m) { m.header().e_ident[EI_DATA] = 9; });
  is_damaged([](MadeElf& m) { m.header().e_ident[EI_VERSION] = 9; });
  is_damaged([](MadeElf& m) { m.header().e_phoff = UINT64_MAX; });
  is_damaged([](MadeElf& m) { m.header().e_phoff = MadeElf::kSize - 8; });
  is_damaged([](MadeElf& m) { m.header().e_phoff = 0; });
  is_damaged([](MadeElf& m) { m.header().e_phentsize = 0; });
  is_damaged([](MadeElf& m) { m.segment().p_type = PT_NULL; });
  is_damaged([](MadeElf& m) { m.segment().p_offset = UINT64_MAX; });
  is_damaged([](MadeElf& m) { m.segment().p_offset = 1; });
  is_damaged([](MadeElf& m) { m.segment().p_filesz = UINT64_MAX; });
  is_damaged([](MadeElf& m) { m.segment().p_memsz = 1; });
  is_damaged([](MadeElf& m) { m.segment().p_vaddr = UINT64_MAX - 1; });
  is_damaged([](MadeElf& m) { m.add(m.segment()); });  // one address twice
  is_damaged([](MadeElf& m) { m.add_part(PT_INTERP, 0x800, 0); });
  is_damaged([](MadeElf& m) { m.add_part(PT_INTERP, UINT64_MAX, 20); });
}

TEST(Parse, EveryTruncationIsAnError) {
  MadeElf made;
  const Bytes whole = made.bytes();
  for (std::size_t size = 0; size < whole.size(); size += size < 256 ? 1 : 61)
    EXPECT_EQ(parse_error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))).code, Code::damaged);
}

TEST(Parse, DebugFileHoldsNoCode) {
  const Error error = made_error([](MadeElf& made) { made.segment().p_filesz = 0; });
  EXPECT_EQ(error.code, Code::refused);
}

TEST(Parse, WrongSectionHeadersCountAsNone) {
  for (const std::uint64_t offset : {std::uint64_t{1}, MadeElf::kSize - 1, UINT64_MAX, UINT64_MAX - 63}) {
    MadeElf made;
    made.header().e_shoff = offset;
    made.header().e_shnum = 0xfff0;
    made.header().e_shentsize = sizeof(Elf64_Shdr);
    EXPECT_FALSE(must_parse(made.bytes()).has_names());
  }
}

// A count that does not fit into the ELF header is in the first section; for any count the rest of the file is good.
TEST(Parse, ImpossibleSectionCountsAreNone) {
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{33}, std::uint64_t{0x10000}, UINT64_MAX / 64 + 1,
                                    std::uint64_t{UINT32_MAX}, UINT64_MAX}) {
    MadeElf made;
    made.header().e_shoff = 0x1800;
    made.header().e_shentsize = sizeof(Elf64_Shdr);
    made.put(0x1800, Elf64_Shdr{.sh_name = 0,
                                .sh_type = SHT_SYMTAB,
                                .sh_flags = 0,
                                .sh_addr = 0,
                                .sh_offset = 0,
                                .sh_size = count,
                                .sh_link = 0,
                                .sh_info = 0,
                                .sh_addralign = 0,
                                .sh_entsize = 0});
    const Bytes bytes = made.bytes();
    const ElfFile file = must_parse(bytes);
    EXPECT_FALSE(file.has_names()) << count;
    EXPECT_TRUE(file.functions().empty()) << count;
    EXPECT_EQ(Bytes(file.bytes().begin(), file.bytes().end()), bytes) << count;
  }
}

TEST(Parse, ExtendedProgramHeaderCountIsRefused) {
  Bytes bytes = MadeElf().bytes();
  auto header = get<Elf64_Ehdr>(bytes, 0);
  header.e_phnum = PN_XNUM;
  put(bytes, 0, header);
  EXPECT_EQ(parse_error(bytes).text, "has more program headers than a program can have");
}

// libelf works on the bytes themselves, not on a copy.
TEST(Parse, BytesStayAsTheyAre) {
  for (const char* name : {"elf_pie", "elf_versions", "elf_static", "elf_tiny"}) {
    const Bytes before = bytes_of(fixture(name));
    const ElfFile file = must_parse(before);
    EXPECT_FALSE(file.known_starts().empty());
    EXPECT_TRUE(file.close_names("alhpa").size() <= 3);
    EXPECT_EQ(Bytes(file.bytes().begin(), file.bytes().end()), before) << name;
  }
}

// Each table is small, but a file can name it 10,000 times: only the first few are read.
TEST(Parse, ManyTablesOfNotes) {
  MadeElf made;
  made.add_part(PT_NOTE, 0x1000, 0x1000);
  Bytes bytes = made.bytes();
  auto header = get<Elf64_Ehdr>(bytes, 0);
  const auto load = get<Elf64_Phdr>(bytes, header.e_phoff), note = get<Elf64_Phdr>(bytes, header.e_phoff + sizeof load);
  header.e_phoff = bytes.size();
  header.e_phnum = 60000;
  put(bytes, 0, header);
  put(bytes, bytes.size(), load);
  for (int i = 1; i < header.e_phnum; ++i) put(bytes, bytes.size(), note);
  EXPECT_TRUE(must_parse(bytes).build_id().empty());
}

TEST(Parse, BuildIdNeedsNoSections) {
  MadeElf made;
  made.add_part(PT_NOTE, 0x800, 64);
  made.put(0x800, Elf64_Nhdr{.n_namesz = 4, .n_descsz = 4, .n_type = NT_GNU_ABI_TAG});
  made.put_bytes(0x80c, {'G', 'N', 'U', 0, 1, 2, 3, 4});
  made.put(0x814, Elf64_Nhdr{.n_namesz = 4, .n_descsz = 3, .n_type = NT_GNU_BUILD_ID});
  made.put_bytes(0x820, {'G', 'N', 'U', 0, 0xab, 0xcd, 0xef});
  const ElfFile file = must_parse(made.bytes());
  const auto id = file.build_id();
  EXPECT_EQ(Bytes(id.begin(), id.end()), (Bytes{0xab, 0xcd, 0xef}));
}

TEST(Parse, DamagedNotesAreNoBuildId) {
  for (const std::uint32_t size : {0x1000U, UINT32_MAX, UINT32_MAX - 3}) {
    MadeElf made;
    made.add_part(PT_NOTE, 0x800, 64);
    made.put(0x800, Elf64_Nhdr{.n_namesz = 4, .n_descsz = size, .n_type = NT_GNU_BUILD_ID});
    made.put_bytes(0x80c, {'G', 'N', 'U', 0});
    EXPECT_TRUE(must_parse(made.bytes()).build_id().empty());
  }
}

TEST(Kinds, AreToldApart) {
  const ElfFile pie = must_open(fixture("elf_pie"));
  EXPECT_TRUE(pie.is_position_independent());
  EXPECT_EQ(pie.interpreter(), "/lib64/ld-linux-x86-64.so.2");
  EXPECT_FALSE(must_open(fixture("elf_no_pie")).is_position_independent());
  EXPECT_TRUE(must_open(fixture("elf_static_pie")).is_position_independent());
  EXPECT_EQ(must_open(fixture("elf_static_pie")).interpreter(), "");
  EXPECT_FALSE(must_open(fixture("elf_static")).is_position_independent());
  EXPECT_EQ(must_open(fixture("elf_static")).interpreter(), "");
}

TEST(Identity, IsThatOfTheFile) {
  struct stat status {};
  ASSERT_EQ(::stat(fixture("elf_pie").c_str(), &status), 0);
  const ElfFile file = must_open(fixture("elf_pie"));
  EXPECT_EQ(file.identity(), (Identity{status.st_dev, status.st_ino}));
  EXPECT_EQ(file.bytes().size(), static_cast<std::size_t>(status.st_size));
  EXPECT_NE(file.identity(), must_open(fixture("elf_no_pie")).identity());
  EXPECT_EQ(file.path(), fixture("elf_pie"));
}

TEST(Offsets, GoBothWays) {
  for (const char* name : {"elf_pie", "elf_no_pie", "elf_static", "elf_static_pie", "elf_versions", "elf_tiny"}) {
    const ElfFile file = must_open(fixture(name));
    for (const Symbol& symbol : file.functions()) {
      const auto offset = file.offset_of_address(symbol.address);
      ASSERT_TRUE(offset) << name << " " << symbol.name;
      EXPECT_TRUE(file.is_executable_offset(*offset));
      EXPECT_EQ(file.address_of_offset(*offset), symbol.address) << name << " " << symbol.name;
    }
    EXPECT_FALSE(file.functions().empty()) << name;
  }
}

TEST(Offsets, BytesThatAreNotInTheFileDoNotCount) {
  MadeElf made;
  made.segment().p_memsz = MadeElf::kSize + 0x5000;
  const ElfFile file = must_parse(made.bytes());
  EXPECT_EQ(file.offset_of_address(MadeElf::kBase + MadeElf::kSize - 1), MadeElf::kSize - 1);
  EXPECT_EQ(file.offset_of_address(MadeElf::kBase + MadeElf::kSize), std::nullopt);
  EXPECT_EQ(file.offset_of_address(MadeElf::kBase - 1), std::nullopt);
  EXPECT_EQ(file.address_of_offset(MadeElf::kSize), std::nullopt);
  EXPECT_EQ(file.address_of_offset(UINT64_MAX), std::nullopt);
  EXPECT_FALSE(file.is_executable_offset(MadeElf::kSize));
}

TEST(Offsets, CodeWinsWhereTwoSegmentsShareBytes) {
  MadeElf made;
  Elf64_Phdr data = made.segment();
  data.p_flags = PF_R | PF_W;
  data.p_vaddr = 0x100000;
  made.add(data);
  const ElfFile file = must_parse(made.bytes());
  EXPECT_EQ(file.address_of_offset(0x1234), MadeElf::kBase + 0x1234);
  ASSERT_EQ(file.segments().size(), 2U);
  EXPECT_EQ(file.segments()[0].address, 0x100000U);
  EXPECT_TRUE(file.segments()[0].writable);
}

}  // namespace
}  // namespace uprobe::elf
