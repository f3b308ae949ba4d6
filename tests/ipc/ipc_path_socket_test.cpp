// SPDX-License-Identifier: MIT
// Where a socket at a path of the user's may be, and that nothing of others is taken or removed.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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
