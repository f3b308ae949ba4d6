// SPDX-License-Identifier: MIT
// Orders that are carried out, that fail, and that do not come back.
#include "engine/proxy/proxy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/mapping_query.h"
#include "engine/proxy/memory.h"

namespace uprobe::proxy {
namespace {

constexpr uid_t kUser = 4001, kOtherUser = 4002;

Fd own_memory() { return Fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)); }
std::uint64_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

// Tells who carries it out.
class Names : public Order {
 public:
  void carry_out(Place&) override { pid_ = ::syscall(SYS_getpid); }
  pid_t pid() const { return static_cast<pid_t>(pid_); }

 private:
  long pid_ = 0;
};

// Waits for a byte that comes when the test wants it.
class Waits : public Order {
 public:
  Waits() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Waits() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void carry_out(Place& place) override {
    const int end = place.descriptor(ends_[0]);
    char byte = 0;
    ::syscall(SYS_read, end, &byte, 1);
    ::syscall(SYS_close, end);
  }
  void finish() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }

 private:
  std::array<int, 2> ends_{};
};

bool allows(uid_t user) { return carry_out(std::make_shared<Names>(), user) == Outcome::done; }

TEST(Proxy, IsAnotherProcessWithThisOnesMemory) {
  const auto order = std::make_shared<Names>();
  ASSERT_EQ(carry_out(order, kUser), Outcome::done);
  EXPECT_NE(order->pid(), ::getpid());
  EXPECT_TRUE(is_own(order->pid()));
  EXPECT_TRUE(is_proxy(order->pid()));
  EXPECT_FALSE(is_own(::getpid()));
}

TEST(Proxy, EndsWithItsThread) {
  pid_t pid = 0;
  std::thread([&pid] {
    const auto order = std::make_shared<Names>();
    EXPECT_EQ(carry_out(order, kUser), Outcome::done);
    pid = order->pid();
  }).join();
  for (int looks = 0; is_own(pid) && looks < 10000; ++looks) ::usleep(1000);
  EXPECT_FALSE(is_own(pid));
}

TEST(Proxy, EndsWithTheTool) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t tool = ::fork();
  if (tool == 0) {
    const auto order = std::make_shared<Names>();
    const bool is_done = carry_out(order, kUser) == Outcome::done;
    const pid_t pid = is_done ? order->pid() : 0;
    (void)!::write(ends[1], &pid, sizeof pid);
    ::raise(SIGKILL);
  }
  ::close(ends[1]);
  pid_t proxy = 0;
  ASSERT_EQ(::read(ends[0], &proxy, sizeof proxy), static_cast<ssize_t>(sizeof proxy));
  ASSERT_NE(proxy, 0);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "the proxy has the tool's descriptors";
  ::close(ends[0]);
  ::waitpid(tool, nullptr, 0);
  const auto has_ended = [proxy] {
    const auto status = procfs::read(proxy, "status");
    return !status || procfs::field(*status, "State").value_or("").starts_with("Z");
  };
  for (int looks = 0; !has_ended() && looks < 10000; ++looks) ::usleep(1000);
  EXPECT_TRUE(has_ended());
}

TEST(Proxy, GoesOnAfterAStop) {
  const auto first = std::make_shared<Names>(), second = std::make_shared<Names>();
  ASSERT_EQ(carry_out(first, kUser), Outcome::done);
  ::kill(first->pid(), SIGSTOP);
  ASSERT_EQ(carry_out(second, kUser), Outcome::done);
  EXPECT_EQ(second->pid(), first->pid());
}

TEST(Proxy, IsReplacedWhenItIsKilled) {
  const auto first = std::make_shared<Names>(), second = std::make_shared<Names>();
  ASSERT_EQ(carry_out(first, kUser), Outcome::done);
  ::kill(first->pid(), SIGKILL);
  for (int looks = 0; is_own(first->pid()) && looks < 10000; ++looks) ::usleep(1000);
  ASSERT_EQ(carry_out(second, kUser), Outcome::done);
  EXPECT_NE(second->pid(), first->pid());
}

TEST(Proxy, IsLeftWhereItDoesNotComeBackAndThatUserWaits) {
  const auto stuck = std::make_shared<Waits>();
  EXPECT_EQ(carry_out(stuck, kUser), Outcome::silent);
  EXPECT_FALSE(allows(kUser));
  EXPECT_TRUE(allows(kOtherUser));
  stuck->finish();
  for (int looks = 0; !allows(kUser) && looks < 10000; ++looks) ::usleep(1000);
  EXPECT_TRUE(allows(kUser));
}

class Opens : public Order {
 public:
  void carry_out(Place&) override {
    made = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDONLY, 0));
  }
};

std::ptrdiff_t descriptors_of(pid_t pid) {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator(procfs::path(pid, "fd")), fs::directory_iterator());
}

TEST(Proxy, HandsADescriptorOverAndKeepsNone) {
  const auto who = std::make_shared<Names>();
  ASSERT_EQ(carry_out(who, kUser), Outcome::done);
  const std::ptrdiff_t before = descriptors_of(who->pid());
  for (int i = 0; i < 3; ++i) {
    const auto order = std::make_shared<Opens>();
    ASSERT_EQ(carry_out(order, kUser), Outcome::done);
    ASSERT_TRUE(order->taken);
    char byte = 1;
    EXPECT_EQ(::read(order->taken.get(), &byte, 1), 1);
    EXPECT_EQ(byte, 0);
  }
  ASSERT_EQ(carry_out(who, kUser), Outcome::done);
  EXPECT_EQ(descriptors_of(who->pid()), before);
}

