// SPDX-License-Identifier: MIT
// Symbols: every kind of file, versions, ambiguity, agreement with readelf, hostile tables.
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <tuple>

#include "engine/elf/relocations.h"
#include "tests/elf/fixture.h"
#include "tests/elf/made_elf.h"
#include "tests/elf/readelf.h"

namespace uprobe::elf {
namespace {

constexpr const char* kLibc = "/lib/x86_64-linux-gnu/libc.so.6";

// (name, version, is the default, address, size) of the functions that .dynsym defines.
using Row = std::tuple<std::string, std::string, bool, std::uint64_t, std::uint64_t>;

bool is_function(const ReadelfSymbol& s) { return s.defined && (s.type == "FUNC" || s.type == "IFUNC"); }

std::set<Row> readelf_rows(const std::string& path) {
  std::set<Row> found;
  for (const ReadelfSymbol& s : readelf_symbols("--dyn-syms", path))
    if (is_function(s)) found.emplace(s.name, s.version, s.default_version, s.address, s.size);
  return found;
}

std::set<Row> our_rows(const ElfFile& file) {
  std::set<Row> found;
  for (const Symbol& s : file.functions())
    if (s.dynamic && !s.is_label) found.emplace(s.name, s.version, s.default_version, s.address, s.size);
  return found;
}

TEST(Functions, AgreeWithReadelf) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  for (const std::string& path :
       {std::string(kLibc), std::string("/lib/x86_64-linux-gnu/libm.so.6"), std::string("/bin/bash"),
        fixture("elf_versions"), fixture("elf_overloads"), fixture("elf_ifunc"), fixture("elf_stripped")}) {
    if (::access(path.c_str(), R_OK) != 0) continue;
    EXPECT_EQ(our_rows(must_open(path)), readelf_rows(path)) << path;
  }
}

TEST(Data, AgreesWithReadelf) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  for (const std::string& path : {std::string(kLibc), fixture("elf_versions"), fixture("elf_overloads")}) {
    std::set<Row> ours, theirs;
    for (const ReadelfSymbol& s : readelf_symbols("--dyn-syms", path))
      if (s.defined && s.type == "OBJECT" && s.size != 0)
        theirs.emplace(s.name, s.version, s.default_version, s.address, s.size);
    const ElfFile file = must_open(path);
    for (const Symbol& s : file.data_symbols())
      if (s.dynamic) ours.emplace(s.name, s.version, s.default_version, s.address, s.size);
    EXPECT_EQ(ours, theirs) << path;
    EXPECT_TRUE(std::ranges::is_sorted(file.data_symbols(), {}, &Symbol::address));
  }
}

TEST(Functions, DynamicOnesNeedNoSectionHeaders) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  for (const std::string& path : {std::string(kLibc), fixture("elf_versions"), fixture("elf_ifunc")}) {
    const ElfFile bare = must_parse(without_sections(bytes_of(path)));
    EXPECT_FALSE(bare.has_names());
    EXPECT_EQ(our_rows(bare), readelf_rows(path)) << path;
  }
}

// Programs without .dynsym, so that all come from .symtab.
TEST(Functions, OfSymtabAgreeWithReadelf) {
  if (!has_readelf()) GTEST_SKIP() << "no readelf";
  for (const std::string& path : {fixture("elf_static"), fixture("elf_tiny")}) {
    std::set<std::tuple<std::string, std::uint64_t, std::uint64_t, bool>> ours, theirs;
    for (const ReadelfSymbol& s : readelf_symbols("-s", path))
      if (is_function(s)) theirs.emplace(s.name, s.address, s.size, s.type == "IFUNC");
    const ElfFile file = must_open(path);
    for (const Symbol& s : file.functions())
      if (!s.is_label) ours.emplace(s.name, s.address, s.size, s.is_ifunc);
    EXPECT_FALSE(theirs.empty()) << path;
    EXPECT_EQ(ours, theirs) << path;
  }
}

