// SPDX-License-Identifier: MIT
// The trace's output: files, pipes, full disks, closed pipes, terminals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>

#include "cli/output.h"

namespace uprobe::cli {
namespace {

class CliOutput : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    char pattern[] = "/tmp/cli_output_XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string contents(const std::string& name) const {
    const auto text = read_file(path(name));
    return text ? *text : "(" + text.error().text + ")";
  }
  std::size_t file_count() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

  std::string folder_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  // Reads its current contents, without waiting.
  std::string take() {
    ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    char buffer[65536];
    const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : "";
  }
  Fd read_end, write_end;
};

TEST_F(CliOutput, AFileIsTruncatedAndWritten) {
  ASSERT_EQ(::close(::open(path("t").c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  std::filesystem::resize_file(path("t"), 1000);
  auto sink = TraceSink::open(path("t"), Streams{});
  ASSERT_TRUE(sink);
  EXPECT_EQ(sink->write("one\ntwo\n"), 0);
  EXPECT_EQ(contents("t"), "") << "collected until flush";
  EXPECT_EQ(sink->flush(), 0);
  EXPECT_EQ(contents("t"), "one\ntwo\n");
  EXPECT_EQ(sink->write("three\n"), 0);
  sink->finish();
  EXPECT_EQ(contents("t"), "one\ntwo\nthree\n");
  EXPECT_FALSE(sink->take_failure());
}

TEST_F(CliOutput, AFileThatIsCreatedIsTheUsersAlone) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(TraceSink::open(path("t"), Streams{}));
  ::umask(before);
  struct stat facts;
  ASSERT_EQ(::stat(path("t").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
}

TEST_F(CliOutput, WhereOthersCanChangeTheFolderLinksAndPipesAreRefused) {
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  ASSERT_EQ(::symlink("/dev/null", path("link").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::close(::open(path("file").c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  ASSERT_EQ(::link(path("file").c_str(), path("hard").c_str()), 0);
  for (const char* name : {"link", "pipe", "hard"}) {
    const auto sink = TraceSink::open(path(name), Streams{});
    ASSERT_FALSE(sink) << name;
    EXPECT_EQ(sink.error().code, Code::refused) << name;
  }
  ASSERT_EQ(::unlink(path("hard").c_str()), 0);
  EXPECT_TRUE(TraceSink::open(path("file"), Streams{}));
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  EXPECT_TRUE(TraceSink::open(path("link"), Streams{})) << "the user's own";
}

TEST_F(CliOutput, LargeBatchesDoNotWaitForFlush) {
  auto sink = TraceSink::open(path("t"), Streams{});
  ASSERT_TRUE(sink);
  const std::string line(1000, 'x');
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sink->write(line), 0);
  EXPECT_GT(contents("t").size(), 50000u);
}

TEST_F(CliOutput, WhatWasCollectedComesBeforeALargeBatch) {
  auto sink = TraceSink::open(path("t"), Streams{});
  ASSERT_TRUE(sink);
  const std::string large(100'000, 'x');
  EXPECT_EQ(sink->write("first\n"), 0);
  EXPECT_EQ(sink->write(large), 0);
  EXPECT_EQ(contents("t"), "first\n" + large);
  EXPECT_EQ(sink->write("last\n"), 0);
  sink->finish();
  EXPECT_EQ(contents("t"), "first\n" + large + "last\n");
}

TEST_F(CliOutput, StandardStreams) {
  Pipe out, err;
  const Streams streams{.in = -1, .out = out.write_end.get(), .err = err.write_end.get()};
  for (const char* path : {"", "-"}) {
    auto sink = TraceSink::open(path, streams);
    ASSERT_TRUE(sink);
    sink->write(path[0] == '-' ? "to out\n" : "to err\n");
    sink->finish();
  }
  EXPECT_EQ(out.take(), "to out\n");
  EXPECT_EQ(err.take(), "to err\n");
  EXPECT_GE(::fcntl(out.write_end.get(), F_GETFD), 0) << "standard streams stay open";
}

TEST_F(CliOutput, ATerminalGetsLinesAtOnce) {
  int master = -1, slave = -1;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const Fd master_fd(master), slave_fd(slave);
  auto sink = TraceSink::open("", Streams{.in = -1, .out = -1, .err = slave});
  ASSERT_TRUE(sink);
  EXPECT_TRUE(sink->is_terminal());
  sink->write("line\n");
  char buffer[64];
  const ssize_t n = ::read(master, buffer, sizeof buffer);
  EXPECT_EQ(std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0), "line\r\n");
}

TEST_F(CliOutput, ThePidGetsIntoTheName) {
  auto sink = TraceSink::open(path("trace-%p.%%p.txt"), Streams{});
  ASSERT_TRUE(sink);
  ASSERT_TRUE(sink->child_started(4711));
  sink->write("x\n");
  sink->finish();
  EXPECT_EQ(contents("trace-4711.%p.txt"), "x\n");
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(CliOutput, NothingIsLeftWhenNothingStarted) {
  { ASSERT_TRUE(TraceSink::open(path("trace-%p"), Streams{})); }
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(CliOutput, APlainNameWithPercentIsDoubled) {
  ASSERT_TRUE(TraceSink::open(path("100%%"), Streams{}));
  EXPECT_TRUE(std::filesystem::exists(path("100%")));
}

TEST_F(CliOutput, WhatCannotBeCreatedIsSaidClearly) {
  const auto directory = TraceSink::open(folder_, Streams{});
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().text, "cannot write to it: it is a directory");
  EXPECT_EQ(directory.error().where, folder_);
  const auto missing = TraceSink::open(path("no/file"), Streams{});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().text, "cannot write to it: there is no folder '" + path("no") + "'");
  EXPECT_FALSE(TraceSink::open(path("no/%p"), Streams{}));
  const auto below_file = TraceSink::open("/dev/null/x", Streams{});
  ASSERT_FALSE(below_file);
  EXPECT_EQ(below_file.error().text, "cannot write to it: Not a directory");
}

TEST_F(CliOutput, AFullDiskIsToldOnceAndEndsTheTrace) {
  auto sink = TraceSink::open("/dev/full", Streams{});
  ASSERT_TRUE(sink);
  EXPECT_EQ(sink->write("x\n"), 0);
  EXPECT_EQ(sink->flush(), ENOSPC);
  const auto failure = sink->take_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->where, "/dev/full");
  EXPECT_EQ(failure->text, "writing failed: No space left on device; the trace ends here");
  EXPECT_EQ(sink->write("y\n"), ENOSPC);
  EXPECT_EQ(sink->flush(), ENOSPC);
  sink->finish();
  EXPECT_FALSE(sink->take_failure());
}

TEST_F(CliOutput, AClosedPipeEndsQuietly) {
  Pipe pipe;
  auto sink = TraceSink::open("-", Streams{.in = -1, .out = pipe.write_end.get(), .err = -1});
  ASSERT_TRUE(sink);
  pipe.read_end.reset();
  sink->write("x\n");
  EXPECT_EQ(sink->flush(), EPIPE);
  EXPECT_EQ(sink->write("x\n"), EPIPE);
  EXPECT_FALSE(sink->take_failure());
}

TEST_F(CliOutput, ANonBlockingPipeLosesNothing) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string text(1u << 20, 'x');
  std::size_t got = 0;
  std::thread reader([&] {
    char buffer[5000];
    for (ssize_t n; (n = ::read(pipe.read_end.get(), buffer, sizeof buffer)) > 0;) got += static_cast<std::size_t>(n);
  });
  EXPECT_EQ(write_patiently(pipe.write_end.get(), text), 0);
  pipe.write_end.reset();
  reader.join();
  EXPECT_EQ(got, text.size());
}

TEST_F(CliOutput, ABadDescriptorIsAnError) { EXPECT_EQ(write_patiently(-1, "x"), EBADF); }

}  // namespace
}  // namespace uprobe::cli
