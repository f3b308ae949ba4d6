// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/base/confined.h"

namespace uprobe {
namespace {

using namespace std::chrono_literals;

constexpr Confinement kUsual{.user = 0, .memory_bytes = 64 << 20, .patience = 60s};

Confined begin(const Confined::Answer& answer, const Confinement& how = kUsual) {
  auto child = Confined::start(how, answer);
  EXPECT_TRUE(child);
  return child.take();
}

std::string errno_text(bool failed) { return failed ? std::strerror(errno) : "done"; }

TEST(ConfinedTest, AnswersOneRequestAfterTheOther) {
  int count = 0;
  Confined child = begin([&](std::string_view text) { return std::string(text) + std::to_string(++count); });
  EXPECT_EQ(*child.ask("a"), "a1");
  EXPECT_EQ(*child.ask(std::string(1 << 20, 'b')), std::string(1 << 20, 'b') + "2");
  EXPECT_EQ(count, 0);
}

TEST(ConfinedTest, WhoseEndIsNoticed) {
  Confined child = begin([](std::string_view) -> std::string { std::abort(); });
  EXPECT_EQ(child.ask("a").error().code, Code::damaged);
  EXPECT_EQ(child.ask("a").error().code, Code::damaged);
}

TEST(ConfinedTest, WhoTakesTooLongIsEnded) {
  Confined child = begin(
      [](std::string_view) -> std::string {
        for (;;) ::getpid();
      },
      {.user = 0, .memory_bytes = 64 << 20, .patience = 1s});
  EXPECT_EQ(child.ask("a").error().code, Code::limit);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

// The tool never waits at the other side's file: the reader waits in its place.
TEST(ConfinedTest, WhoWaitsAtAFifoIsEnded) {
  char folder[] = "/tmp/uprobe-confined.XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string fifo = std::string(folder) + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0644), 0);
  Confined child = begin([&](std::string_view) { return errno_text(::open(fifo.c_str(), O_RDONLY) < 0); },
                         {.user = 0, .memory_bytes = 64 << 20, .patience = 1s});
  EXPECT_EQ(child.ask("a").error().code, Code::limit);
  ::unlink(fifo.c_str());
  ::rmdir(folder);
}

TEST(ConfinedTest, HasLittleMemory) {
  Confined child = begin([](std::string_view) {
    const std::vector<char> much(std::size_t{1} << 30);
    return std::to_string(much.size());
  });
  EXPECT_EQ(child.ask("a").error().code, Code::damaged);
}

TEST(ConfinedTest, WhoseAnswerIsTooLarge) {
  Confined child = begin([](std::string_view) { return std::string(17 << 20, 'x'); });
  EXPECT_EQ(child.ask("a").error().code, Code::limit);
}

TEST(ConfinedTest, MayReadAndNothingElse) {
  Confined child = begin([](std::string_view what) {
    if (what == "read") return errno_text(::open("/etc/passwd", O_RDONLY) < 0);
    if (what == "write") return errno_text(::open("/tmp/uprobe-confined", O_WRONLY | O_CREAT, 0600) < 0);
    if (what == "signal") return errno_text(::kill(::getppid(), 0) != 0);
    if (what == "socket") return errno_text(::socket(AF_UNIX, SOCK_STREAM, 0) < 0);
    if (what == "process") return errno_text(::fork() < 0);
    if (what == "program") return errno_text(::execl("/bin/true", "true", nullptr) != 0);
    return std::to_string(::fcntl(4, F_GETFD));
  });
  EXPECT_EQ(*child.ask("descriptor"), "-1");
  EXPECT_EQ(*child.ask("read"), "done");
  for (const char* what : {"write", "signal", "socket", "process", "program"})
    EXPECT_EQ(*child.ask(what), "Operation not permitted") << what;
}

// As much as it may have of memory, in all descriptors together.
TEST(ConfinedTest, FilesInMemoryAreSmall) {
  const auto write_to_memory = [](std::string_view size) {
    const int file = ::memfd_create("confined", 0);
    const std::vector<char> bytes(std::stoul(std::string(size)));
    return file < 0 ? "none" : std::to_string(::write(file, bytes.data(), bytes.size()));
  };
  Confined child = begin(write_to_memory);  // 64 MiB, and 64 descriptors
  EXPECT_EQ(*child.ask("1000000"), "1000000");
  EXPECT_EQ(*child.ask("3000000"), std::to_string(1 << 20));
  for (int i = 0; i < 80; ++i) (void)child.ask("1000000");
  const auto last = child.ask("1000000");
  EXPECT_TRUE(!last || *last == "none");
}

TEST(ConfinedTest, ReadsWithTheRightsOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  char name[] = "/tmp/uprobe-confined.XXXXXX";
  const Fd secret(::mkstemp(name));
  Confined child = begin([&](std::string_view) { return errno_text(::open(name, O_RDONLY) < 0); },
                         {.user = 65534, .memory_bytes = 64 << 20, .patience = 60s});
  EXPECT_EQ(*child.ask("a"), "Permission denied");
  ::unlink(name);
}

}  // namespace
}  // namespace uprobe