// The first query differs from thread to thread; the answers do not.
TEST(Functions, FromSeveralThreads) {
  const ElfFile file = must_open(kLibc);
  const ElfFile other = must_open(kLibc);
  const std::size_t functions = other.functions().size(), relocations = relocations_of(other).size();
  const std::uint64_t address = other.find_any("malloc")->address;
  std::vector<int> good(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto by_symbol = i % 2 == 0 ? file.find_any("malloc") : std::nullopt;
      const auto found = file.find_functions("malloc");
      const auto any = by_symbol ? by_symbol : file.find_any("malloc");
      good[i] = any && any->address == address && found.size() == 1 && file.functions().size() == functions &&
                relocations_of(file).size() == relocations;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 1));
}

TEST(Functions, AreSortedAndEachOnce) {
  for (const std::string& path : {std::string(kLibc), fixture("elf_static"), fixture("elf_versions")}) {
    const ElfFile file = must_open(path);
    const auto functions = file.functions();
    ASSERT_GT(functions.size(), 3U);
    std::set<std::tuple<std::uint64_t, std::string, std::string>> seen;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const Symbol& s = functions[i];
      EXPECT_TRUE(s.is_function);
      EXPECT_TRUE(seen.emplace(s.address, s.name, s.version).second) << s.name;
      if (i != 0) {
        EXPECT_LE(functions[i - 1].address, s.address);
      }
    }
  }
}

TEST(Find, EveryKindOfProgram) {
  std::vector<const char*> names{"elf_pie", "elf_no_pie", "elf_static", "elf_static_pie"};
  for (const char* name : names) {
    const ElfFile file = must_open(fixture(name));
    EXPECT_TRUE(file.has_names()) << name;
    const Symbol alpha = only_function(file, "alpha");
    EXPECT_GT(alpha.size, 0U);
    EXPECT_EQ(alpha.binding, Binding::global);
    EXPECT_FALSE(alpha.is_ifunc);
    EXPECT_TRUE(file.find_functions("counter").empty()) << "data";
    EXPECT_TRUE(file.find_functions("").empty());
    EXPECT_TRUE(file.find_functions("alph").empty());
  }
}

TEST(Find, MuslProgram) {
  if (::access(fixture("elf_musl").c_str(), R_OK) != 0) GTEST_SKIP() << "musl-gcc was not found";
  const ElfFile file = must_open(fixture("elf_musl"));
  EXPECT_EQ(only_function(file, "alpha").name, "alpha");
  EXPECT_EQ(file.find_functions("helper").size(), 2U);
  EXPECT_EQ(file.interpreter(), "");
}

TEST(Find, LocalFunctionsOfOneNameAreAllReturned) {
  const std::vector<Symbol> found = must_open(fixture("elf_pie")).find_functions("helper");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_LT(found[0].address, found[1].address);
  for (const Symbol& symbol : found) EXPECT_EQ(symbol.binding, Binding::local);
}

TEST(Find, StrippedProgramHasOnlyDynamicNames) {
  const ElfFile file = must_open(fixture("elf_stripped"));
  EXPECT_FALSE(file.has_names());
  EXPECT_TRUE(file.find_functions("alpha").empty());
}

TEST(Find, Ifunc) {
  const Symbol pick = only_function(must_open(fixture("elf_ifunc")), "pick");
  EXPECT_TRUE(pick.is_ifunc);
  EXPECT_TRUE(pick.dynamic);
  EXPECT_FALSE(only_function(must_open(fixture("elf_ifunc")), "pick_one").is_ifunc);
}

