// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/pictures/calls.h"

namespace uprobe::format {
namespace {

using Role = CallEvents::Role;

class CallsTest : public testing::Test {
 protected:
  using Threads = Calls<int>;

  void add(const std::string& function, bool is_return, const std::string& place = "") {
    program::EventLayout layout{.is_return = is_return, .place = place};
    layout.function = function;
    events_.add(layout);
  }
  trace::EventRecord record(std::uint16_t type, std::uint32_t tid = 1, std::uint32_t pid = 1) const {
    return {.ns = 5, .tid = tid, .pid = pid, .type = type};
  }
  Threads::Thread& thread_of(const trace::EventRecord& record) { return threads_.thread_of(record, left_); }
  void enter(std::uint16_t type, int data) {
    threads_.enter(thread_of(record(type)), {.ns = 5, .type = type, .data = data}, left_);
  }
  // What the entry of the call has noted; -1: there is none.
  int end(std::uint16_t type) {
    const auto call = threads_.end_of(thread_of(record(type)), type, left_);
    return call ? call->data : -1;
  }

  CallEvents events_;
  Threads threads_{events_};
  std::vector<int> lost_;
  std::function<void(const Threads::Thread&, const Threads::Call&)> left_ =
      [this](const Threads::Thread&, const Threads::Call& call) { lost_.push_back(call.data); };
};

TEST_F(CallsTest, TheFirstEventsOfAFunctionArePaired) {
  add("/f:1", false), add("/f:1", false), add("/f:2", false), add("", false), add("", true), add("/f:1", true);
  add("/f:1", true);
  const std::vector<Role> expected = {Role::entry, Role::hit, Role::hit, Role::hit, Role::hit, Role::exit, Role::hit};
  for (std::uint16_t type = 0; type < expected.size(); ++type) EXPECT_EQ(events_.role(type), expected[type]) << type;
}

TEST_F(CallsTest, AReturnEndsTheLastCallOfItsFunction) {
  add("/f:1", false), add("/f:1", true), add("/f:2", false), add("/f:2", true);
  enter(0, 1), enter(0, 2), enter(2, 3);
  EXPECT_EQ(end(1), 2);
  EXPECT_EQ(lost_, std::vector<int>{3});
  EXPECT_EQ(end(3), -1);
  EXPECT_EQ(end(1), 1);
  EXPECT_EQ(end(1), -1);
}

TEST_F(CallsTest, ThreadsHaveCallsOfTheirOwn) {
  add("/f:1", false), add("/f:1", true);
  enter(0, 1);
  EXPECT_TRUE(thread_of(record(0, 2)).open.empty());
  EXPECT_EQ(end(1), 1);
}

TEST_F(CallsTest, ANumberThatAnotherProcessHasLeavesTheCalls) {
  add("/f:1", false), add("/f:1", true);
  enter(0, 1);
  EXPECT_EQ(thread_of(record(0, 1, 0)).open.size(), 1u) << "its process was not seen";
  EXPECT_TRUE(thread_of(record(0, 1, 9)).open.empty());
  EXPECT_EQ(lost_, std::vector<int>{1});
}

TEST_F(CallsTest, ExecveLeavesAllCallsUnlessItFails) {
  add("/f:1", false), add("/f:1", true), add("/libc:2", false, "execve"), add("/libc:2", true, "execve");
  enter(0, 1), enter(2, 2);
  EXPECT_EQ(end(3), 2);
  enter(2, 3), enter(0, 4);
  EXPECT_EQ(lost_, (std::vector<int>{3, 1}));
  EXPECT_EQ(end(1), 4);
}

TEST_F(CallsTest, AnExecveLeavesTheCallsThatAreOlder) {
  add("/f:1", false), add("/f:1", true);
  const auto seen = [&](std::uint64_t ns, std::uint32_t pid = 1) -> Threads::Thread& {
    trace::EventRecord one = record(0, pid, pid);
    one.ns = ns;
    return thread_of(one);
  };
  const auto enter_at = [&](std::uint64_t ns, int data) {
    threads_.enter(seen(ns), {.ns = ns, .type = 0, .data = data}, left_);
  };
  threads_.learn({.kind = ProcessEvent::Kind::start, .pid = 1, .ns = 1});
  threads_.learn({.kind = ProcessEvent::Kind::exec, .pid = 1, .ns = 20});
  threads_.learn({.kind = ProcessEvent::Kind::exec, .pid = 9, .ns = 1});
  enter_at(10, 1), enter_at(15, 2);
  EXPECT_EQ(seen(19).open.size(), 2u) << "a record from before";
  EXPECT_TRUE(seen(20).open.empty());
  EXPECT_EQ(lost_, (std::vector<int>{2, 1}));
  enter_at(30, 3), enter_at(40, 4);
  threads_.learn({.kind = ProcessEvent::Kind::exec, .pid = 1, .ns = 35});
  EXPECT_EQ(seen(50).open.size(), 2u) << "it is told of late";
  EXPECT_EQ(end(1), 4);
  EXPECT_TRUE(seen(60).open.empty());
  EXPECT_EQ(lost_, (std::vector<int>{2, 1, 3}));
}

TEST_F(CallsTest, TheyAreBounded) {
  add("/f:1", false), add("/f:1", true);
  const int most = Threads::kMostCalls;
  for (int i = 0; i < most + 2; ++i) enter(0, i);
  EXPECT_EQ(lost_, (std::vector<int>{0, 1}));
  EXPECT_EQ(thread_of(record(0)).forgotten, 2u);
  threads_.leave_all(left_);
  EXPECT_EQ(lost_.size(), static_cast<std::size_t>(most + 2));
}

}  // namespace
}  // namespace uprobe::format
