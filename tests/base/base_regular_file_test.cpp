// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "engine/base/regular_file.h"

namespace uprobe {
namespace {

class RegularFileTest : public ::testing::Test {
 protected:
  RegularFileTest() {
    char name[] = "/tmp/uprobe-regular.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~RegularFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string file(const std::string& name, const std::string& text) const {
    const Fd fd(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(write_all(fd.get(), text.data(), text.size()), 0);
    return path(name);
  }

  std::string folder_;
};

TEST_F(RegularFileTest, IsReadThroughALink) {
  file("text", "hello");
  ASSERT_EQ(::symlink("text", path("link").c_str()), 0);
  EXPECT_EQ(*read_regular(path("link"), 5), "hello");
  EXPECT_EQ(read_regular(path("link"), 4).error().code, Code::limit);
  EXPECT_EQ(read_regular(path("none"), 4).error().code, Code::not_found);
}

// An open of any of these for reading would wait, or have an effect.
TEST_F(RegularFileTest, NothingElseIsOpened) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_regular(path("fifo")).error().text, "is a fifo");
  EXPECT_EQ(open_regular("/dev/tty").error().text, "is a device");
  EXPECT_EQ(open_regular(folder_).error().text, "is a directory");
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
  path("socket").copy(place.sun_path, sizeof place.sun_path - 1);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  EXPECT_EQ(open_regular(path("socket")).error().text, "is a socket");
}

// The owner of a file may hold it for 45 seconds (fcntl(2), leases).
TEST_F(RegularFileTest, ALeaseDoesNotHoldTheReader) {
  const std::string name = file("leased", "hello");
  const Fd owner(::open(name.c_str(), O_WRONLY | O_CLOEXEC));
  if (::fcntl(owner.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  ::signal(SIGIO, SIG_IGN);
  const auto opened = open_regular(name);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().err, EAGAIN);
}

TEST_F(RegularFileTest, DataIsFoundBetweenHoles) {
  const std::string name = file("sparse", "begin");
  const Fd writer(::open(name.c_str(), O_WRONLY | O_CLOEXEC));
  constexpr std::uint64_t kFar = std::uint64_t{1} << 36;
  ASSERT_EQ(::pwrite(writer.get(), "end", 3, kFar), 3);
  const auto opened = open_regular(name);
  ASSERT_TRUE(opened);
  std::uint64_t data = 0;
  std::string last(3, '\0');
  for (FilePart part = next_data(opened->fd, 0, kFar + 3); !part.empty();
       part = next_data(opened->fd, part.end, kFar + 3))
    data += part.end - part.begin;
  EXPECT_LT(data, std::uint64_t{1} << 20);
  EXPECT_EQ(read_at(opened->fd, last.data(), 3, kFar), 3);
  EXPECT_EQ(last, "end");
  EXPECT_TRUE(next_data(opened->fd, kFar + 3, kFar + 3).empty());
}

TEST_F(RegularFileTest, AFileThatWasCutOffIsRead) {
  const std::string name = file("cut", std::string(10'000, 'x'));
  const auto opened = open_regular(name);
  ASSERT_EQ(::truncate(name.c_str(), 10), 0);
  std::string text(10'000, '\0');
  EXPECT_EQ(read_at(opened->fd, text.data(), text.size(), 0), 10);
}

}  // namespace
}  // namespace uprobe