TEST(Find, Versions) {
  const ElfFile file = must_open(fixture("elf_versions"));
  const Symbol by_default = only_function(file, "swap");
  EXPECT_EQ(by_default.version, "V2");
  EXPECT_TRUE(by_default.default_version);
  EXPECT_EQ(only_function(file, "swap@V2").address, by_default.address);
  EXPECT_EQ(only_function(file, "swap@@V2").address, by_default.address);
  const Symbol old = only_function(file, "swap@V1");
  EXPECT_FALSE(old.default_version);
  EXPECT_NE(old.address, by_default.address);
  EXPECT_TRUE(file.find_functions("swap@@V1").empty()) << "V1 is not the default";
  EXPECT_TRUE(file.find_functions("swap@V3").empty());
  EXPECT_EQ(only_function(file, "gone").version, "V1") << "the only one there is";
  EXPECT_EQ(only_function(file, "only").version, "V2") << ".symtab has it without version";
}

TEST(Find, VersionsOfLibc) {
  const ElfFile libc = must_open(kLibc);
  const Symbol malloc_symbol = only_function(libc, "malloc");
  EXPECT_TRUE(malloc_symbol.dynamic);
  EXPECT_GT(malloc_symbol.size, 0U);
  const Symbol new_memcpy = only_function(libc, "memcpy");
  EXPECT_EQ(new_memcpy.version, "GLIBC_2.14");
  EXPECT_TRUE(new_memcpy.is_ifunc);
  const Symbol old_memcpy = only_function(libc, "memcpy@GLIBC_2.2.5");
  EXPECT_FALSE(old_memcpy.default_version);
  EXPECT_NE(old_memcpy.address, new_memcpy.address);
  EXPECT_TRUE(libc.find_functions("memcpy@@GLIBC_2.2.5").empty());
}

TEST(Find, SeveralNamesOfOneAddressCountOnce) {
  const ElfFile libc = must_open(kLibc);
  const Symbol write_symbol = only_function(libc, "write");
  const Symbol other_name = only_function(libc, "__write");
  EXPECT_EQ(write_symbol.address, other_name.address);
  EXPECT_EQ(write_symbol.name, "write");
  EXPECT_EQ(other_name.name, "__write");
}

TEST(Find, ShellKeepsDynamicNames) {
  if (::access("/bin/zsh", R_OK) != 0) GTEST_SKIP() << "zsh is not installed";
  const ElfFile zsh = must_open("/bin/zsh");
  const Symbol zfree = only_function(zsh, "zfree");
  EXPECT_TRUE(zfree.dynamic);
  EXPECT_EQ(zsh.range_at(zfree.address), (Range{zfree.address, zfree.address + zfree.size}));
}

TEST(FindAny, DataAndFunctions) {
  const ElfFile file = must_open(fixture("elf_pie"));
  const auto counter = file.find_any("counter");
  ASSERT_TRUE(counter);
  EXPECT_FALSE(counter->is_function);
  EXPECT_EQ(counter->size, 4U);
  ASSERT_TRUE(file.offset_of_address(counter->address));
  EXPECT_EQ(get<int>(bytes_of(fixture("elf_pie")), *file.offset_of_address(counter->address)), 7);
  EXPECT_EQ(file.find_any("alpha")->address, only_function(file, "alpha").address);
  EXPECT_FALSE(file.find_any("no_such_name"));
  EXPECT_EQ(must_open(fixture("elf_versions")).find_any("swap")->version, "V2");
  EXPECT_EQ(must_open(fixture("elf_versions")).find_any("swap@V1")->version, "V1");
  EXPECT_TRUE(must_open(kLibc).find_any("stdout@@GLIBC_2.2.5"));
}

TEST(FindAny, EveryAddressOfAName) {
  const ElfFile file = must_open(fixture("elf_pie"));
  EXPECT_EQ(file.addresses_of("counter"), std::vector{file.find_any("counter")->address});
  const auto helpers = file.addresses_of("helper");
  EXPECT_EQ(helpers.size(), 2U) << "local functions of one name";
  EXPECT_TRUE(std::is_sorted(helpers.begin(), helpers.end()));
  EXPECT_TRUE(file.addresses_of("no_such_name").empty());
  const ElfFile versions = must_open(fixture("elf_versions"));
  EXPECT_EQ(versions.addresses_of("swap"), std::vector{versions.find_any("swap@V2")->address}) << "the default alone";
  EXPECT_EQ(versions.addresses_of("swap@V1"), std::vector{versions.find_any("swap@V1")->address});
  EXPECT_EQ(versions.addresses_of("gone").size(), 1U) << "there is no default";
}

