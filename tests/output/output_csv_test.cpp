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

TEST(Csv, NothingForgesALineUnlessTheUserWantsAllBytes) {
  Record record;
  record.text("s", "a\n\x1b\xff");
  EXPECT_EQ(line_of<CsvFormatter>(record, {.escape_control = true}), kHead + ",a\\n\\x1b\\xff\n");
  EXPECT_EQ(line_of<CsvFormatter>(record), kHead + ",\"a\n\x1b\xff\"\n");
}

TEST(Csv, ValuesThatAreNotThere) {
  Record record;
  record.text("s", "abc", true).field("f", Kind::string, std::uint32_t{0}).field("m", Kind::hex, 1);
  record.layout.fields[2].of_entry = true;
  record.flags = shared::kRecordNoEntry;
  EXPECT_EQ(line_of<CsvFormatter>(record), kHead + ",abc...,(fault),(missing)\n");
}

TEST(Formats, AreFoundByName) {
  for (const Format& format : formats()) EXPECT_EQ(format_called(format.name), &format);
  EXPECT_EQ(format_called("tex"), nullptr);
  EXPECT_EQ(format_names().substr(0, 15), "text, json, csv");
}

// Each with a record of every kind of value whose strings and arrays are nonsense: only what is in the payload is read.
TEST(Formats, TakeAnyPayload) {
  Record record("e", true);
  record.field("k", Kind::symbol, std::uint64_t{1})
      .array("s", Kind::string, std::vector<std::uint32_t>(64, 0xffffffff));
  record.add_stack({1, 2});
  for (const Format& format : formats()) {
    for (std::size_t size = 0; size <= record.payload.size(); size += 3) {
      const Fd file(::memfd_create("formats", MFD_CLOEXEC));
      Files files(file.get());  // no folder: a format that has several files is told so, and goes on
      const auto formatter = format.make({.files = &files});
      formatter->add(record.layout);
      Buffer out;
      formatter->header(out);
      trace::EventRecord event = record.event();
      const std::vector<std::uint8_t> some(record.payload.begin(), record.payload.begin() + static_cast<long>(size));
      event.payload = some;
      formatter->append(event, "\x1b", out);
      event.type = 7;
      formatter->append(event, "no such event", out);
      formatter->end({}, out);
      EXPECT_EQ(out.view().find("no such"), std::string_view::npos) << format.name;
    }
  }
}

}  // namespace
}  // namespace uprobe::format
