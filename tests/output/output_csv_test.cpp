// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "engine/base/fd.h"
#include "engine/export/files.h"
#include "engine/export/formats.h"
#include "engine/output/csv.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

const std::string kHead = "12.345678901,1,12,13,zsh,e";

TEST(Csv, ColumnsAreThoseOfAllEvents) {
  Record first, second("f");
  first.field("a", Kind::hex, 1).field("b", Kind::hex, 2);
  second.field("b", Kind::signed_decimal, -3).text("c", "x");
  CsvFormatter formatter({});
  formatter.add(first.layout);
  formatter.add(second.layout);
  Buffer out;
  formatter.header(out);
  formatter.append(first.event(), "zsh", out);
  trace::EventRecord event = second.event();
  event.type = 1;
  formatter.append(event, "zsh", out);
  EXPECT_EQ(out.view(),
            "time,cpu,pid,tid,comm,event,a,b,c\n" + kHead + ",0x1,0x2,\n12.345678901,1,12,13,zsh,f,,-3,x\n");
}

TEST(Csv, CellsAreQuotedWhereTheyMustBe) {
  EXPECT_EQ(line_of<CsvFormatter>(Record().text("s", "say \"a, b\"")), kHead + ",\"say \"\"a, b\"\"\"\n");
  EXPECT_EQ(line_of<CsvFormatter>(Record().array("v", Kind::unsigned_decimal, std::vector{1u, 2u})),
            kHead + ",\"{1,2}\"\n");
}

TEST(Csv, ColumnsOfItsOwnKeepTheirNames) {
  CsvFormatter formatter({});
  formatter.add(Record().field("comm", Kind::hex, 1).field("event_", Kind::hex, 2).field("time", Kind::hex, 3).layout);
  Buffer out;
  formatter.header(out);
  EXPECT_EQ(out.view(), "time,cpu,pid,tid,comm,event,field.comm,event_,field.time\n");
}

TEST(Csv, NumbersOfSixteenBytesAreOneCell) {
  EXPECT_EQ(line_of<CsvFormatter>(Record().wide("w", Kind::signed_decimal, 7, 5)), kHead + ",92233720368547758087\n");
  EXPECT_EQ(line_of<CsvFormatter>(Record().wide("w", Kind::hex, 7, 5)), kHead + ",0x50000000000000007\n");
}

TEST(Csv, NothingForgesALineUnlessTheUserWantsAllBytes) {
  Record record;
  record.text("s", "a\n\x1b\xff");
  EXPECT_EQ(line_of<CsvFormatter>(record, {.escape_control = true}), kHead + ",a\\n\\x1b\\xff\n");
  EXPECT_EQ(line_of<CsvFormatter>(record), kHead + ",\"a\n\x1b\xff\"\n");
}

TEST(Csv, ChangesHaveAColumnWhereThereMayBeSome) {
  Record record;
  record.field("a", Kind::hex, 1);
  CsvFormatter formatter({.marks_changes = true});
  formatter.add(record.layout);
  Buffer out;
  formatter.header(out);
  formatter.append(record.event(), "zsh", out);
  record.flags = shared::kRecordChanged;
  formatter.append(record.event(), "zsh", out);
  EXPECT_EQ(out.view(), "time,cpu,pid,tid,comm,event,a,changed\n" + kHead + ",0x1,\n" + kHead + ",0x1,true\n");
}

// Of each name one, whatever the events.
TEST(Csv, ColumnsAreLimited) {
  std::vector<program::EventLayout> events(3);
  for (std::size_t i = 0; i < kMostCsvFields; ++i) events[i % 2].fields.push_back({.name = "f" + std::to_string(i)});
  events[2] = events[0];
  EXPECT_TRUE(check_csv_fields(events));
  events[2].fields.push_back({.name = "another"});
  const Status refused = check_csv_fields(events);
  EXPECT_EQ(refused ? Code::usage : refused.error().code, Code::limit);
}

TEST(Csv, ValuesThatAreNotThere) {
  Record record;
  record.text("s", "abc", true).field("f", Kind::string, std::uint32_t{0}).field("m", Kind::hex, 1);
  record.layout.fields[2].of_entry = true;
  record.flags = shared::kRecordNoEntry;
  EXPECT_EQ(line_of<CsvFormatter>(record), kHead + ",abc...,(fault),(missing)\n");
}

}  // namespace
}  // namespace uprobe::format
