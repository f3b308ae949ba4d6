// SPDX-License-Identifier: MIT
// What trace.dat has of hostile names and records; its readers are in tests/e2e/export_test.py.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>

#include "engine/base/fd.h"
#include "engine/export/files.h"
#include "engine/export/identifiers.h"
#include "engine/export/raw_event.h"
#include "engine/export/ring_page.h"
#include "engine/export/trace_dat.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

std::string encoded(Record record, const Options& options = {}) {
  RawEvent event(record.layout);
  return std::string(event.encode(record.event(), options));
}

std::string file_of(Record record, const std::string& comm, const std::vector<Total>& totals = {}) {
  const Fd file(::memfd_create("trace", MFD_CLOEXEC));
  Files files(file.get());
  TraceDatFormatter formatter({.files = &files});
  Buffer out;
  formatter.add(record.layout);
  formatter.append(record.event(), comm, out);
  formatter.end(totals, out);
  struct stat facts {};
  EXPECT_EQ(::fstat(file.get(), &facts), 0);
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  files.read_at(0, bytes.data(), bytes.size());
  EXPECT_EQ(files.error(), 0);
  return bytes;
}

bool has(const std::string& bytes, const std::string& text) { return bytes.find(text) != std::string::npos; }

TEST(Identifiers, AreThoseOfC) {
  EXPECT_EQ(identifier("a$b c\n"), "a_b_c_");
  EXPECT_EQ(identifier("1a"), "_1a");
  EXPECT_EQ(identifier(""), "_");
  Identifiers names;
  EXPECT_EQ(names.take("a$"), "a_");
  EXPECT_EQ(names.take("a_"), "a__2");
  EXPECT_EQ(names.take("a-"), "a__3");
}

TEST(RawEvent, StringsComeAfterTheFields) {
  const std::string bytes = encoded(Record().text("s", "one").field("k", Kind::signed_decimal, 3));
  EXPECT_TRUE(bytes.ends_with(std::string("one\0", 4)));
  EXPECT_TRUE(encoded(Record().text("s", "one", true)).ends_with(std::string("one...\0", 7)));
}

TEST(RawEvent, NumbersOfSixteenBytesAreTexts) {
  Record record;
  record.wide("w", Kind::hex, 7, 5);
  EXPECT_TRUE(has(RawEvent(record.layout).format_file({}), "field:__data_loc char[] w;"));
  EXPECT_TRUE(encoded(record).ends_with(std::string("0x50000000000000007\0", 20)));
}

TEST(RawEvent, AStringThatIsTooLongIsCutAndTheNextHasItsDots) {
  const std::string most(65'000, 'x');
  const std::string bytes = encoded(Record().text("a", most, true).text("b", most, true));
  EXPECT_LE(bytes.size(), RingPage::kMostRecord);
  EXPECT_TRUE(bytes.ends_with(std::string("...\0", 4)));
  Record far("e");
  far.text("s", "one").layout.fields[0].offset = 70'000;
  EXPECT_EQ(encoded(far), "");
}

TEST(RawEvent, ValuesOfTheEntryThatAreMissingAreTexts) {
  Record record;
  record.field("k", Kind::signed_decimal, 3).layout.fields[0].of_entry = true;
  RawEvent event(record.layout);
  EXPECT_TRUE(has(event.format_file({}), "field:s32 k;"));
  EXPECT_TRUE(has(event.format_file({.lacks_entry = true}), "field:__data_loc char[] k;"));
  record.flags = shared::kRecordNoEntry;
  EXPECT_TRUE(encoded(record).ends_with(std::string("(missing)\0", 10)));
}

TEST(RawEvent, AChangedHitSaysSo) {
  Record record;
  record.field("k", Kind::signed_decimal, 3);
  RawEvent event(record.layout);
  event.id({}) = 66, event.id({.is_changed = true}) = 67;
  EXPECT_TRUE(has(event.format_file({}), "ID: 66\n"));
  EXPECT_FALSE(has(event.format_file({}), "(changed)"));
  EXPECT_TRUE(has(event.format_file({.is_changed = true}), "ID: 67\n"));
  EXPECT_TRUE(has(event.format_file({.is_changed = true}), "k=%d (changed)\", REC->"));
  record.flags = shared::kRecordChanged;
  EXPECT_TRUE(event.form_of(record.event()).is_changed);
  EXPECT_TRUE(event.encode(record.event(), {}).starts_with(std::string("\x43\0", 2)));
}

TEST(TraceDat, NamesCannotAddLines) {
  Record record("e\nID: 5\nformat:");
  record.layout.group = std::string("g\0h", 3);
  record.field("k; offset:0\n", Kind::unsigned_decimal, 3u);
  const std::string bytes = file_of(record, "a\n1 root");
  EXPECT_TRUE(has(bytes, "name: e_ID__5_format_\n"));
  EXPECT_TRUE(has(bytes, "field:u32 k__offset_0_;"));
  EXPECT_TRUE(has(bytes, std::string("g_h\0", 4)));
  EXPECT_TRUE(has(bytes, "13 a\\n1 root\n"));
}

TEST(TraceDat, ForeignEventsHaveTheirTextAndNoTimeThatGoesBack) {
  const Fd file(::memfd_create("trace", MFD_CLOEXEC));
  Files files(file.get());
  TraceDatFormatter formatter({.files = &files});
  Buffer out;
  for (std::uint64_t i = 0; i < 100; ++i)
    formatter.foreign({.ns = 1'000 - i, .tid = 7, .cpu = 0, .comm = "zsh", .name = "sched\nID: 1", .text = "a=1"}, out);
  formatter.foreign({.ns = 1'000, .cpu = ~0u, .name = "e", .text = "b=2"}, out);
  formatter.end({}, out);
  struct stat facts {};
  ASSERT_EQ(::fstat(file.get(), &facts), 0);
  EXPECT_LE(static_cast<std::size_t>(facts.st_size), 3 * RingPage::kBytes);
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  files.read_at(0, bytes.data(), bytes.size());
  EXPECT_TRUE(has(bytes, "name: sched_ID__1\n"));
  EXPECT_TRUE(has(bytes, std::string("a=1\0", 4)));
  EXPECT_TRUE(has(bytes, "7 zsh\n"));
  EXPECT_FALSE(has(bytes, "b=2"));
  EXPECT_TRUE(has(bytes, "(too large for trace.dat)"));
}

TEST(TraceDat, LossesAreCounted) {
  const std::string bytes =
      file_of(Record(), "zsh", {{.name = "uprobes/e", .recorded = 1, .lost = 7}, {.name = "uprobes/f", .recorded = 1}});
  EXPECT_TRUE(has(bytes, std::string("uprobes/e\0", 10)));
  EXPECT_FALSE(has(bytes, "uprobes/f"));
}

}  // namespace
}  // namespace uprobe::format
