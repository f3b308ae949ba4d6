// SPDX-License-Identifier: MIT
// The summary's exact text.
#include <gtest/gtest.h>

#include "cli/summary.h"

namespace uprobe::cli {
namespace {

ProbeSummary probe(std::string name, std::uint64_t hits) {
  ProbeSummary result;
  result.name = std::move(name);
  result.place = "/bin/zsh:0x6ae40";
  result.hits = result.recorded = hits;
  return result;
}

std::string summary_of(std::vector<ProbeSummary> probes) {
  Summary summary;
  summary.probes = std::move(probes);
  return render_summary(summary, false);
}

TEST(CliSummary, OneProbe) {
  EXPECT_EQ(summary_of({probe("uprobes/zfree_entry", 1234)}),
            "uprobe-run: uprobes/zfree_entry /bin/zsh:0x6ae40: 1,234 hits\n");
  EXPECT_EQ(summary_of({probe("uprobes/a", 1)}), "uprobe-run: uprobes/a /bin/zsh:0x6ae40: 1 hit\n");
}

TEST(CliSummary, Tiers) {
  Summary summary;
  summary.probes = {probe("uprobes/a", 1)};
  summary.jumps = 1;
  EXPECT_EQ(render_summary(summary, false).find("tiers"), std::string::npos);
  EXPECT_NE(render_summary(summary, false, true).find("uprobe-run: tiers: 1 jump, 0 int3\n"), std::string::npos);
  summary.jumps = 9812, summary.breakpoints = 188;
  EXPECT_NE(render_summary(summary, false).find("uprobe-run: tiers: 9,812 jump, 188 int3\n"), std::string::npos);
  summary.hardware = 2;
  EXPECT_NE(render_summary(summary, false).find("uprobe-run: tiers: 9,812 jump, 188 int3, 2 hardware\n"),
            std::string::npos);
  summary.hardware = 0;
  summary.tier = plan::Tier::breakpoint;
  EXPECT_EQ(render_summary(summary, false, true).find("tiers"), std::string::npos);
}

TEST(CliSummary, NeverHitSaysWhy) {
  ProbeSummary silent = probe("uprobes/x", 0);
  EXPECT_EQ(summary_of({silent}), "uprobe-run: uprobes/x /bin/zsh:0x6ae40: 0 hits (never reached)\n");
  silent.hint = "the file was never mapped";
  EXPECT_EQ(summary_of({silent}), "uprobe-run: uprobes/x /bin/zsh:0x6ae40: 0 hits (the file was never mapped)\n");
}

TEST(CliSummary, SeveralProbesHaveATotal) {
  EXPECT_EQ(summary_of({probe("g/a", 1000), probe("g/b", 234)}),
            "uprobe-run: g/a /bin/zsh:0x6ae40: 1,000 hits\n"
            "uprobe-run: g/b /bin/zsh:0x6ae40: 234 hits\n"
            "uprobe-run: total: 1,234 hits\n");
}

TEST(CliSummary, LossNamesItsCause) {
  ProbeSummary lossy = probe("g/a", 100);
  lossy.lost_full = 12;
  EXPECT_EQ(summary_of({lossy}),
            "uprobe-run: g/a /bin/zsh:0x6ae40: 100 hits, lost 12 (ring full)\n"
            "uprobe-run: lost: 12 (ring full: use -b to enlarge)\n");
}

TEST(CliSummary, LossOfSeveralCausesIsSummedOverProbes) {
  ProbeSummary a = probe("g/a", 5000), b = probe("g/b", 7);
  a.lost_full = 1200;
  a.lost_busy = 3;
  b.lost_full = 1;
  b.lost_too_big = 2;
  EXPECT_EQ(
      summary_of({a, b}),
      "uprobe-run: g/a /bin/zsh:0x6ae40: 5,000 hits, lost 1,203 (1,200 ring full; 3 every ring busy)\n"
      "uprobe-run: g/b /bin/zsh:0x6ae40: 7 hits, lost 3 (1 ring full; 2 larger than 4,072 bytes)\n"
      "uprobe-run: total: 5,007 hits\n"
      "uprobe-run: lost: 1,206 (1,201 ring full: use -b to enlarge; 2 larger than 4,072 bytes; 3 every ring busy)\n");
}

TEST(CliSummary, OfManyProbesTheBusiestAreShown) {
  std::vector<ProbeSummary> many;
  for (std::uint64_t i = 0; i < 30; ++i) many.push_back(probe("g/e" + std::to_string(i), i < 5 ? 0 : i));
  many[3].missed = 1;
  Summary summary;
  summary.probes = many;
  const std::string text = render_summary(summary, false);
  EXPECT_TRUE(text.starts_with("uprobe-run: g/e29 /bin/zsh:0x6ae40: 29 hits\nuprobe-run: g/e28 ")) << text;
  EXPECT_EQ(text.find("g/e9 "), std::string::npos) << text;
  EXPECT_NE(text.find("uprobe-run: g/e10 /bin/zsh:0x6ae40: 10 hits\n"
                      "uprobe-run: 6 other probes: 35 hits\n"
                      "uprobe-run: 4 probes never reached\n"
                      "uprobe-run: total: 425 hits\n"),
            std::string::npos)
      << text;
  EXPECT_NE(render_summary(summary, false, true).find("g/e0 /bin/zsh:0x6ae40: 0 hits (never reached)"),
            std::string::npos);
}

TEST(CliSummary, WhatAHistogramCountsIsNotOff) {
  ProbeSummary counted = probe("g/a", 10);
  counted.disabled = 10;
  EXPECT_EQ(summary_of({counted}), "uprobe-run: g/a /bin/zsh:0x6ae40: 10 hits, 10 while off\n");
  counted.is_counted = true;
  EXPECT_EQ(summary_of({counted}), "uprobe-run: g/a /bin/zsh:0x6ae40: 10 hits\n");
}

TEST(CliSummary, TimeoutsAndNotes) {
  Summary summary;
  summary.mail_timeouts = 1;
  summary.notes = {"refused in /lib/x\x1b.so"};
  EXPECT_EQ(render_summary(summary, false),
            "uprobe-run: unprobed: 1 library was mapped while uprobe-run was too busy to answer in time\n"
            "uprobe-run: refused in /lib/x\\x1b.so\n");
  EXPECT_EQ(render_summary({}, false), "");
}

TEST(CliSummary, LinesAsComments) {
  EXPECT_EQ(as_comments("a\n\nb\n"), "# a\n# \n# b\n");
  EXPECT_EQ(as_comments(""), "");
  EXPECT_FALSE(has_losses({}));
  Summary summary;
  summary.probes = {probe("g/a", 1)};
  EXPECT_FALSE(has_losses(summary));
  summary.probes[0].missed = 1;
  EXPECT_TRUE(has_losses(summary));
}

TEST(CliSummary, TheProfileHasTheKernelsColumns) {
  ProbeSummary a = probe("g/a", 5000);
  a.place = "/x:y/z\x1b:0x10";
  a.lost_full = 12;
  const ProbeSummary b = probe("g/" + std::string(50, 'b'), 0);
  Summary summary;
  summary.probes = {a, b};
  EXPECT_EQ(render_profile(summary), "  /x:y/z\\x1b a" + std::string(43, ' ') + "            5000              12\n" +
                                         "  /bin/zsh " + std::string(50, 'b') + "               0               0\n");
  EXPECT_EQ(render_profile({}), "");
}

}  // namespace
}  // namespace uprobe::cli
