// SPDX-License-Identifier: MIT
// Keys and values that no field of the event has.
#include <gtest/gtest.h>

#include "engine/program/histogram_fields.h"

namespace uprobe::program {
namespace {

using Triggers = std::vector<std::string>;

TEST(HistogramFields, SpecialNamesAreFetched) {
  const auto made =
      fields_for("r:e /x:f", {"hist:keys=$latency.log2=5:vals=$retval,hitcount:sort=$latency", "traceoff"});
  EXPECT_EQ(made.definition, "r:e /x:f latency=$latency retval=$retval");
  EXPECT_EQ(made.with_variables, made.definition);
  EXPECT_EQ(made.triggers, (Triggers{"hist:keys=latency.log2=5:vals=retval,hitcount:sort=latency", "traceoff"}));
}

TEST(HistogramFields, WhatIsFetchedAlreadyIsNotFetchedAgain) {
  const auto made = fields_for("p:e /x:f arg1=$arg1 n=%di", {"hist:keys=$arg1,n", "hist:keys=$arg1.hex if n > 3"});
  EXPECT_EQ(made.definition, "p:e /x:f arg1=$arg1 n=%di");
  EXPECT_EQ(made.triggers, (Triggers{"hist:keys=arg1,n", "hist:keys=arg1.hex if n > 3"}));
}

TEST(HistogramFields, ANameThatIsTakenIsNot) {
  const auto made = fields_for("p:e /x:f arg1=%si", {"hist:keys=$arg1"});
  EXPECT_EQ(made.definition, "p:e /x:f arg1=%si arg1_=$arg1");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=arg1_"});
}

TEST(HistogramFields, OtherNamesMayBeVariables) {
  const auto made = fields_for("f(size) n=%di", {"hist:keys=size,used,common_pid.execname:vals=n,free.hex:sort=used"});
  EXPECT_EQ(made.definition, "f(size) n=%di");
  EXPECT_EQ(made.with_variables, "f(size) n=%di used free");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=size,used,common_pid.execname:vals=n,free.hex:sort=used"});
}

TEST(HistogramFields, AConditionStaysLast) {
  const auto made = fields_for("w /x:write fd=%di if fd == 2", {"hist:keys=$comm,count if fd > 1"});
  EXPECT_EQ(made.definition, "w /x:write fd=%di comm=$comm if fd == 2");
  EXPECT_EQ(made.with_variables, "w /x:write fd=%di comm=$comm count if fd == 2");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=comm,count if fd > 1"});
}

TEST(HistogramFields, FieldsWithoutANameOfTheirOwnAreKnown) {
  auto made = fields_for("p:e /x:f $arg1", {"hist:keys=$arg1"});
  EXPECT_EQ(made.definition, "p:e /x:f $arg1");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=arg1"});
  made = fields_for("p:e /x:f %si %dx", {"hist:keys=$arg1,$arg3"});
  EXPECT_EQ(made.definition, "p:e /x:f %si %dx arg1_=$arg1 arg3=$arg3");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=arg1_,arg3"});
}

// A function may have the name of a field, or of its own variable.
TEST(HistogramFields, TheNamesOfPlacesAreNoFields) {
  auto made = fields_for("latency%return", {"hist:keys=$latency"});
  EXPECT_EQ(made.definition, "latency%return latency=$latency");
  made = fields_for("count n=%di", {"hist:keys=count,n"});
  EXPECT_EQ(made.with_variables, "count n=%di count");
  made = fields_for("libc:size:3", {"hist:keys=size"});
  EXPECT_EQ(made.with_variables, "libc:size:3 size");
}

TEST(HistogramFields, ACommentStaysLast) {
  const auto made = fields_for("p:e /x:f n=%di  # n if any", {"hist:keys=$latency,used"});
  EXPECT_EQ(made.definition, "p:e /x:f n=%di latency=$latency # n if any");
  EXPECT_EQ(made.with_variables, "p:e /x:f n=%di latency=$latency used # n if any");
  EXPECT_EQ(fields_for("p:e /x:f # all", {"hist:keys=n"}).with_variables, "p:e /x:f n # all");
}

TEST(HistogramFields, FieldsOfMarkersAreKnownAsTheyAreWritten) {
  const auto made = fields_for("p:e /x:sdt:a:b arg1=$arg2 arg2=$arg2", {"hist:keys=$arg1,$arg2"});
  EXPECT_EQ(made.definition, "p:e /x:sdt:a:b arg1=$arg2 arg2=$arg2 arg1_=$arg1");
  EXPECT_EQ(made.triggers, Triggers{"hist:keys=arg1_,arg2"});
}

TEST(HistogramFields, OtherTriggersAreLeftAlone) {
  const Triggers all = {"stacktrace if $x == 3", "hist", "hist:", "hist:keys=", "hist:keys=$", "hist:keys=$,$",
                        "hist:keys=$n:ts0=$arg", ""};
  const auto made = fields_for("p:e /x:f", all);
  EXPECT_EQ(made.triggers, all);
  EXPECT_EQ(made.with_variables, "p:e /x:f");
}

}  // namespace
}  // namespace uprobe::program
