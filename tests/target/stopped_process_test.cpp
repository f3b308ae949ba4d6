// SPDX-License-Identifier: MIT
#include "engine/target/stopped_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/procfs.h"

namespace uprobe::test {
namespace {

using target::StoppedProcess;

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (;;) ::pause();
}

TEST(StoppedProcessTest, MakesACallAndLetsGo) {
  const pid_t child = start_sleeper();
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  EXPECT_EQ((*held)->threads().size(), 1u);
  const auto seen = (*held)->system_call(SYS_getpid, {});
  ASSERT_TRUE(seen) << seen.error().text;
  EXPECT_EQ(*seen, child);
  held->reset();
  EXPECT_EQ(::kill(child, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

// The part of the program that holds the child must not take the status for which the parent waits.
TEST(StoppedProcessTest, LeavesTheEndOfAnOwnChildToItsParent) {
  const pid_t child = start_sleeper();
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_FALSE((*held)->system_call(SYS_getpid, {}));
  held->reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// A call that waits for ever is interrupted; the program's own wait is not: it gets the byte that comes later.
TEST(StoppedProcessTest, GivesUpACallThatDoesNotReturn) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::_exit(::read(ends[0], &byte, 1) == 1 ? byte : 1);
  }
  const std::string reading = std::to_string(SYS_read) + " ";
  while (procfs::read(child, "syscall").take().rfind(reading, 0) != 0) ::usleep(1000);
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  for (int times = 0; times < 2; ++times) {
    const auto seen = (*held)->system_call(SYS_poll, {0, 0, static_cast<std::uint64_t>(-1)});
    EXPECT_EQ(seen ? Code::usage : seen.error().code, Code::refused);
  }
  const auto seen = (*held)->system_call(SYS_getpid, {});
  EXPECT_EQ(seen ? *seen : 0, child);
  held->reset();
  ASSERT_EQ(::write(ends[1], "\x07", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StoppedProcessTest, WritesAllPieces) {
  static std::array<std::uint8_t, 4> memory{1, 2, 3, 4};
  const pid_t child = start_sleeper();
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  const std::array<std::uint8_t, 2> seven{7, 7};
  const Addr at{reinterpret_cast<std::uint64_t>(memory.data())};
  const target::MemoryPiece pieces[] = {{at, {seven.data(), 1}}, {at + 2, seven}};
  EXPECT_TRUE((*held)->write_all(pieces));
  std::array<std::uint8_t, 4> seen{};
  EXPECT_TRUE((*held)->read(at, seen.data(), seen.size()));
  EXPECT_EQ(seen, (std::array<std::uint8_t, 4>{7, 2, 7, 7}));
  const target::MemoryPiece nowhere[] = {{Addr{16}, seven}};
  EXPECT_FALSE((*held)->write_all(nowhere));
  held->reset();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// The first thread shows its end only when the ends of all others have been taken.
TEST(StoppedProcessTest, AProcessThatIsKilledDuringACall) {
  constexpr std::size_t kThreads = 5;
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<std::thread> threads;
    while (threads.size() < kThreads - 1)
      threads.emplace_back([] {
        for (;;) ::pause();
      });
    for (;;) ::pause();
  }
  while (target::threads_of(child).size() < kThreads) ::usleep(1000);
  auto held = StoppedProcess::hold(child);
  ASSERT_TRUE(held) << held.error().text;
  std::atomic<bool> is_over{false};
  std::thread killer([child, &is_over] {
    const auto is_in_call = [child](pid_t tid) {
      const auto call = procfs::read(child, tid, "syscall");
      return call && call->rfind(std::to_string(SYS_poll) + " ", 0) == 0;
    };
    while (!is_over && std::ranges::none_of(target::threads_of(child), is_in_call)) ::usleep(1000);
    ::kill(child, SIGKILL);
  });
  const auto seen = (*held)->system_call(SYS_poll, {0, 0, static_cast<std::uint64_t>(-1)});
  is_over = true;
  killer.join();
  EXPECT_EQ(seen ? Code::usage : seen.error().code, Code::killed);
  held->reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(StoppedProcessTest, KnowsItsOwnChildren) {
  const pid_t child = start_sleeper();
  EXPECT_TRUE(target::is_own_child(child));
  EXPECT_FALSE(target::is_own_child(::getpid()));
  EXPECT_FALSE(target::is_own_child(1));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace uprobe::test
