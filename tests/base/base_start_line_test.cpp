// SPDX-License-Identifier: MIT
// The line to a process that waits to become the program.
#include <gtest/gtest.h>

#include <cerrno>

#include "engine/base/start_line.h"

namespace uprobe {
namespace {

TEST(StartLine, MessagesStayWhole) {
  auto ends = make_start_line();
  ASSERT_TRUE(ends);
  send_number((*ends)[0].get(), 7);
  send_order((*ends)[0].get(), {.path = "/a b", .code = 0});
  send_order((*ends)[0].get(), {.path = {}, .code = 127});
  EXPECT_EQ(await_number((*ends)[1].get()), 7);
  EXPECT_EQ(await_order((*ends)[1].get())->path, "/a b");
  const auto last = await_order((*ends)[1].get());
  ASSERT_TRUE(last);
  EXPECT_EQ(last->path, "");
  EXPECT_EQ(last->code, 127);
  EXPECT_FALSE(take_number((*ends)[1].get()));
}

TEST(StartLine, ALongPathArrives) {
  auto ends = make_start_line();
  ASSERT_TRUE(ends);
  const std::string path(4095, 'x');
  send_order((*ends)[0].get(), {.path = path});
  EXPECT_EQ(await_order((*ends)[1].get())->path, path);
}

TEST(StartLine, WhatWasSaidBeforeTheEndIsHeard) {
  auto ends = make_start_line();
  ASSERT_TRUE(ends);
  send_number((*ends)[1].get(), 1);  // the other side has ended
  send_order((*ends)[0].get(), {.path = {}, .code = 125});
  (*ends)[0].reset();
  EXPECT_EQ(await_order((*ends)[1].get())->code, 125);
  EXPECT_FALSE(await_order((*ends)[1].get()));
  send_number((*ends)[1].get(), 1);  // no signal
}

TEST(StartLine, WhyExecveHasFailed) {
  EXPECT_EQ(exec_error("/x", ENOENT).code, Code::not_found);
  EXPECT_EQ(exec_error("/x", ENOEXEC).code, Code::not_executable);
  EXPECT_EQ(exec_error("/x", EACCES).where, "/x");
}

}  // namespace
}  // namespace uprobe