TEST(ProxyMemory, FilesOfAnotherUsersProcessAreOpened) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's process takes root";
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_other = ::setuid(kUser) == 0;
    ::pause();
    ::_exit(is_other ? 0 : 1);
  }
  for (int looks = 0; !Foreign(child).user() && looks < 10000; ++looks) ::usleep(1000);
  const auto memory = open_of(child, procfs::path(child, "mem"), O_RDWR);
  EXPECT_TRUE(memory) << memory.error().text;
  const auto maps = read_of(child, procfs::path(child, "maps"));
  ASSERT_TRUE(maps) << maps.error().text;
  EXPECT_NE(maps->find("[stack]"), std::string::npos);
  EXPECT_EQ(open_of(child, procfs::path(child, "none"), O_RDONLY).error().err, ENOENT);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_of(child, procfs::path(child, "maps")));
}

TEST(ProxyMemory, IsReadAndWritten) {
  const Fd memory = own_memory();
  std::array<std::uint8_t, 4> from = {1, 2, 3, 4}, to{};
  std::string long_text(300000, 'x'), copy(300000, '\0');
  const std::array<ReadPiece, 2> rooms = {
      ReadPiece{Addr{address(from.data())}, to},
      ReadPiece{Addr{address(long_text.data())}, {reinterpret_cast<std::uint8_t*>(copy.data()), copy.size()}}};
  ASSERT_EQ(read_memory(kUser, memory.get(), rooms), 0);
  EXPECT_EQ(to, from);
  EXPECT_TRUE(copy == long_text);
  const std::array<std::uint8_t, 2> bytes = {9, 8};
  const std::array<MemoryPiece, 2> pieces = {MemoryPiece{Addr{address(&from[0])}, bytes},
                                             MemoryPiece{Addr{address(&from[2])}, bytes}};
  ASSERT_EQ(write_memory(kUser, memory.get(), pieces), 0);
  EXPECT_EQ(from, (std::array<std::uint8_t, 4>{9, 8, 9, 8}));
}

TEST(ProxyMemory, SaysWhatIsWrong) {
  const Fd memory = own_memory();
  std::array<std::uint8_t, 4> to = {7, 7, 7, 7};
  const std::array<ReadPiece, 1> nowhere = {ReadPiece{Addr{8}, to}};
  EXPECT_EQ(read_memory(kUser, memory.get(), nowhere), EIO);
  EXPECT_EQ(to[0], 7);
  EXPECT_EQ(read_memory(kUser, -1, nowhere), ENOTSUP) << "no descriptor to be had";
}

TEST(ProxyFiles, AreReadWholeWithinTheLimit) {
  const auto maps = read_file(kUser, "/proc/self/status", 1 << 20);
  ASSERT_TRUE(maps);
  EXPECT_EQ(procfs::name_in(*maps), kProxyName) << "its own";
  const std::string path = ::testing::TempDir() + "proxy_file_" + std::to_string(::getpid());
  const std::string text(200000, 't');
  std::ofstream(path) << text;
  EXPECT_TRUE(*read_file(kUser, path, 1 << 20) == text);
  EXPECT_EQ(read_file(kUser, path, 100000).error().code, Code::limit);
  ::unlink(path.c_str());
  EXPECT_EQ(read_file(kUser, path, 1 << 20).error().err, ENOENT);
}

TEST(ProxyFiles, HaveTheStatusThatStatTells) {
  struct stat here {};
  ASSERT_EQ(::stat("/proc/self/exe", &here), 0);
  for (const auto user : {std::optional<uid_t>(), std::optional(kUser)}) {
    const auto seen = status_of(user, "/proc/" + std::to_string(::getpid()) + "/exe");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->st_ino, here.st_ino);
    EXPECT_FALSE(status_of(user, "/nowhere"));
  }
}

TEST(ProxyMappings, AreAskedForOneByOneOrTogether) {
  const std::string maps = "/proc/" + std::to_string(::getpid()) + "/maps";
  static const int here = 0;
  const auto own = ask_mappings({}, maps, 0, address(&here), 1);
  if (own.has_failed) GTEST_SKIP() << "this kernel has no PROCMAP_QUERY";
  const auto by_proxy = ask_mappings(kUser, maps, 0, address(&here), 1);
  ASSERT_EQ(by_proxy.found.size(), 1U);
  EXPECT_EQ(by_proxy.found[0].begin, own.found.at(0).begin);
  EXPECT_NE(by_proxy.name.find("proxy_test"), std::string::npos) << by_proxy.name;
  const auto none = ask_mappings(kUser, maps, 0, 4096, 1);
  EXPECT_TRUE(none.is_over && none.found.empty() && !none.has_failed);
  const auto all = ask_mappings(kUser, maps, kMappingOrNext, 0, 10000);
  EXPECT_TRUE(all.is_over);
  EXPECT_GT(all.found.size(), 10U);
  EXPECT_TRUE(ask_mappings(kUser, "/proc/self/status", 0, 0, 1).has_failed);
}

TEST(Foreign, IsAProcessOfAnotherUser) {
  EXPECT_FALSE(Foreign(::getpid()).user());
  EXPECT_FALSE(Foreign(0x3fffffff).user()) << "there is none";
  if (::geteuid() != 0) GTEST_SKIP() << "other users need root";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(kUser) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  const Foreign theirs(child);
  for (int looks = 0; !theirs.user() && looks < 10000; ++looks) ::usleep(1000);
  ASSERT_TRUE(theirs.user());
  EXPECT_EQ(theirs.user()->user, kUser);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace uprobe::proxy
