// SPDX-License-Identifier: MIT
// /proc/PID/maps as data, and the search for address space near code.
#include <gtest/gtest.h>

#include <random>

#include "engine/target/maps.h"

namespace uprobe::target {
namespace {

constexpr std::uint64_t kPage = 4096, kReach = 1ull << 31;

TEST(MappingBeginningAt, TakesTheFirstTheLastAndNoPart) {
  constexpr const char* kText =
      "00400000-00452000 r-xp 00001000 08:02 17 /first\n"
      "7f0000000000-7f0000001000 r--p 00000000 00:01 5 /middle 00500000-\n"
      "7f0000002000-7f0000003000 r--p 00000000 00:01 6 /last";
  EXPECT_EQ(mapping_beginning_at(kText, Addr{0x400000})->path, "/first");
  EXPECT_EQ(mapping_beginning_at(kText, Addr{0x7f0000000000})->inode, 5U);
  EXPECT_EQ(mapping_beginning_at(kText, Addr{0x7f0000002000})->path, "/last");
  for (const std::uint64_t none : {0x401000U, 0x500000U, 0x452000U, 0U})
    EXPECT_FALSE(mapping_beginning_at(kText, Addr{none})) << none;
  EXPECT_FALSE(mapping_beginning_at("", Addr{0}));
}

TEST(ParseMaps, EveryKindOfLine) {
  const auto maps = parse_maps(
      "00400000-00452000 r-xp 00001000 08:02 173521                             /usr/bin/a b\n"
      "7f0000000000-7f0000001000 rw-s 00000000 00:01 5 /memfd:x (deleted)\n"
      "7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n"
      "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]");
  ASSERT_EQ(maps.size(), 5U);
  EXPECT_EQ(maps[0].begin.value, 0x400000U);
  EXPECT_EQ(maps[0].end.value, 0x452000U);
  EXPECT_TRUE(maps[0].readable && maps[0].executable && !maps[0].writable && !maps[0].shared);
  EXPECT_EQ(maps[0].offset, 0x1000U);
  EXPECT_EQ(maps[0].inode, 173521U);
  EXPECT_EQ(maps[0].path, "/usr/bin/a b");
  EXPECT_TRUE(maps[0].is_file());
  EXPECT_TRUE(maps[1].shared && maps[1].writable);
  EXPECT_EQ(maps[1].path, "/memfd:x (deleted)");
  EXPECT_EQ(maps[2].path, "");
  EXPECT_FALSE(maps[2].readable || maps[2].is_file());
  EXPECT_EQ(maps[3].path, "[stack]");
  EXPECT_EQ(maps[4].begin.value, 0xffffffffff600000U);
}

TEST(ParseMaps, LinesThatAreNotUnderstoodAreLeftOut) {
  for (const char* text :
       {"", "\n\n", "x", "400000-", "400000-500000", "400000-500000 ", "400000-500000 r", "400000-500000 r-xp",
        "400000-500000 r-xp ", "400000-500000 r-xp 0", "400000-500000 r-xp 0 08", "400000-500000 r-xp 0 08:01",
        "400000-500000 r-xp 0 08:01 ", "11111111111111111-500000 r-xp 0 08:01 5 /x", "-500000 r-xp 0 08:01 5 /x"})
    EXPECT_TRUE(parse_maps(text).empty()) << text;
  EXPECT_EQ(parse_maps("bad\n400000-500000 r-xp 0 08:01 5 /x\nbad\n").size(), 1U);
}

TEST(ParseMaps, RandomTextIsParsedWithoutHarm) {
  std::mt19937 random(1);
  const std::string letters = "0123456789abcdef-: rwxps/\n[]";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto n = random() % 120; n != 0; --n) text += letters[random() % letters.size()];
    for (const Mapping& m : parse_maps(text)) EXPECT_EQ(m.path.find('\n'), std::string::npos);
  }
}

Mapping mapping(std::uint64_t begin, std::uint64_t end, const std::string& path) {
  Mapping m;
  m.begin = Addr{begin}, m.end = Addr{end}, m.path = path;
  return m;
}

struct Space {
  std::vector<Mapping> maps;
  std::size_t code = 0;  // the mapping that needs a neighbour
};

