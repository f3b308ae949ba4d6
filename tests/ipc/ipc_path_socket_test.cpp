// SPDX-License-Identifier: MIT
// Where a socket at a path of the user's may be, and that nothing of others is taken or removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/ipc/path_socket.h"

namespace uprobe::test {
namespace {

namespace fs = std::filesystem;

class PathSocketTest : public ::testing::Test {
 protected:
  PathSocketTest() {
    char name[] = "/tmp/uprobe-socket.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~PathSocketTest() override { fs::remove_all(folder_); }

  std::string error_of(const std::string& path) {
    const auto made = make_path_socket(path, SOCK_SEQPACKET);
    return made ? std::string() : made.error().where + " " + made.error().text;
  }

  std::string folder_;
};

TEST_F(PathSocketTest, IsTheUsersAloneAndGoesWithItsOwner) {
  const std::string path = folder_ + "/socket";
  {
    const auto made = make_path_socket(path, SOCK_SEQPACKET);
    ASSERT_TRUE(made) << made.error().text;
    struct stat status {};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 07777, 0600u);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PathSocketTest, LeavesWhatExists) {
  const std::string path = folder_ + "/file";
  std::ofstream(path) << "mine";
  EXPECT_EQ(error_of(path), path + " exists already");
  EXPECT_EQ(fs::file_size(path), 4u);
  const std::string link = folder_ + "/link";
  fs::create_symlink(folder_ + "/nowhere", link);
  EXPECT_EQ(error_of(link), link + " exists already");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_FALSE(fs::exists(folder_ + "/nowhere"));
}

// A socket as a killed tool leaves it.
void leave_socket(const std::string& path, int type, bool listens, Fd& kept) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  kept = Fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(kept.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_TRUE(!listens || ::listen(kept.get(), 1) == 0);
}

TEST_F(PathSocketTest, TakesOverWhatAKilledToolHasLeft) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const std::string path = folder_ + "/socket";
    Fd killed;
    leave_socket(path, type, true, killed);
    killed = Fd();
    const auto made = make_path_socket(path, type);
    EXPECT_TRUE(made) << made.error().text;
  }
}

TEST_F(PathSocketTest, LeavesSocketsThatAreInUse) {
  int number = 0;
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM}) {
    const std::string path = folder_ + "/socket" + std::to_string(number++);
    Fd in_use;
    leave_socket(path, type, type != SOCK_DGRAM, in_use);
    EXPECT_EQ(error_of(path), path + " exists already");
    EXPECT_TRUE(fs::is_socket(path));
  }
}

TEST_F(PathSocketTest, LeavesAnAbandonedSocketOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string path = folder_ + "/socket";
  Fd killed;
  leave_socket(path, SOCK_SEQPACKET, true, killed);
  killed = Fd();
  ASSERT_EQ(::lchown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(error_of(path), path + " exists already");
}

TEST_F(PathSocketTest, TakesNothingOverWhileAnotherToolMayDoIt) {
  const std::string path = folder_ + "/socket";
  Fd killed;
  leave_socket(path, SOCK_SEQPACKET, true, killed);
  killed = Fd();
  const Fd other(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_EQ(error_of(path), path + " exists already");
}

TEST_F(PathSocketTest, LeavesWhatAnotherHasPutInItsPlace) {
  const std::string path = folder_ + "/socket";
  {
    const auto made = make_path_socket(path, SOCK_SEQPACKET);
    ASSERT_TRUE(made);
    fs::rename(path, folder_ + "/moved");
    std::ofstream(path) << "mine";
  }
  EXPECT_EQ(fs::file_size(path), 4u);
}

TEST_F(PathSocketTest, NeedsAFolderThatOthersCannotChange) {
  fs::create_directory(folder_ + "/open");
  fs::permissions(folder_ + "/open", fs::perms(0777));
  EXPECT_EQ(error_of(folder_ + "/open/socket"), folder_ + "/open is a folder that others can write to");
  fs::permissions(folder_ + "/open", fs::perms(0770));
  EXPECT_EQ(error_of(folder_ + "/open/socket"), folder_ + "/open is a folder that others can write to");
  EXPECT_EQ(error_of("/tmp/uprobe-socket-socket"), "/tmp is a folder that others can write to");
  if (::geteuid() != 0) return;
  fs::permissions(folder_ + "/open", fs::perms(0700));
  ASSERT_EQ(::chown((folder_ + "/open").c_str(), 65534, 65534), 0);
  EXPECT_EQ(error_of(folder_ + "/open/socket"), folder_ + "/open belongs to another user");
}

TEST_F(PathSocketTest, FollowsNoLink) {
  fs::create_directory(folder_ + "/real");
  fs::create_symlink("real", folder_ + "/link");
  EXPECT_EQ(error_of(folder_ + "/link/socket"), folder_ + "/link is a link or no folder");
  std::ofstream(folder_ + "/file") << "mine";
  EXPECT_EQ(error_of(folder_ + "/file/socket"), folder_ + "/file is a link or no folder");
  EXPECT_TRUE(fs::is_empty(folder_ + "/real"));
}

TEST_F(PathSocketTest, SaysWhatIsNoPath) {
  EXPECT_EQ(error_of(folder_ + "/"), folder_ + "/ is not the path of a socket");
  EXPECT_EQ(error_of(folder_ + "/.."), folder_ + "/.. is not the path of a socket");
  EXPECT_NE(error_of(folder_ + "/missing/socket").find("No such file or directory"), std::string::npos);
  EXPECT_NE(error_of(folder_ + "/" + std::string(120, 'n')).find("too long"), std::string::npos);
}

}  // namespace
}  // namespace uprobe::test
