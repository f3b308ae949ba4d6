// SPDX-License-Identifier: MIT
// The loader's cache of libraries as bytes, whole and damaged; and names of libraries.
#include <gtest/gtest.h>

#include <cstring>

#include "arch/abi/elf.h"
#include "engine/base/process_paths.h"
#include "engine/resolve/library_cache.h"
#include "engine/resolve/load_order.h"

namespace uprobe {
namespace {

void put(std::string& to, std::uint32_t value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); }

constexpr std::size_t kHeaderBytes = 48, kEntryBytes = 24;

// One library; the second entry is for some processors alone, the third another machine's.
std::string make_cache(std::uint32_t count = 3) {
  std::string bytes = "glibc-ld.so.cache1.1";
  put(bytes, count);
  bytes.resize(kHeaderBytes);
  const auto names = static_cast<std::uint32_t>(kHeaderBytes + 3 * kEntryBytes);
  for (std::uint32_t i = 0; i < 3; ++i) {
    put(bytes, i == 2 ? 3u : arch::kCachedLibrary);
    put(bytes, names);
    put(bytes, names + 7);
    for (const std::uint32_t word : {0u, i, 0u}) put(bytes, word);
  }
  return bytes + std::string("l.so.1\0/lib/l.so.1\0", 19);
}

TEST(LibraryCache, LibrariesOfThisMachine) {
  const auto found = parse_library_cache(make_cache());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "l.so.1");
  EXPECT_EQ(found[0].path, "/lib/l.so.1");
  EXPECT_TRUE(found[0].is_plain);
  EXPECT_FALSE(found[1].is_plain);
}

TEST(LibraryCache, AfterTheOldFormat) {
  std::string old("ld.so-1.7.0\0", 12);
  put(old, 1);
  old.resize(32);  // one entry of 12 bytes, and padding
  EXPECT_EQ(parse_library_cache(old + make_cache()).size(), 2u);
}

TEST(LibraryCache, DamagedOnesHaveFewerLibraries) {
  const std::string whole = make_cache(0xffffffff);
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes)
    EXPECT_LE(parse_library_cache(whole.substr(0, bytes)).size(), 2u) << bytes;
  std::string far = make_cache();
  std::memset(far.data() + kHeaderBytes + 4, 0xff, 8);
  EXPECT_EQ(parse_library_cache(far).size(), 1u);
  EXPECT_TRUE(parse_library_cache("something else").empty());
}

TEST(LoadOrder, NamesOfObjects) {
  const LoadedObject libc{"/lib/x/libc.so.6", "libc.so.6"}, old{"/lib/libpthread-2.31.so", "libpthread.so.0"};
  for (const char* name : {"libc", "libc.so.6", "c", "libc.so"}) EXPECT_TRUE(is_called(libc, name)) << name;
  for (const char* name : {"lib", "libc.so.7", "", "libcc", ".so"}) EXPECT_FALSE(is_called(libc, name)) << name;
  for (const char* name : {"libpthread", "libpthread-2.31", "libpthread.so.0", "libpthread-2.31.so"})
    EXPECT_TRUE(is_called(old, name)) << name;
}

TEST(LoadOrder, FilesOfProcesses) {
  EXPECT_EQ(process_of("/proc/12/exe"), 12);
  EXPECT_EQ(process_of("/proc/12/root/bin/x"), 12);
  for (const char* path : {"/bin/x", "/proc/self/exe", "/proc/12/maps", "/proc//exe", "/proc/-1/exe", "/proc/12"})
    EXPECT_FALSE(process_of(path)) << path;
}

}  // namespace
}  // namespace uprobe