TEST(Kind, ProgramsAndLibraries) {
  for (const char* program : {"elf_pie", "elf_no_pie", "elf_static", "elf_static_pie", "elf_stripped", "elf_tiny"})
    EXPECT_TRUE(must_open(fixture(program)).is_program()) << program;
  EXPECT_FALSE(must_open(fixture("elf_versions")).is_program());
  EXPECT_FALSE(must_open(kLibc).is_program()) << "it can be run, but other programs have copies of its data";
}

TEST(Tiny, LabelsAreFunctionsThatMayBeData) {
  const ElfFile file = must_open(fixture("elf_tiny"));
  const Symbol worker = only_function(file, "worker");
  const Symbol label = only_function(file, "plain_label");
  EXPECT_FALSE(worker.is_label);
  EXPECT_TRUE(label.is_label);
  EXPECT_EQ(label.address, worker.address + 1);
  const std::vector<std::uint64_t> starts = file.known_starts();
  EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), worker.address));
  EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), file.entry()));
  EXPECT_FALSE(std::binary_search(starts.begin(), starts.end(), label.address));
}

// A dynamic symbol table at 0x800 whose entries come from the test.
Bytes with_dynamic(const std::vector<Elf64_Dyn>& entries) {
  MadeElf made;
  made.add_part(PT_DYNAMIC, 0x800, entries.size() * sizeof(Elf64_Dyn));
  for (std::size_t i = 0; i < entries.size(); ++i) made.put(0x800 + i * sizeof(Elf64_Dyn), entries[i]);
  made.put(0x980, Elf64_Sym{.st_name = 1,
                            .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                            .st_other = 0,
                            .st_shndx = 1,
                            .st_value = MadeElf::kBase + MadeElf::kCode,
                            .st_size = UINT64_MAX});
  made.put_bytes(0xa00, {0, 'f', 'u', 'n', 0});
  made.put_bytes(0xb00, {1, 0, 0, 0, 1, 0, 0, 0});  // hash table: one chain entry
  return made.bytes();
}

Elf64_Dyn entry(std::int64_t tag, std::uint64_t value) { return Elf64_Dyn{.d_tag = tag, .d_un = {.d_val = value}}; }

TEST(Hostile, DynamicTables) {
  const std::uint64_t base = MadeElf::kBase;
  const std::vector<Elf64_Dyn> good{entry(DT_SYMTAB, base + 0x980), entry(DT_STRTAB, base + 0xa00), entry(DT_STRSZ, 5),
                                    entry(DT_HASH, base + 0xb00), entry(DT_NULL, 0)};
  const ElfFile file = must_parse(with_dynamic(good));
  ASSERT_EQ(file.functions().size(), 1U);
  EXPECT_EQ(file.range_at(base + MadeElf::kCode)->end, base + MadeElf::kSize) << "a size is clipped to the segment";
  for (std::size_t i = 0; i + 1 < good.size(); ++i) {
    for (const std::uint64_t value : {std::uint64_t{0}, UINT64_MAX, base + MadeElf::kSize - 1, base - 1}) {
      std::vector<Elf64_Dyn> bad = good;
      bad[i].d_un.d_val = value;
      EXPECT_TRUE(must_parse(with_dynamic(bad)).functions().empty()) << i << " " << value;
    }
  }
}

