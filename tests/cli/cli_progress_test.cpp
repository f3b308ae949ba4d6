// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "cli/progress.h"

namespace uprobe::cli {
namespace {

TEST(Progress, APaceHasHitsRateLossesAndSize) {
  EXPECT_EQ(render_pace({.hits = 1234567, .lost = 0, .bytes = 3'400'000, .hits_a_second = 4321.9}),
            "1,234,567 hits, 4,321 a second, none lost, 3.4 MB written");
  EXPECT_EQ(render_pace({.hits = 1, .lost = 1200, .bytes = 900, .hits_a_second = 0}),
            "1 hit, 0 a second, 1,200 lost, 0.9 kB written");
}

TEST(Progress, WhatIsNotWrittenToAFileHasNoSize) {
  EXPECT_EQ(render_pace({.hits = 2, .hits_a_second = 2}), "2 hits, 2 a second, none lost");
}

TEST(Progress, AnEventWithoutLossesIsNotTold) {
  EXPECT_EQ(render_first_loss({}), "");
  EXPECT_EQ(render_first_loss({{.name = "uprobes/f", .hits = 5, .missed = 2}}), "");
}

TEST(Progress, TheFirstEventWithLossesIsNamed) {
  const std::vector<EventProgress> events = {{.name = "uprobes/f", .hits = 5},
                                             {.name = "uprobes/g", .hits = 2000, .lost = 1500}};
  EXPECT_EQ(render_first_loss(events),
            "the first hits are lost (1,500 of 2,000 by now, of uprobes/g): the summary will name the causes, -b gives "
            "the rings "
            "more room");
}

}  // namespace
}  // namespace uprobe::cli
