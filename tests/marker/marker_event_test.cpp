// SPDX-License-Identifier: MIT
// The places of a marker as definitions of one event.
#include "engine/marker/marker_event.h"

#include <gtest/gtest.h>

#include "engine/program/compile.h"
#include "engine/program/verify.h"
#include "engine/spec/bare.h"
#include "engine/spec/listing.h"
#include "engine/spec/parse.h"
#include "tests/marker/made_markers.h"

namespace uprobe::marker {
namespace {

Status find_nothing(const MarkerPlace&, spec::ProbeSpec&) { return ok(); }

spec::ProbeSpec parsed(const std::string& line) {
  auto spec = spec::starts_as_definition(line) ? spec::parse_definition(line, {.file_check = {}})
                                               : spec::parse_bare_place(line, {.file_check = {}});
  EXPECT_TRUE(spec) << line << ": " << spec.error().text;
  return spec ? spec.take() : spec::ProbeSpec{};
}

std::vector<MarkerEvent> events_of(const std::string& line, const MadeMarkers& made) {
  auto file = elf::ElfFile::parse("/made", made.bytes());
  EXPECT_TRUE(file);
  const auto shared = std::make_shared<const elf::ElfFile>(file.take());
  std::vector<MarkerEvent> events;
  add_matches(parsed(line), "/made", shared, read_notes(*shared), events);
  return events;
}

// The listings of all definitions, or the error; the notes follow.
std::vector<std::string> made_of(const std::string& line, const MadeMarkers& made) {
  std::vector<std::string> lines, notes;
  for (const MarkerEvent& event : events_of(line, made)) {
    const auto specs = specs_of(parsed(line), event, find_nothing, notes);
    if (!specs) {
      lines.push_back(std::to_string(specs.error().column) + " " + specs.error().text);
      continue;
    }
    for (const spec::ProbeSpec& spec : *specs) {
      lines.push_back(spec::listing(spec));
      const auto program = program::compile(spec);
      EXPECT_TRUE(program && program::verify(*program)) << lines.back();
    }
  }
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

using Lines = std::vector<std::string>;

MadeMarkers two_places() {
  MadeMarkers made;
  made.add({.semaphore = MadeMarkers::kData, .arguments = "-4@%edi 8@%rsi"});
  made.add({.place = MadeMarkers::kCode + 16, .semaphore = MadeMarkers::kData, .arguments = "-8@%rax 8@8(%rsp)"});
  made.add({.place = MadeMarkers::kCode + 32, .name = "other-one"});
  return made;
}

TEST(MarkerEvent, TheDefinitionSaysWhichAndWhat) {
  const spec::ProbeSpec spec = parsed("p:g/e /bin/x:sdt:group:na* fd=$arg1");
  EXPECT_EQ(spec.place.path, "/bin/x");
  EXPECT_EQ(spec.place.provider, "group");
  EXPECT_EQ(spec.place.marker, "na*");
  ASSERT_EQ(spec.written.size(), 1u);
  EXPECT_EQ(spec.written[0].text, "fd=$arg1");
  EXPECT_EQ(spec.written[0].column, 27);
}

TEST(MarkerEvent, NoMarkers) {
  for (const char* line : {"p /bin/x:sdt:a:b%return", "r /bin/x:sdt:a:b", "p sdt:a:b"})
    EXPECT_FALSE(spec::parse_definition(line, {.file_check = {}})) << line;
  for (const char* line : {"p /bin/x:sdt:main", "p sdt:main", "p /bin/x:a::sdt::b"}) {
    const auto spec = spec::parse_definition(line, {.file_check = {}});
    EXPECT_TRUE(spec && spec->place.marker.empty()) << line;
  }
}

TEST(MarkerEvent, AllPlacesAreOneEvent) {
  EXPECT_EQ(made_of("/made:sdt:group:name", two_places()),
            (Lines{"p:group/name /made:0x0000000000001000(0x2000) arg1=$arg1:s64 arg2=%si:u64",
                   "p:group/name /made:0x0000000000001010(0x2000) arg1=%ax:s64 arg2=+8(%sp):u64"}));
  EXPECT_EQ(made_of("/made:sdt:*:other*", two_places()), (Lines{"p:group/other_one /made:0x0000000000001020"}));
  EXPECT_EQ(events_of("/made:sdt:*:*", two_places()).size(), 2u);
  EXPECT_EQ(made_of("p:mine /made:sdt:group:name $arg2:string", two_places())[1],
            "p:uprobes/mine /made:0x0000000000001010(0x2000) arg2=+0(+8(%sp)):string");
  EXPECT_EQ(made_of("p:my/mine /made:sdt:group:name", two_places()).size(), 2u);
}

TEST(MarkerEvent, ErrorsHaveTheirColumn) {
  EXPECT_EQ(made_of("/made:sdt:group:name fd=$arg1 x=$arg3", two_places()),
            (Lines{"30 the marker has 2 arguments (at /made:0x1000)"}));
  EXPECT_EQ(made_of("/made:sdt:group:name $arg1 arg1=$arg2", two_places()),
            (Lines{"27 the field 'arg1' is there already (at /made:0x1000)"}));
  EXPECT_EQ(made_of("/made:sdt:group:other-one $arg1", two_places()), (Lines{"26 the marker has no arguments"}));
}

TEST(MarkerEvent, WhatCannotBeRecordedIsLeftOutUnlessItIsWanted) {
  MadeMarkers made;
  made.add({.arguments = "8f@%xmm1 8@%fs:0 4@%edx 8@%rcx"});
  made.add({.place = MadeMarkers::kCode + 1, .arguments = "8@%rax 8@%rax 4@%eax"});
  EXPECT_EQ(
      made_of("/made:sdt:group:name", made),
      (Lines{
          "p:group/name /made:0x0000000000001000 arg3=%dx:u32", "p:group/name /made:0x0000000000001001 arg3=%ax:u32",
          "group/name is recorded without its argument 1: $arg1 is f64 at one place of the marker and u64 at another",
          "group/name is recorded without its argument 2: $arg2 cannot be fetched: it is in a segment of the "
          "thread (at /made:0x1000)",
          "group/name is recorded without its argument 4: the marker has 3 arguments (at /made:0x1001)"}));
  EXPECT_EQ(made_of("/made:sdt:group:name $arg1", made),
            (Lines{"21 $arg1 is f64 at one place of the marker and u64 at another"}));
}

}  // namespace
}  // namespace uprobe::marker
