// SPDX-License-Identifier: MIT
// Bounds on the memory for a file that others have made.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/base/fd.h"
#include "engine/elf/elf_file.h"
#include "tests/elf/made_elf.h"

namespace uprobe::elf {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class BoundsTest : public ::testing::Test {
 protected:
  BoundsTest() {
    char name[] = "/tmp/uprobe-bounds.XXXXXX";
    file_ = Fd(::mkstemp(name));
    path_ = name;
    const auto bytes = MadeElf().bytes();
    EXPECT_EQ(write_all(file_.get(), bytes.data(), bytes.size()), 0);
  }
  ~BoundsTest() override { ::unlink(path_.c_str()); }

  void add_data(std::uint64_t bytes) const {
    const std::string part(kMiB, 'x');
    for (std::uint64_t done = 0; done < bytes; done += kMiB)
      ASSERT_EQ(::pwrite(file_.get(), part.data(), part.size(), static_cast<off_t>(kMiB + done)),
                static_cast<ssize_t>(kMiB));
  }
  static std::uint64_t resident() {
    unsigned long long all = 0, present = 0;
    std::sscanf(read_file("/proc/self/statm")->c_str(), "%llu %llu", &all, &present);
    return present * static_cast<std::uint64_t>(::getpagesize());
  }

  Fd file_;
  std::string path_;
};

TEST_F(BoundsTest, HolesTakeNoMemory) {
  ASSERT_EQ(::ftruncate(file_.get(), static_cast<off_t>(2000 * kMiB)), 0);
  const std::uint64_t before = resident();
  const auto file = ElfFile::open(path_, NamedBy::target);
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_EQ(file->bytes().size(), 2000 * kMiB);
  EXPECT_EQ(file->bytes().back(), 0);
  EXPECT_LT(resident() - before, 32 * kMiB);
}

TEST_F(BoundsTest, OfAFileThatOthersCanWriteATargetMayNameLess) {
  ASSERT_EQ(::fchmod(file_.get(), 0666), 0);
  add_data(49 * kMiB);
  const auto file = ElfFile::open(path_, NamedBy::target);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::limit);
  EXPECT_EQ(file.error().text, "has more than 48 MiB of data");
  EXPECT_TRUE(ElfFile::open(path_));
  ASSERT_EQ(::fchmod(file_.get(), 0644), 0);
  EXPECT_TRUE(ElfFile::open(path_, NamedBy::target));
}

TEST_F(BoundsTest, OpeningDoesNotWait) {
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ElfFile::open(path_).error().text, "is a fifo");
}

}  // namespace
}  // namespace uprobe::elf
