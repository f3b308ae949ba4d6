// SPDX-License-Identifier: MIT
// `hist` triggers: parsing, printing, and the places of carets.
#include <gtest/gtest.h>

#include <random>

#include "engine/program/compile.h"
#include "engine/program/histogram.h"
#include "engine/program/trigger.h"
#include "engine/spec/parse.h"

namespace uprobe::program {
namespace {

using shared::HistogramGroup;
using shared::HistogramSource;

EventLayout layout(const std::string& arguments = "n=%di:s32 q=%si:u64 s=+0(%dx):string a=+0(%cx):u8[4] hitcount=%ax") {
  return compile(*spec::parse_definition("p:g/e /b/x:f " + arguments, {.file_check = nullptr})).take().layout;
}

Result<HistogramPlan> read(const std::string& text, const EventLayout& event = layout()) {
  const auto spec = parse_trigger(text);
  if (!spec) return spec.error();
  return parse_histogram(text, spec->attributes_at, spec->attributes_end, event);
}

TEST(Histogram, PrintsWhatItIs) {
  const std::pair<const char*, const char*> rows[] = {
      {"hist:keys=n", "hist:keys=n:vals=hitcount:sort=hitcount:size=2048 [active]"},
      {"hist:key=n:val=q:pause", "hist:keys=n:vals=hitcount,q:sort=hitcount:size=2048 [paused]"},
      {"hist:values=hitcount,q.hex:keys=n.hex,s",
       "hist:keys=n.hex,s:vals=hitcount,q.hex:sort=hitcount:size=2048 [active]"},
      {"hist:keys=n.bucket=0x10:sort=n.descending,hitcount.ascending:size=4096",
       "hist:keys=n.buckets=16:vals=hitcount:sort=n.buckets=16.descending,hitcount:size=4096 [active]"},
      {"hist:keys=cpu,common_pid.execname:vals=n:NOHC",
       "hist:keys=common_cpu,common_pid.execname:vals=n:sort=hitcount:size=2048:nohitcount [active]"},
      {"hist:keys=stacktrace,q.log2:size=65",
       "hist:keys=common_stacktrace,q.log2:vals=hitcount:sort=hitcount:size=128 [active]"},
      {"hist:keys=q.sym-offset:vals=hitcount.percent,hitcount.graph",
       "hist:keys=q.sym-offset:vals=hitcount,hitcount.percent,hitcount.graph:sort=hitcount:size=2048 [active]"},
      {"hist:keys=q.log2=5:sort=q", "hist:keys=q.log2=5:vals=hitcount:sort=q.log2=5:size=2048 [active]"},
      {" hist keys=n ", "hist:keys=n:vals=hitcount:sort=hitcount:size=2048 [active]"},
  };
  for (const auto& [text, expected] : rows) {
    const auto plan = read(text);
    ASSERT_TRUE(plan) << text << ": " << plan.error().text;
    EXPECT_EQ(plan->text(), expected);
    if (plan->text().find("=16.") != std::string::npos || plan->text().find("sort=q.log2=5") != std::string::npos)
      continue;  // the kernel, too, prints forms that it would not read
    const std::string again = plan->text().substr(0, plan->text().rfind(" ["));
    const auto second = read(again);
    ASSERT_TRUE(second) << again;
    EXPECT_TRUE(are_same(*plan, *second)) << again;
  }
}

TEST(Histogram, KeysLieOneAfterTheOther) {
  const auto plan = read("hist:keys=n,s,cpu:vals=hitcount.hex,q");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->key_bytes, 8U + 256 + 8);
  EXPECT_EQ(plan->keys[1].field.key_offset, 8U);
  EXPECT_EQ(plan->keys[2].field.key_offset, 264U);
  EXPECT_EQ(plan->keys[0].field.is_signed, 1);
  EXPECT_EQ(plan->keys[0].field.size, 4);
  EXPECT_EQ(static_cast<HistogramSource>(plan->keys[1].field.source), HistogramSource::text);
  EXPECT_TRUE(plan->values[1].is_hitcount);
  EXPECT_EQ(plan->values[2].field.offset, layout().fields[1].offset);
}

TEST(Histogram, TheTasksNameIsAKeyOfItsOwnSize) {
  const auto plan = read("hist:keys=comm,s,COMM:sort=common_comm.descending");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->key_bytes, 16U + 256 + 16);
  EXPECT_EQ(plan->text(),
            "hist:keys=common_comm,s,common_comm:vals=hitcount:sort=common_comm.descending:size=2048 [active]");
  EXPECT_FALSE(read("hist:keys=n:vals=comm"));
  EXPECT_FALSE(read("hist:keys=comm.hex"));
}

TEST(Histogram, WhereCaretsStand) {
  const struct {
    const char* text;
    const char* what;
    int column;
  } rows[] = {
      {"hist", "keys= is missing", 4},
      {"hist:keys=n,x", "Couldn't find field", 12},
      {"hist:keys=n.foo", "Invalid field modifier", 12},
      {"hist:keys=a", "an array can be no key and no value", 10},
      {"hist:keys=n:sort=n.up", "Invalid sort modifier", 19},
      {"hist:keys=n:vals=s", "only a number can be a value", 17},
      {"hist:keys=hitcount.percent", "Invalid field modifier", 19},
      {"hist:keys=n.log2=9", "the bits of log2= are a number from 1 to 8", 12},
      {"hist:keys=n.log2=", "the bits of log2= are a number from 1 to 8", 12},
      {"hist:keys=s.log2=3", "Invalid field modifier", 12},
      {"hist:keys=n:size=x", "the size is a number from 65 to 131072", 17},
      {"hist:keys=n::pause", "a histogram has no attribute ''", 12},
  };
  for (const auto& row : rows) {
    const auto plan = read(row.text);
    ASSERT_FALSE(plan) << row.text;
    EXPECT_EQ(plan.error().text, row.what);
    EXPECT_EQ(plan.error().column, row.column) << row.text;
    EXPECT_EQ(plan.error().where, row.text);
  }
}

TEST(Histogram, AnIfIsOneBetweenBlanks) {
  const EventLayout event = layout("iff=%di:s32");
  const auto spec = parse_trigger("hist:keys=iff if iff == 1");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->filter, "iff == 1");
  EXPECT_TRUE(read("hist:keys=iff if iff == 1", event));
  EXPECT_FALSE(parse_trigger("hist:keys=iff if"));
}

// Sensible pieces in senseless orders.
TEST(Histogram, WhateverIsReadLiesInTheKey) {
  std::mt19937 random(5);
  const char* pieces[] = {"keys=",      "vals=",    "sort=",   "size=", "n",          "q",    "s",        "cpu",
                          "stacktrace", ",",        ":",       ".",     "hex",        "log2", "buckets=", "7",
                          "descending", "hitcount", "percent", "pause", "nohitcount", " if ", "n == 1"};
  const EventLayout event = layout();
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text = "hist:keys=";
    for (auto i = random() % 9; i-- > 0;) text += pieces[random() % std::size(pieces)];
    const auto plan = read(text, event);
    if (!plan) {
      ASSERT_LE(plan.error().column, static_cast<int>(text.size())) << text;
      continue;
    }
    ++accepted;
    ASSERT_LE(plan->key_bytes, shared::kMaxHistogramKey) << text;
    ASSERT_LE(plan->keys.size(), shared::kMaxHistogramKeys) << text;
    ASSERT_LE(plan->values.size(), 1 + shared::kMaxHistogramValues) << text;
    for (const HistogramSort& sort : plan->sorts)
      ASSERT_LT(sort.field, plan->values.size() + plan->keys.size()) << text;
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace uprobe::program
