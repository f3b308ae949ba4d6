// SPDX-License-Identifier: MIT
// Marks: their notes, the fields of their formats, and formats of one name.
#include <gtest/gtest.h>

#include "engine/marker/listing.h"
#include "engine/marker/marker_event.h"
#include "engine/marker/marks.h"
#include "engine/program/compile.h"
#include "engine/spec/listing.h"
#include "engine/spec/parse.h"
#include "tests/marker/made_markers.h"

namespace uprobe::marker {
namespace {

using Lines = std::vector<std::string>;

std::shared_ptr<const elf::ElfFile> file_of(const MadeMarkers& made) {
  auto file = elf::ElfFile::parse("/made", made.bytes());
  EXPECT_TRUE(file);
  return std::make_shared<const elf::ElfFile>(file.take());
}

// "NAME: FORMAT" of each mark, then what was refused.
Lines marks_of(const MadeMarkers& made) {
  const Notes notes = read_marks(*file_of(made));
  Lines lines;
  for (const Marker& marker : notes.markers) lines.push_back(marker.name + ": " + marker.format);
  lines.insert(lines.end(), notes.problems.begin(), notes.problems.end());
  return lines;
}

Lines marks_of(const std::string& arguments, const std::string& format) {
  MadeMarkers made;
  made.add({.arguments = arguments});
  made.add_mark(format);
  return marks_of(made);
}

// The definitions of all events that the line matches, each with its format; the notes follow.
Lines made_of(const std::string& line, const MadeMarkers& made) {
  const auto file = file_of(made);
  const auto definition = spec::parse_definition(line, {.file_check = {}});
  EXPECT_TRUE(definition) << line;
  std::vector<MarkerEvent> events;
  add_matches(*definition, "/made", file, read_marks(*file), events);
  Lines lines, notes = notes_of_formats(events);
  const FindData find = [](const MarkerPlace&, spec::ProbeSpec&) { return ok(); };
  for (const MarkerEvent& event : events) {
    const auto specs = specs_of(*definition, event, find, notes);
    EXPECT_TRUE(specs);
    for (const spec::ProbeSpec& spec : *specs) {
      EXPECT_TRUE(program::compile(spec)) << spec::listing(spec);
      lines.push_back(spec::listing(spec) + " | " + spec.print_format);
    }
  }
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

TEST(Marks, JoinTheNotesOfAPlace) {
  MadeMarkers made;
  made.add({.name = "first", .arguments = "-4@%edi"});
  made.add({.place = MadeMarkers::kCode + 8, .name = "plain"});
  made.add({.place = MadeMarkers::kCode + 16, .name = "last"});
  made.add_mark("n=%d\n");
  made.add_mark("done", MadeMarkers::kCode + 16);
  EXPECT_EQ(marks_of(made), (Lines{"first: n=%d\n", "last: done"}));
}

TEST(Marks, FieldsHaveTheNamesAndTypesOfTheFormat) {
  MadeMarkers made;
  made.add({.name = "all",
            .arguments = "-4@%edi 8@%rsi 8@%rdx 8f@%rcx 4f@%r8d -4@%eax -4@$65 8@%r9 4@%ebx -4@$-1 8@%rbp -4@%esi"});
  made.add_mark("fd=%d path='%s' at = %p took=%.3f half=%g low=%hhd c=%c x=0x%lx (%u) 100%% %x if=%zu fd=%d!");
  EXPECT_EQ(made_of("p /made:mark:group:all", made),
            (Lines{"p:group/all /made:0x0000000000001000 fd=%di:s32 path=+0(%si):string at=%dx:x64 took=%cx:f64 "
                   "half=%r8:f32 low=%ax:s8 c=\\65:char x=%r9:x64 arg9=%bx:u32 arg10=\\-1:x32 arg11=%bp:u64 "
                   "arg12=%si:s32 | fd=%d path='%s' at = %p took=%.3f half=%g low=%hhd c=%c x=0x%lx (%u) 100%% %x "
                   "if=%zu fd=%d!"}));
}

TEST(Marks, WrittenArgumentsHaveNoFormat) {
  MadeMarkers made;
  made.add({.arguments = "-4@%edi"});
  made.add_mark("n=%d");
  EXPECT_EQ(made_of("p:g/e /made:mark:*:* low=$arg1:u8", made),
            (Lines{"p:g/e /made:0x0000000000001000 low=%di:u8 | "}));
}

TEST(Marks, WithoutAnArgumentPrintByTheirFields) {
  MadeMarkers made;
  made.add({.arguments = "-4@%fs:8 4@%ebx"});
  made.add_mark("a=%d b=%u");
  EXPECT_EQ(made_of("p /made:mark:*:*", made),
            (Lines{"p:group/name /made:0x0000000000001000 b=%bx:u32 | ",
                   "group/name is recorded without its argument 1: $arg1 cannot be fetched: it is in a segment of the "
                   "thread"}));
}

TEST(Marks, FormatsOfOneNameAreEventsOfTheirOwn) {
  MadeMarkers made;
  for (const std::uint64_t at : {0, 8, 16, 24}) made.add({.place = MadeMarkers::kCode + at, .arguments = "-4@%edi"});
  made.add({.place = MadeMarkers::kCode + 32, .name = "name_2", .arguments = "-4@%edi"});
  made.add_mark("a=%d");
  made.add_mark("b=%d", MadeMarkers::kCode + 8);
  made.add_mark("a=%d", MadeMarkers::kCode + 16);
  made.add_mark("c=%d", MadeMarkers::kCode + 24);
  made.add_mark("other=%d", MadeMarkers::kCode + 32);
  const Lines lines = made_of("p /made:mark:*:name", made);
  EXPECT_EQ(lines, (Lines{"p:group/name /made:0x0000000000001000 a=%di:s32 | a=%d",
                          "p:group/name /made:0x0000000000001010 a=%di:s32 | a=%d",
                          "p:group/name_2 /made:0x0000000000001008 b=%di:s32 | b=%d",
                          "p:group/name_3 /made:0x0000000000001018 c=%di:s32 | c=%d",
                          "group/name_2 is group/name with another format, \"b=%d\", at /made:0x1008",
                          "group/name_3 is group/name with another format, \"c=%d\", at /made:0x1018"}));
  EXPECT_EQ(made_of("p /made:mark:*:*", made).size(), 5u + 3u) << "name_2 has a name of its own, which is in use";
  EXPECT_EQ(list_marks("/made", *file_of(made), "*:name"),
            (Lines{"p /made:mark:group:name # 2 places: \"a=%d\"; 1 place: \"b=%d\"; 1 place: \"c=%d\""}));
}

TEST(Marks, WhatIsRefused) {
  const std::string at = "note at 0x0: ";
  EXPECT_EQ(marks_of("-4@%edi", "%d %d"), Lines{at + "its format has 2 conversions for 1 arguments"});
  EXPECT_EQ(marks_of("-4@%edi", "%*d"), Lines{at + "of its format the conversion '%*d' is not known"});
  EXPECT_EQ(marks_of("8@%rdi", "%n"), Lines{at + "of its format the conversion '%n' is not known"});
  EXPECT_EQ(marks_of("", std::string(kLongestFormat + 1, 'x')),
            Lines{at + "its format is not in the file, or too long"});
  MadeMarkers made;
  made.add({.arguments = "-4@%edi"});
  made.add_mark("n=%d", MadeMarkers::kCode + 4);
  made.add_mark("n=%d", MadeMarkers::kCode, 2);
  made.add_mark("n=%d", MadeMarkers::kCode, 1, "uprobf\0");
  made.add_mark_note({"uprobe\0", 7}, std::string(16, '\0'), 1);
  made.add_mark_note({"uprobe\0", 7}, std::string("\0\x10\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 24), 1);
  made.add_mark("n=%d");
  made.add_mark("n=%d");
  const Lines lines = marks_of(made);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "name: n=%d");
  EXPECT_TRUE(lines[1].ends_with(": no note of stapsdt is about its place")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(": it is of another kind than version 1 of uprobe")) << lines[2];
  EXPECT_TRUE(lines[3].ends_with(": it is of another kind than version 1 of uprobe")) << lines[3];
  EXPECT_TRUE(lines[4].ends_with(": it does not have 24 bytes")) << lines[4];
  EXPECT_TRUE(lines[5].ends_with(": its format is not in the file, or too long")) << lines[5];
  EXPECT_TRUE(lines[6].ends_with(": no note of stapsdt is about its place")) << "a place has one mark";
}

}  // namespace
}  // namespace uprobe::marker
