// SPDX-License-Identifier: MIT
// The launcher of an attached session and its tracer. Each case forks: the launcher's part runs in a child of the test.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "cli/launcher.h"
#include "engine/base/fd.h"
#include "engine/base/roles.h"
#include "tests/cli/fake_engine.h"

namespace uprobe::cli {
namespace {

class NoEngine : public FakeEngine {
 public:
  std::vector<int> released;
  Status release(const Selection& whom) override {
    released = whom.pids;
    return ok();
  }
};

// Words as the kernel puts them: one after the other.
struct Words {
  std::vector<std::string> list;
  std::string bytes;
  std::vector<char*> places;
  explicit Words(std::vector<std::string> words) : list(std::move(words)) {
    for (const std::string& word : list) bytes += word + '\0';
    std::size_t at = 0;
    for (const std::string& word : list) {
      places.push_back(bytes.data() + at);
      at += word.size() + 1;
    }
  }
};
Words attaching() { return Words({"uprobe-run", "-p", "p:a /bin/zsh:x", "-P", "12,34"}); }

std::string comm() {
  const auto text = read_file("/proc/self/comm");
  return text ? *text : "";
}

struct Front {
  Outcome outcome;
  std::vector<int> released;
  std::string said;
};

// `in_engine` returns the tracer's exit code, or does not return.
template <class InEngine>
Front launcher_of_engine(InEngine in_engine) {
  NoEngine engine;
  Words words = attaching();
  Streams streams;
  streams.err = ::memfd_create("err", 0);
  const auto outcome = run_as_launcher(words.list, words.places.data(), engine, streams);
  if (!outcome) ::_exit(in_engine(words));
  const auto said = read_file("/proc/self/fd/" + std::to_string(streams.err));
  ::close(streams.err);
  return {*outcome, engine.released, said ? *said : ""};
}

// `act` runs in a child of the test and returns whether all is well; its changes to signals stay there.
template <class Act>
bool holds(Act act) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(act() ? 0 : 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CliFront, WhereNothingIsAttachedToThereIsNone) {
  for (const auto& list : std::vector<std::vector<std::string>>{
           {"uprobe-run", "-p", "p:a /bin/zsh:x", "ls"}, {"uprobe-run", "-h"}, {"uprobe-run", "-P", "no"}}) {
    NoEngine engine;
    Words words(list);
    const pid_t before = ::getpid();
    EXPECT_FALSE(run_as_launcher(words.list, words.places.data(), engine, Streams{}));
    EXPECT_EQ(::getpid(), before);
  }
}

TEST(CliFront, EndsAsTheEngineHasEnded) {
  EXPECT_TRUE(holds([] {
    const Front launcher = launcher_of_engine([](Words&) { return 7; });
    return launcher.outcome.code == 7 && launcher.outcome.signal == 0 && launcher.released.empty() &&
           launcher.said.empty();
  }));
}

TEST(CliFront, TheEngineIsOutOfTheWayOfWhatIsMeantForTheTool) {
  EXPECT_TRUE(holds([] {
    const Front launcher = launcher_of_engine([](Words& words) {
      const bool is_named = comm() == std::string(kTracerName) + "\n" && words.places[0] == std::string(kTracerName);
      const bool is_hidden = words.bytes.find("uprobe-run") == std::string::npos;
      return is_named && is_hidden && ::getsid(0) == ::getpid() ? 3 : 4;
    });
    return launcher.outcome.code == 3 && comm() == std::string(kLauncherName) + "\n";
  }));
}

TEST(CliFront, WhatAKilledEngineHasLeftIsTakenAway) {
  EXPECT_TRUE(holds([] {
    const Front launcher = launcher_of_engine([](Words&) { return ::raise(SIGKILL); });
    return launcher.outcome.code == 125 && launcher.released == std::vector<int>{12, 34} &&
           launcher.said == "uprobe-run: the tracer was killed by signal 9; its probes are removed\n";
  }));
}

int await_request() {
  Signals signals;
  signals.attaching();
  ::kill(::getppid(), SIGUSR1);  // ready; the launcher comes back and asks to detach
  while (!signals.detach_requested()) ::usleep(1000);
  return 5;
}

TEST(CliFront, SignalsArePassedOn) {
  EXPECT_TRUE(holds([] { return launcher_of_engine([](Words&) { return await_request(); }).outcome.code == 5; }));
}

TEST(CliFront, ASignalThatComesTooEarlyEndsBoth) {
  EXPECT_TRUE(holds([] {
    const Front launcher = launcher_of_engine([](Words&) {
      ::kill(::getppid(), SIGTERM);
      ::pause();
      return 0;
    });
    return launcher.outcome.signal == SIGTERM;
  }));
}

// The tracer of a launcher that is killed writes to `end` when it has seen that.
void be_killed(int end) {
  static_cast<void>(launcher_of_engine([end](Words&) {
    ::signal(SIGTERM, SIG_IGN);  // the signal of the parent's end may be ignored
    Signals signals;
    signals.attaching();
    const bool before = signals.detach_requested();
    ::kill(::getppid(), SIGKILL);
    while (!signals.detach_requested()) ::usleep(1000);
    return ::write(end, before ? "x" : "y", 1) == 1 ? 0 : 1;
  }));
}

TEST(CliFront, ItsEndAsksToDetach) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    be_killed(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  char seen = 0;
  EXPECT_EQ(::read(ends[0], &seen, 1), 1);
  EXPECT_EQ(seen, 'y');
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace uprobe::cli
