// SPDX-License-Identifier: MIT
// Notes of markers: what they say, and what is refused of them.
#include <gtest/gtest.h>

#include "engine/marker/listing.h"
#include "engine/marker/notes.h"
#include "tests/marker/made_markers.h"

namespace uprobe::marker {
namespace {

elf::ElfFile file_of(const MadeMarkers& made) {
  auto file = elf::ElfFile::parse("/made", made.bytes());
  EXPECT_TRUE(file) << file.error().text;
  return file.take();
}

Notes notes_of(const MadeMarkers& made) { return read_notes(file_of(made)); }

// The one problem of a file whose second note is good.
std::string problem_of(const MadeMarkers::Note& bad) {
  MadeMarkers made;
  made.add(bad);
  made.add({.name = "good"});
  const Notes notes = notes_of(made);
  EXPECT_TRUE(notes.markers.size() == 1 && notes.markers[0].name == "good");
  return notes.problems.size() == 1 ? notes.problems[0] : "";
}

TEST(MarkerNotes, SayWhereAndWhat) {
  MadeMarkers made;
  made.add({.place = MadeMarkers::kCode + 16, .semaphore = MadeMarkers::kData + 8, .arguments = "-4@%edi 8@(%rsp)"});
  const Notes notes = notes_of(made);
  ASSERT_EQ(notes.markers.size(), 1u);
  EXPECT_TRUE(notes.problems.empty());
  const Marker& marker = notes.markers[0];
  EXPECT_EQ(marker.provider + ":" + marker.name, "group:name");
  EXPECT_EQ(marker.arguments, "-4@%edi 8@(%rsp)");
  EXPECT_EQ(marker.address, MadeMarkers::kCode + 16);
  EXPECT_EQ(marker.offset, 0x1010u);
  EXPECT_EQ(marker.semaphore, 0x2008u);
}

TEST(MarkerNotes, FollowAPrelinker) {
  MadeMarkers made;
  made.add({.place = 0x1010, .base = MadeMarkers::kBase - MadeMarkers::kText, .semaphore = 0x202010});
  const Notes notes = notes_of(made);
  ASSERT_EQ(notes.markers.size(), 1u);
  EXPECT_EQ(notes.markers[0].address, MadeMarkers::kCode + 16);
  EXPECT_EQ(notes.markers[0].semaphore, 0x2010u);
}

TEST(MarkerNotes, BadOnesAreLeftOut) {
  EXPECT_EQ(problem_of({.place = MadeMarkers::kData}), "note at 0x0: its place is not in code of the file");
  EXPECT_EQ(problem_of({.place = ~0ULL}), "note at 0x0: its place is not in code of the file");
  EXPECT_EQ(problem_of({.semaphore = MadeMarkers::kCode}),
            "note at 0x0: its semaphore is not in writable data of the file");
  // the last byte of the file's data, and what only memory has
  EXPECT_EQ(problem_of({.semaphore = 0x602fff}), "note at 0x0: its semaphore is not in writable data of the file");
  EXPECT_EQ(problem_of({.semaphore = 0x603000}), "note at 0x0: its semaphore is not in writable data of the file");
  EXPECT_EQ(problem_of({.semaphore = MadeMarkers::kData + 1}), "note at 0x0: its semaphore is at an odd address");
  EXPECT_EQ(problem_of({.type = 2}), "note at 0x0: it is of another kind than version 3 of stapsdt");
  EXPECT_EQ(problem_of({.owner = {"GNU\0", 4}}), "note at 0x0: it is of another kind than version 3 of stapsdt");
  EXPECT_EQ(problem_of({.name = "a b"}), "note at 0x0: its name has characters that no name has");
  EXPECT_EQ(problem_of({.provider = "\x1b[2J"}), "note at 0x0: its name has characters that no name has");
  EXPECT_EQ(problem_of({.arguments = "4@\t%eax"}), "note at 0x0: its arguments have characters that no operand has");
  EXPECT_EQ(problem_of({.name = std::string(kLongestName + 1, 'a')}),
            "note at 0x0: its texts are too long, or do not end");
}

TEST(MarkerNotes, ATextHasAnEnd) {
  MadeMarkers made;
  made.add_raw({"stapsdt\0", 8}, std::string(24, '\0') + "group", 3, 29);
  made.add({.name = "good"});
  const Notes notes = notes_of(made);
  EXPECT_EQ(notes.markers.size(), 1u);
  ASSERT_EQ(notes.problems.size(), 1u);
  EXPECT_EQ(notes.problems[0], "note at 0x0: its texts are too long, or do not end");
}

TEST(MarkerNotes, ANoteThatLeadsOutOfItsSectionIsTheLast) {
  MadeMarkers made;
  made.add({.name = "good"});
  made.add_raw({"stapsdt\0", 8}, std::string(24, '\0'), 3, 0xfffffff0);
  made.add({.name = "lost"});
  const Notes notes = notes_of(made);
  EXPECT_EQ(notes.markers.size(), 1u);
  ASSERT_EQ(notes.problems.size(), 1u);
  EXPECT_NE(notes.problems[0].find("it does not end in its section"), std::string::npos);
}

TEST(MarkerNotes, AreListed) {
  MadeMarkers made;
  made.add({.name = "two", .arguments = "-4@%edi 8@%fs:0"});
  made.add(
      {.place = MadeMarkers::kCode + 1, .semaphore = MadeMarkers::kData, .name = "two", .arguments = "-8@%rdi 8@%rsi"});
  made.add({.place = MadeMarkers::kData, .name = "bad"});
  const elf::ElfFile file = file_of(made);
  EXPECT_EQ(list_markers("/made", file, "*"),
            (std::vector<std::string>{"p /made:sdt:group:two # 2 places: s64 -, with a semaphore",
                                      "# note at 0x90: its place is not in code of the file"}));
  EXPECT_EQ(list_markers("/made", file, "group:t*").size(), 2u);
  EXPECT_EQ(list_markers("/made", file, "two").size(), 1u);
}

}  // namespace
}  // namespace uprobe::marker
