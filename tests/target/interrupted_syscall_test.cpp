// SPDX-License-Identifier: MIT
// Calls that a stop cuts: which they are, and that one which was cut in the middle comes back with its whole result.
#include "engine/target/interrupted_syscall.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "engine/target/stopped_process.h"

namespace uprobe::target {
namespace {

TEST(InterruptedSyscall, WhichBeginAgain) {
  for (const long call : {SYS_read, SYS_write, SYS_accept, SYS_recvmsg}) EXPECT_TRUE(may_begin_again(call)) << call;
  for (const long call : {SYS_getpid, SYS_openat, SYS_nanosleep}) EXPECT_FALSE(may_begin_again(call)) << call;
}

TEST(InterruptedSyscall, WhichWouldWaitForTheirWholeTimeAgain) {
  for (const long call : {SYS_epoll_wait, SYS_ppoll, SYS_select, SYS_semtimedop}) EXPECT_TRUE(loses_time(call)) << call;
  for (const long call : {SYS_read, SYS_nanosleep, SYS_futex}) EXPECT_FALSE(loses_time(call)) << call;
}

TEST(InterruptedSyscall, WhichTheKernelGoesOnWith) {
  for (const long call : {SYS_poll, SYS_nanosleep, SYS_clock_nanosleep}) EXPECT_TRUE(is_kept_by_kernel(call)) << call;
  for (const long call : {SYS_read, SYS_epoll_wait, SYS_ppoll}) EXPECT_FALSE(is_kept_by_kernel(call)) << call;
}

TEST(InterruptedSyscall, WhoseTimeTheKernelHasKept) {
  EXPECT_TRUE(has_kept_time(SYS_select, kRestartNoHandler));
  EXPECT_FALSE(has_kept_time(SYS_select, -EINTR));
  EXPECT_FALSE(has_kept_time(SYS_epoll_wait, kRestartNoHandler));
}

// A write of more than the pipe holds; the exit code says whether it was done as one.
constexpr std::size_t kWhole = 1 << 20;
[[noreturn]] void write_whole(int to) {
  const std::vector<char> bytes(kWhole, 'x');
  ::_exit(::write(to, bytes.data(), bytes.size()) == static_cast<ssize_t>(kWhole) ? 0 : 1);
}

std::size_t read_up_to(int from, std::size_t most) {
  std::vector<char> bytes(most);
  const ssize_t got = ::read(from, bytes.data(), bytes.size());
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

TEST(InterruptedSyscall, AWriteIsDoneAsOneHoweverOftenItIsStopped) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) write_whole(ends[1]);
  ::close(ends[1]);
  std::size_t received = 0;
  for (int stops = 0; stops < 8; ++stops) {
    int waiting = 0;
    while (::ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting < 4096) ::usleep(1000);
    auto held = StoppedProcess::hold(child);
    ASSERT_TRUE(held) << held.error().text;
    received += read_up_to(ends[0], 10'000);
    held->reset();
    received += read_up_to(ends[0], 10'000);
  }
  while (const std::size_t got = read_up_to(ends[0], 65536)) received += got;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(received, kWhole);
  ::close(ends[0]);
}

}  // namespace
}  // namespace uprobe::target