TEST(Hostile, HashTablesWithHugeCounts) {
  const std::uint64_t base = MadeElf::kBase;
  for (const std::int64_t tag : {std::int64_t{DT_HASH}, std::int64_t{DT_GNU_HASH}}) {
    Bytes bytes = with_dynamic({entry(DT_SYMTAB, base + 0x980), entry(DT_STRTAB, base + 0xa00), entry(DT_STRSZ, 5),
                                entry(tag, base + 0xb00), entry(DT_NULL, 0)});
    for (std::size_t at = 0xb00; at < 0xb40; ++at) bytes[at] = 0xff;
    // For any count, no symbol lies outside of the file and no name outside of the names.
    EXPECT_LE(must_parse(bytes).functions().size(), MadeElf::kSize / sizeof(Elf64_Sym));
  }
}

TEST(Hostile, VersionsInACircleEnd) {
  const std::uint64_t base = MadeElf::kBase;
  Bytes bytes = with_dynamic({entry(DT_SYMTAB, base + 0x980), entry(DT_STRTAB, base + 0xa00), entry(DT_STRSZ, 5),
                              entry(DT_HASH, base + 0xb00), entry(DT_VERSYM, base + 0xc00),
                              entry(DT_VERDEF, base + 0xd00), entry(DT_VERDEFNUM, UINT64_MAX), entry(DT_NULL, 0)});
  put(bytes, 0xc00, std::uint16_t{0x7fff});
  put(bytes, 0xd00,
      Elf64_Verdef{.vd_version = 1,
                   .vd_flags = 0,
                   .vd_ndx = 0xffff,
                   .vd_cnt = 1,
                   .vd_hash = 0,
                   .vd_aux = UINT32_MAX,
                   .vd_next = 1});
  const ElfFile file = must_parse(bytes);
  ASSERT_EQ(file.functions().size(), 1U);
  EXPECT_EQ(file.functions()[0].version, "");
}

// Many symbols that share one long name would be gigabytes of names: the total is bounded.
TEST(Hostile, SharedLongNamesAreBounded) {
  constexpr std::size_t kSymbols = 40000, kName = 60000;
  MadeElf made;
  Bytes bytes = made.bytes();
  auto header = get<Elf64_Ehdr>(bytes, 0);
  header.e_shoff = MadeElf::kSize;
  header.e_shnum = 3;
  header.e_shentsize = sizeof(Elf64_Shdr);
  put(bytes, 0, header);
  const std::size_t names = MadeElf::kSize + 3 * sizeof(Elf64_Shdr), symbols = names + kName + 1;
  const auto section = [](std::uint32_t type, std::uint64_t offset, std::uint64_t size) {
    return Elf64_Shdr{.sh_name = 0,
                      .sh_type = type,
                      .sh_flags = 0,
                      .sh_addr = 0,
                      .sh_offset = offset,
                      .sh_size = size,
                      .sh_link = 1,
                      .sh_info = 0,
                      .sh_addralign = 0,
                      .sh_entsize = 0};
  };
  put(bytes, MadeElf::kSize, section(SHT_NULL, 0, 0));
  put(bytes, MadeElf::kSize + sizeof(Elf64_Shdr), section(SHT_STRTAB, names, kName + 1));
  put(bytes, MadeElf::kSize + 2 * sizeof(Elf64_Shdr), section(SHT_SYMTAB, symbols, kSymbols * sizeof(Elf64_Sym)));
  bytes.resize(names, 0);
  bytes.resize(names + kName, 'a');
  bytes.resize(symbols + kSymbols * sizeof(Elf64_Sym), 0);
  for (std::size_t i = 0; i < kSymbols; ++i)
    put(bytes, symbols + i * sizeof(Elf64_Sym),
        Elf64_Sym{.st_name = 0,
                  .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
                  .st_other = 0,
                  .st_shndx = 1,
                  .st_value = MadeElf::kBase + i % MadeElf::kSize,
                  .st_size = 1});
  const ElfFile file = must_parse(std::move(bytes));
  EXPECT_TRUE(file.has_names());
  std::size_t total = 0;
  for (const Symbol& symbol : file.functions()) total += symbol.name.size();
  EXPECT_GT(total, 0U);
  EXPECT_LT(total, std::size_t{64} << 20);
}

}  // namespace
}  // namespace uprobe::elf
