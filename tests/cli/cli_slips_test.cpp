// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "cli/slips.h"

namespace uprobe::cli {
namespace {

std::string meant(std::string_view text) {
  const auto found = meaning_of_slip(text);
  return !found || found->places.empty() ? std::string() : found->places.front();
}

TEST(Slips, SidesOfAFunction) {
  EXPECT_EQ(meant("work:return"), "work%return");
  EXPECT_EQ(meant(" work%ret "), "work%return");
  EXPECT_EQ(meant("work@exit"), "work%return");
  EXPECT_EQ(meant("work:entry"), "work");
  EXPECT_EQ(meant("./prog:work:return"), "./prog:work%return");
}

TEST(Slips, AnObjectIsNoFunction) {
  EXPECT_EQ(meant("libc:exit"), "");
  EXPECT_EQ(meant("plugin.so:exit"), "");
  EXPECT_EQ(meant("/bin/sh:exit"), "");
}

TEST(Slips, PathsNeedAColon) {
  EXPECT_EQ(meant("/bin/sh+0x1189"), "/bin/sh:0x1189");
  EXPECT_EQ(meant("/bin/sh main"), "/bin/sh:main");
  EXPECT_EQ(meant("p /bin/sh main"), "/bin/sh:main");
  EXPECT_EQ(meant("/bin/sh"), "/bin/sh:FUNCTION");
  EXPECT_EQ(meant("/nowhere/sh main"), "");
}

TEST(Slips, LibrariesThatLieElsewhere) {
  EXPECT_EQ(meant("/nowhere/libc.so.6:malloc %di"), "libc.so.6:malloc %di");
  EXPECT_EQ(meant("/nowhere/prog:main"), "");
}

TEST(Slips, SourcesAndSystemCalls) {
  EXPECT_EQ(meant("prog.c"), "prog.c:LINE");
  EXPECT_EQ(meant("prog.rs:"), "prog.rs:LINE");
  EXPECT_EQ(meant("__x64_sys_openat"), "libc:openat");
  EXPECT_EQ(meant("SyS_open"), "libc:open");
  EXPECT_EQ(meant("system"), "");
}

TEST(Slips, WhatIsNone) {
  for (const char* text : {"", " ", ":", "%", "@", "%ret", ":return", "p ", "+", "work", "a b c", "ns::f:return:x"})
    EXPECT_EQ(meant(text), "") << text;
}

TEST(Slips, AProgramThatIsExecutedHasTheFunction) {
  const HasFunction has = [](const std::string& path, const std::string& name) {
    return path == "/bin/sh" && name == "work";
  };
  EXPECT_EQ(place_in_executed("work", {"env", "X=1", "/bin/sh", "-c"}, has), "/bin/sh:work");
  EXPECT_EQ(place_in_executed("work", {"nice", "/bin/sh -c true"}, has), "/bin/sh:work");
  EXPECT_EQ(place_in_executed("work", {"/bin/sh"}, has), "");  // that is the program itself
  EXPECT_EQ(place_in_executed("other", {"env", "/bin/sh"}, has), "");
  EXPECT_EQ(place_in_executed("work %di", {"env", "/bin/sh"}, has), "");
}

}  // namespace
}  // namespace uprobe::cli
