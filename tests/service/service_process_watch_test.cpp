// SPDX-License-Identifier: MIT
// The starts, execs and ends of real processes: of children of the test.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/ipc/course_relay.h"
#include "engine/service/process_watch.h"
#include "engine/shared/session_area.h"
#include "engine/trace/task_names.h"

namespace uprobe {
namespace {

using format::ProcessEvent;
using Change = ProcessEvent::Kind;

constexpr std::uint32_t kNoProcess = std::numeric_limits<std::int32_t>::max();  // beyond the largest id

class ProcessWatchTest : public testing::Test {
 protected:
  ~ProcessWatchTest() override {
    for (const pid_t child : children_) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
  }
  // Waits until it is killed.
  std::uint32_t child() {
    const pid_t pid = ::fork();
    if (pid == 0)
      while (true) ::pause();
    children_.insert(pid);
    members_.insert(pid);
    return static_cast<std::uint32_t>(pid);
  }
  // Has ended when this returns, and is still to be reaped.
  void end(std::uint32_t pid) {
    ::kill(static_cast<pid_t>(pid), SIGTERM);
    siginfo_t info{};
    ::waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
  }
  // "start 1 a, end 1 a", with the ids in the order in which they were told.
  std::string told() {
    std::string text;
    for (const ProcessEvent& event : events_) {
      const char* const kind = event.kind == Change::start ? "start " : event.kind == Change::exec ? "exec " : "end ";
      const auto known = std::ranges::find(ids_, event.pid);
      const auto number = known - ids_.begin() + 1;
      if (known == ids_.end()) ids_.push_back(event.pid);
      text += (text.empty() ? "" : ", ") + std::string(kind) + std::to_string(number) + " " + event.comm;
    }
    return text;
  }
  ProcessWatch::Needs needs(std::size_t most = ProcessWatch::kMost) {
    return {.tell = [this](const ProcessEvent& event) { events_.push_back(event); },
            .open_member =
                [this](pid_t pid) {
                  return members_.contains(pid) ? Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) : Fd();
                },
            .has_handed_on = [this](std::uint64_t ns) { return ns < handed_on_; },
            .own_child = own_child_,
            .most = most};
  }

