// SPDX-License-Identifier: MIT
// Triggers that change the program: parsing, and the places of carets.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "engine/program/trigger.h"

namespace uprobe::program {
namespace {

using shared::Reg;
using shared::TriggerKind;

TEST(Action, OverridesAReturn) {
  const auto plain = parse_trigger("return=-1");
  ASSERT_TRUE(plain) << plain.error().text;
  EXPECT_EQ(plain->kind, TriggerKind::override_return);
  EXPECT_EQ(plain->action.value, ~std::uint64_t{0});
  EXPECT_EQ(plain->action.error_number, 0u);
  EXPECT_EQ(plain->count, shared::kUnlimited);
  const auto whole = parse_trigger(" return=0xffffffffffffffff,errno=ENOSPC:3  if n == 4");
  ASSERT_TRUE(whole) << whole.error().text;
  EXPECT_EQ(whole->action.value, ~std::uint64_t{0});
  EXPECT_EQ(whole->action.error_number, std::uint32_t{ENOSPC});
  EXPECT_EQ(whole->count, 3u);
  EXPECT_EQ(whole->filter, "n == 4");
}

TEST(Action, SetsRegisters) {
  const auto argument = parse_trigger("set %di=010 if n > 0");
  ASSERT_TRUE(argument) << argument.error().text;
  EXPECT_EQ(argument->kind, TriggerKind::set_register);
  EXPECT_EQ(argument->action.target, Reg::di);
  EXPECT_EQ(argument->action.value, 8u);
  EXPECT_FALSE(argument->action.is_of_return);
  const auto result = parse_trigger("set \t$retval=-9223372036854775808:1");
  ASSERT_TRUE(result) << result.error().text;
  EXPECT_TRUE(result->action.is_of_return);
  EXPECT_EQ(result->action.target, shared::kReturnRegister);
  EXPECT_EQ(result->action.value, std::uint64_t{1} << 63);
  EXPECT_EQ(result->count, 1u);
}

TEST(Action, DelaysAndSignals) {
  const std::pair<const char*, std::uint64_t> times[] = {
      {"delay=1us", 1'000}, {"delay=10ms", 10'000'000}, {"delay=10s", shared::kMostDelay}};
  for (const auto& [text, nanoseconds] : times) {
    const auto read = parse_trigger(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->kind, TriggerKind::delay);
    EXPECT_EQ(read->action.value, nanoseconds);
  }
  for (const char* text : {"signal=STOP", "signal=SIGSTOP:1 if n"}) {
    const auto read = parse_trigger(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->kind, TriggerKind::send_signal);
    EXPECT_EQ(read->action.value, std::uint64_t{SIGSTOP});
  }
}

TEST(Action, NamesACallback) {
  const auto read = parse_trigger("call=255,0x7f0000001000,18446744073709551615");
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->kind, TriggerKind::call_back);
  EXPECT_EQ(read->action.callback, 255u);
  EXPECT_EQ(read->action.value, 0x7f0000001000u);
  EXPECT_EQ(read->action.cookie, ~std::uint64_t{0});
  for (const char* text : {"call=", "call=1", "call=1,2", "call=1,2,", "call=257,1,1", "call=1,2,3,4"})
    EXPECT_FALSE(parse_trigger(text)) << text;
}

TEST(Action, PointsAtMistakes) {
  const struct {
    const char* text;
    int column;
    const char* message;
  } rows[] = {
      {"return=", 7, "the value '' is no number"},
      {"return=1x", 7, "the value '1x' is no number"},
      {"return=--1", 7, "the value '--1' is no number"},
      {"return=18446744073709551616", 7, "the value has more than 64 bits"},
      {"return=-9223372036854775809", 7, "the value has more than 64 bits"},
      {"return=1,errno=", 15, "no errno is called ''"},
      {"return=1,errno=EIOO", 15, "no errno is called 'EIOO'"},
      {"return=1,errn=EIO", 9, "'errn=EIO' is not errno=ENAME"},
      {"return=1,", 9, "'' is not errno=ENAME"},
      {" set", 4, "'set' needs a register and a value"},
      {"set %di", 4, "'set' needs a register and a value"},
      {"set %di=", 8, "the value '' is no number"},
      {"set di=1", 4, "'di' is no register"},
      {"set %edi=1", 4, "'%edi' is no register"},
      {"set %sp=1", 4, "'%sp' cannot be set"},
      {"set %ip=1", 4, "'%ip' cannot be set"},
      {"set %flags=1", 4, "'%flags' cannot be set"},
      {"delay=0ms", 6, "'0ms' is no time above 0"},
      {"delay=5", 6, "'5' is no time above 0"},
      {"delay=1.5s", 6, "'1.5s' is no time above 0"},
      {"delay=11s", 6, "'11s' is too long"},
      {"delay=99999999999999999999us", 6, "'99999999999999999999us' is too long"},
      {"signal=", 7, "no signal is called ''"},
      {"signal=9", 7, "no signal is called '9'"},
      {"signal=STOOP", 7, "no signal is called 'STOOP'"},
      {"return=1:x", 9, "'if FILTER' is what may follow"},
      {"returns=1", 0, "no trigger is called 'returns=1'"},
  };
  for (const auto& row : rows) {
    const auto read = parse_trigger(row.text);
    ASSERT_FALSE(read) << row.text;
    EXPECT_EQ(read.error().text, row.message) << row.text;
    EXPECT_EQ(read.error().column, row.column) << row.text;
    EXPECT_EQ(read.error().where, row.text);
    EXPECT_FALSE(read.error().help.empty()) << row.text;
  }
}

TEST(Action, OneDoesNotExcludeAnother) {
  const auto spec = [](const char* text) { return parse_trigger(text).take(); };
  EXPECT_FALSE(exclude_each_other(spec("return=1 if n == 1"), spec("return=2 if n == 2")));
  EXPECT_FALSE(exclude_each_other(spec("return=1"), spec("traceoff")));
  EXPECT_FALSE(exclude_each_other(spec("stacktrace"), spec("delay=1ms")));
  EXPECT_FALSE(exclude_each_other(spec("stacktrace"), spec("snapshot")));
  EXPECT_FALSE(exclude_each_other(spec("traceon"), spec("snapshot:3")));
  EXPECT_TRUE(exclude_each_other(spec("snapshot"), spec("snapshot:3")));
  EXPECT_TRUE(exclude_each_other(spec("traceon"), spec("traceoff")));
}

}  // namespace
}  // namespace uprobe::program