Space random_space(std::mt19937_64& random) {
  Space space;
  std::uint64_t at = 0x10000 + random() % 0x1000 * kPage;
  const std::size_t count = 3 + random() % 40, heap = random() % count, stack = random() % count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t gaps[] = {0, kPage, 3 * kPage, 1u << 20, 1u << 30, 3ull << 30, 1ull << 40};
    at += gaps[random() % std::size(gaps)];
    const std::uint64_t size = (1 + random() % 300) * kPage;
    if (at + size >= 0x7ffffffff000) break;
    space.maps.push_back(mapping(at, at + size, i == stack ? "[stack]" : i == heap ? "[heap]" : "/lib"));
    at += size;
  }
  space.code = random() % space.maps.size();
  return space;
}

void check_place(const Space& space, Addr place, std::uint64_t size) {
  const Mapping& code = space.maps[space.code];
  const std::uint64_t low = std::min(place.value, code.begin.value),
                      high = std::max(place.value + size, code.end.value);
  EXPECT_LT(high - low, kReach);
  EXPECT_EQ(place.value % kPage, 0U);
  EXPECT_GE(place.value, 0x10000U);
  EXPECT_LE(place.value + size, 0x7ffffffff000U);
  for (std::size_t i = 0; i < space.maps.size(); ++i) {
    const Mapping& m = space.maps[i];
    EXPECT_TRUE(place.value + size <= m.begin.value || place >= m.end) << std::hex << place.value;
    EXPECT_FALSE(m.path == "[heap]" && place >= m.end && place - m.end < (1u << 30)) << "the break grows there";
    const bool is_next_below = place < m.begin && (i == 0 || place >= space.maps[i - 1].end);
    EXPECT_FALSE(m.path == "[stack]" && is_next_below) << "the stack grows there";
  }
}

TEST(FreePlaces, AreFreeAndWithinReachAndLeaveRoom) {
  std::mt19937_64 random(7);
  std::size_t found = 0;
  for (int round = 0; round < 5000; ++round) {
    const Space space = random_space(random);
    const std::uint64_t bytes = 1 + random() % (1u << 20);
    const Mapping& code = space.maps[space.code];
    for (const Addr place : free_places_near(space.maps, code.begin, code.end, bytes)) {
      check_place(space, place, (bytes + kPage - 1) / kPage * kPage);
      ++found;
    }
  }
  EXPECT_GT(found, 5000U);
}

TEST(FreePlaces, NearestBelowComesFirst) {
  const std::vector<Mapping> maps = {mapping(0x100000, 0x101000, "/a"), mapping(0x40000000, 0x40001000, "/b"),
                                     mapping(0x50000000, 0x50010000, "/code"),
                                     mapping(0x7ff000000000, 0x7ff000001000, "/c")};
  const auto places = free_places_near(maps, Addr{0x50000000}, Addr{0x50010000}, 0x10000);
  ASSERT_GE(places.size(), 2U);
  EXPECT_EQ(places[0].value, 0x50000000U - 0x10000 - kPage);
  EXPECT_LT(places[1], places[0]);
}

TEST(FreePlaces, NoRoomAfterAHeapAtTheEndOfAllNumbers) {
  const std::vector<Mapping> maps = {mapping(0x10000, 0x400000, "/low"),
                                     mapping(0x400000, 0xfffffffffffff000, "[heap]"),
                                     mapping(0x500000, 0x7fffffffe000, "/code")};
  EXPECT_TRUE(free_places_near(maps, Addr{0x500000}, Addr{0x501000}, 0x10000).empty());
}

TEST(FreePlaces, NoneInACrowd) {
  const std::vector<Mapping> maps = {mapping(0x10000, 0x700000000000, "/all"),
                                     mapping(0x700000000000, 0x7fffffffe000, "/rest")};
  EXPECT_TRUE(free_places_near(maps, Addr{0x400000000000}, Addr{0x400000001000}, 0x1000).empty());
  EXPECT_TRUE(free_places_near({}, Addr{0x1000}, Addr{0x2000}, 0x1000).empty());
}

}  // namespace
}  // namespace uprobe::target