  std::set<pid_t> children_, members_;
  std::vector<ProcessEvent> events_;
  std::vector<std::uint32_t> ids_;
  std::uint64_t handed_on_ = 0;
  pid_t own_child_ = 0;
};

TEST_F(ProcessWatchTest, AProcessStartsWithItsFirstRecordAndEndsAfterItsLastOne) {
  ProcessWatch watch(needs());
  const std::uint32_t pid = child();
  watch.see(pid, 5, "a");
  watch.see(pid, 6, "a");
  watch.see(0, 7, "no process is known");
  EXPECT_EQ(told(), "start 1 a");
  EXPECT_EQ(events_[0].ns, 5u);
  EXPECT_EQ(events_[0].parent, 0u) << "the test is no process of the session";
  watch.look(false);
  EXPECT_EQ(told(), "start 1 a");
  end(pid);
  watch.look(false);
  watch.look(false);
  EXPECT_EQ(told(), "start 1 a") << "there may be more records";
  handed_on_ = trace::TaskNames::now_ns();
  watch.step();
  EXPECT_EQ(told(), "start 1 a, end 1 a");
  EXPECT_FALSE(events_[1].exit || events_[1].signal) << "it is not for the tool to know";
  watch.look(true);
  EXPECT_EQ(events_.size(), 2u);
}

TEST_F(ProcessWatchTest, TheEndOfItsOwnChildIsKnown) {
  const std::uint32_t pid = child();
  own_child_ = static_cast<pid_t>(pid);
  ProcessWatch watch(needs());
  watch.add_member(own_child_, 1, "a");
  end(pid);
  watch.look(true);
  EXPECT_EQ(told(), "start 1 a, end 1 a");
  EXPECT_EQ(events_[1].signal, SIGTERM);
  EXPECT_FALSE(events_[1].exit);
}

TEST_F(ProcessWatchTest, AProcessThatIsGoneWhenItIsSeenStartsAndEnds) {
  ProcessWatch watch(needs());
  watch.see(kNoProcess, 5, "a");
  EXPECT_EQ(told(), "start 1 a");
  watch.look(true);
  EXPECT_EQ(told(), "start 1 a, end 1 a");
  EXPECT_GE(events_[1].ns, events_[0].ns);
}

// The record is the word of a traced process, which may name any other.
TEST_F(ProcessWatchTest, AProcessThatIsNotOfTheSessionIsNotOpened) {
  const std::uint32_t pid = child();
  members_.clear();
  ProcessWatch watch(needs());
  watch.see(pid, 5, "a");
  watch.look(true);
  EXPECT_EQ(told(), "start 1 a");
  const control::SeenTask task{.task = {}, .number = pid, .process = pid, .name = "b", .ns = 6};
  watch.learn({&task, 1}, {});
  end(pid);
  watch.look(true);
  EXPECT_EQ(told(), "start 1 a, end 1 b") << "then the tool had seen it itself";
}

TEST_F(ProcessWatchTest, ANumberThatIsUsedAgainIsAnotherProcess) {
  ProcessWatch watch(needs());
  const std::uint32_t pid = child();
  watch.see(pid, 5, "a");
  end(pid);
  watch.look(false);
  const std::uint64_t later = trace::TaskNames::now_ns();
  watch.see(pid, 6, "a");
  EXPECT_EQ(told(), "start 1 a") << "a late record of the same";
  watch.see(pid, later, "b");
  EXPECT_EQ(told(), "start 1 a, end 1 a, start 1 b");
}

TEST_F(ProcessWatchTest, ExecvesAndParents) {
  ProcessWatch watch(needs());
  watch.add_member(::getpid(), 1, "test");
  const std::uint32_t pid = child();
  const control::SeenTask task{.task = {}, .number = pid, .process = pid, .name = "a", .ns = 6};
  const control::SeenExec exec{.pid = static_cast<pid_t>(pid), .ns = 7, .comm = "b", .exe = "/bin/b"};
  watch.learn({&task, 1}, {&exec, 1});
  watch.step();
  EXPECT_EQ(told(), "") << "older records may come";
  handed_on_ = 8;
  watch.step();
  EXPECT_EQ(told(), "start 1 test, start 2 a, exec 2 b");
  EXPECT_EQ(events_[1].parent, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(events_[2].exe, "/bin/b");
}

// A child of fork has records before it calls execve, by which the tool sees it first.
TEST_F(ProcessWatchTest, AStartIsAsOldAsTheFirstRecord) {
  ProcessWatch watch(needs());
  watch.add_member(::getpid(), 1, "test");
  const std::uint32_t pid = child();
  const control::SeenExec exec{.pid = static_cast<pid_t>(pid), .ns = 7, .comm = "b", .exe = "/bin/b"};
  watch.learn({}, {&exec, 1});
  watch.see(pid, 5, "a");
  EXPECT_EQ(told(), "start 1 test, start 2 a, exec 2 b") << "the parent's before it";
  EXPECT_EQ(events_[1].ns, 5u);
  watch.see(pid, 9, "b");
  watch.look(true);
  EXPECT_EQ(events_.size(), 3u);
}

TEST_F(ProcessWatchTest, AProcessThatIsGoneBeforeItsStartIsToldHasBoth) {
  ProcessWatch watch(needs());
  const std::uint32_t pid = child();
  watch.add_member(static_cast<pid_t>(pid), 7, "a");
  end(pid);
  watch.look(false);
  EXPECT_EQ(told(), "");
  watch.see(pid, 5, "a");
  watch.look(true);
  EXPECT_EQ(told(), "start 1 a, end 1 a");
  EXPECT_EQ(events_[0].ns, 5u);
}

// A run of one record.
void see_run_at(ProcessWatch& watch, std::uint32_t pid, std::uint64_t ns) {
  std::vector<std::uint8_t> bytes(sizeof(shared::RecordHead) + sizeof(shared::PayloadHead));
  const shared::RecordHead head{.length = static_cast<std::uint32_t>(bytes.size()),
                                .number = 0,
                                .tsc = ns,
                                .payload_bytes = sizeof(shared::PayloadHead),
                                .cpu = 0,
                                .flags = 0};
  std::memcpy(bytes.data(), &head, sizeof head);
  watch.see_run({.pid = pid, .count = 1, .comm = "a", .records = bytes});
}

TEST_F(ProcessWatchTest, RunsOfARingMayBeAheadOfOthers) {
  ProcessWatch watch(needs());
  const std::uint32_t pid = child();
  for (const std::uint64_t ns : {9, 4, 6}) see_run_at(watch, pid, ns);
  EXPECT_EQ(told(), "");
  watch.step();
  EXPECT_EQ(told(), "start 1 a");
  EXPECT_EQ(events_[0].ns, 4u);
}

TEST_F(ProcessWatchTest, RunsMayBeOlderThanWhatTheServiceHasSeen) {
  ProcessWatch watch(needs());
  const std::uint32_t pid = child();
  watch.add_member(static_cast<pid_t>(pid), 7, "later");
  for (const std::uint64_t ns : {9, 4, 6}) see_run_at(watch, pid, ns);
  watch.step();
  EXPECT_EQ(told(), "start 1 a");
  EXPECT_EQ(events_[0].ns, 4u);
}

TEST_F(ProcessWatchTest, SoManyProcessesAreKnown) {
  ProcessWatch watch(needs(2));
  for (std::uint32_t i = 0; i < 3; ++i) watch.see(kNoProcess - i, 5, "a");
  EXPECT_EQ(events_.size(), 2u);
  EXPECT_TRUE(watch.is_overfull());
  watch.look(true);
  watch.see(kNoProcess - 2, 5, "b");
  EXPECT_EQ(told(), "start 1 a, start 2 a, end 2 a, end 1 a, start 3 b");
}

TEST(CourseRelay, EndsComeAfterTheRecordsThatWereQueuedBefore) {
  CourseRelay relay;
  std::string told;
  const auto tell = [&](const CourseRelay::Item& item) {
    const auto* const event = std::get_if<ProcessEvent>(&item);
    told += event == nullptr ? "lost " : event->kind == Change::end ? "end " : "start ";
  };
  relay.take(ProcessEvent{.kind = Change::start});
  relay.take(ProcessEvent{.kind = Change::end});
  relay.take(format::LossSoFar{});
  relay.tell_before(tell);
  EXPECT_EQ(told, "start lost ");
  relay.tell_after(tell);
  EXPECT_EQ(told, "start lost ") << "its last records may have come since";
  relay.tell_before(tell);
  EXPECT_EQ(told, "start lost ");
  relay.tell_after(tell);
  EXPECT_EQ(told, "start lost end ");
  for (std::size_t i = 0; i < CourseRelay::kMost + 3; ++i) relay.take(format::LossSoFar{});
  EXPECT_EQ(relay.dropped(), 3u);
}

}  // namespace
}  // namespace uprobe
