// SPDX-License-Identifier: MIT
// The forms of --check's answers.
#include <gtest/gtest.h>

#include <cerrno>

#include "cli/check.h"

namespace uprobe::cli {
namespace {

CheckReport refused(std::string text, bool is_kernels) {
  CheckReport report;
  report.error = Error{.text = std::move(text), .where = "p:e /x:1 %zz", .column = 9, .err = EINVAL};
  report.is_kernels = is_kernels;
  return report;
}

CheckReport accepted() {
  CheckReport report;
  report.listing = {"p:g/e /x:0x1 a=%di"};
  EventFormat format{.event = "g/e", .print_format = "\"(%lx)\"", .fields = {}, .file = "name: e\n"};
  format.fields = {{"u8 a", 16, 1, false}, {"s32 b[]", 17, 8, true}};
  report.formats = {format};
  return report;
}

TEST(CliCheck, AnAcceptedWriteAsJson) {
  EXPECT_EQ(render_check_json(accepted(), true),
            "{\"accepted\": true, \"errno\": null, \"error\": null, \"caret\": null, "
            "\"listing\": [\"p:g/e /x:0x1 a=%di\"], \"formats\": [{\"event\": \"g/e\", "
            "\"print_fmt\": \"\\\"(%lx)\\\"\", \"fields\": [[\"u8 a\", 16, 1, 0], [\"s32 b[]\", 17, 8, 1]]}]}\n");
  EXPECT_EQ(render_check_json({}, false),
            "{\"accepted\": true, \"errno\": null, \"error\": null, \"caret\": null, \"listing\": [], "
            "\"formats\": []}\n");
}

TEST(CliCheck, ARefusalAsJson) {
  const std::string end = ", \"listing\": [], \"formats\": []}\n";
  EXPECT_EQ(render_check_json(refused("Invalid register name", true), true),
            "{\"accepted\": false, \"errno\": \"EINVAL\", \"error\": \"trace_uprobe: Invalid register name\", "
            "\"caret\": 9" +
                end);
  EXPECT_EQ(
      render_check_json(refused("no function 'f'", false), false),
      "{\"accepted\": false, \"errno\": \"EINVAL\", \"error\": \"uprobe-run: no function 'f'\", \"caret\": 9" + end);
}

TEST(CliCheck, WhatTheKernelRefusesWithoutAWord) {
  EXPECT_EQ(render_check_json(refused("The path needs a '/'", false), true),
            "{\"accepted\": false, \"errno\": \"EINVAL\", \"error\": null, \"caret\": null, \"listing\": [], "
            "\"formats\": []}\n");
  CheckReport no_column = refused("no program is called 'x'", false);
  no_column.error->column = -1;
  no_column.error->err = 0;
  EXPECT_NE(render_check_json(no_column, false).find("\"errno\": \"EINVAL\""), std::string::npos);
  EXPECT_NE(render_check_json(no_column, false).find("\"caret\": null"), std::string::npos);
}

TEST(CliCheck, EveryByteIsACharacter) {
  CheckReport report;
  report.listing = {"p:g/\xe9 /\"x\\\x01\x7f:1"};
  EXPECT_NE(render_check_json(report, true).find("[\"p:g/\\u00e9 /\\\"x\\\\\\u0001\\u007f:1\"]"), std::string::npos);
}

// make-corpus.sh, which has recorded the rows to compare with, omits events with these names.
TEST(CliCheck, CommonFieldsAreLeftOut) {
  CheckReport report = accepted();
  report.formats[0].fields = {{"u64 common_cpu", 16, 8, false}};
  EXPECT_NE(render_check_json(report, true).find("\"fields\": []"), std::string::npos);
}

TEST(CliCheck, ListingAndFormats) {
  CheckReport report = accepted();
  EXPECT_EQ(render_listing(report), "p:g/e /x:0x1 a=%di\n");
  EXPECT_EQ(render_formats(report), "name: e\n");
  report.formats.push_back(report.formats[0]);
  EXPECT_EQ(render_formats(report), "name: e\n\nname: e\n");
  EXPECT_EQ(render_listing({}) + render_formats({}), "");
}

}  // namespace
}  // namespace uprobe::cli
