// SPDX-License-Identifier: MIT
// The session area: tables, rebased texts, the double mapping, limits.
#include "engine/trace/area.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using shared::Insn;
using shared::Op;
using trace::AreaSpec;
using trace::MapStep;

Insn insn(Op op, std::uint32_t offset = 0, std::uint64_t immediate = 0, std::uint16_t count = 0) {
  return {.op = op, .size = 0, .count = count, .offset = offset, .immediate = immediate};
}

std::vector<program::EventProgram> two_events() {
  program::EventProgram first = make_program(20), second = make_program(32);
  first.text = std::string("ab\0", 3);
  first.insns = {insn(Op::begin), insn(Op::store_text, 16, 0, 3), insn(Op::end)};
  second.text = std::string("x\0yz\0", 5);
  second.insns = {insn(Op::store_text, 16, 2, 3), insn(Op::store_comm, 20), insn(Op::store_comm, 28), insn(Op::end)};
  return {first, second};
}

template <class T>
const T* table(Area& area, std::uint32_t offset) {
  return reinterpret_cast<const T*>(static_cast<const std::uint8_t*>(area.base()) + offset);
}

TEST(Area, DescribesItselfInItsHeader) {
  Area area = make_area(3, 16384, two_events());
  const shared::AreaHeader& header = area.header();
  EXPECT_EQ(header.magic, shared::kAreaMagic);
  EXPECT_EQ(header.abi_version, shared::kAbiVersion);
  EXPECT_EQ(header.header_bytes, sizeof(shared::AreaHeader));
  EXPECT_EQ(header.ring_bytes, 16384u);
  EXPECT_EQ(header.ring_count, 3u);
  EXPECT_EQ(header.event_count, 2u);
  EXPECT_EQ(header.insn_count, 7u);
  EXPECT_EQ(header.text_bytes, 8u);
  EXPECT_EQ(header.state, static_cast<std::uint32_t>(shared::SessionState::off));
  EXPECT_EQ(header.data_offset % 4096, 0u);
  EXPECT_EQ(header.ring_offset % alignof(shared::Ring), 0u);
  EXPECT_EQ(header.live_offset % 4096, 0u);
  EXPECT_EQ(header.counts_offset % alignof(shared::EventCounts), 0u);
  EXPECT_EQ(header.event_offset % alignof(shared::Event), 0u);
  EXPECT_GE(header.data_offset, header.ring_offset + 3 * sizeof(shared::Ring));
  EXPECT_EQ(&area.ring(0), table<shared::Ring>(area, header.ring_offset));
  EXPECT_EQ(&area.live(0).header(), table<shared::LiveHeader>(area, static_cast<std::uint32_t>(header.live_offset)));
  EXPECT_EQ(&area.live(0).counts(1), table<shared::EventCounts>(area, header.counts_offset) + 1);
  EXPECT_EQ(&area.event(1), table<shared::Event>(area, header.event_offset) + 1);
}

std::uint64_t bytes_in_memory(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(Area, RingsTakeNoMemoryBeforeTheyAreUsed) {
  constexpr std::uint64_t kRing = 1 << 20, kPage = 4096;
  Area area = make_area(2, kRing, two_events());
  trace::LiveArea& live = area.live(0);
  const std::uint64_t fixed = area.header().data_offset - area.header().live_offset;
  EXPECT_EQ(bytes_in_memory(live.fd()), fixed);
  area.data(1)[0] = 1;
  EXPECT_EQ(bytes_in_memory(live.fd()), fixed + kPage);
  EXPECT_EQ(live.ring_bytes(), 2 * kRing);
  EXPECT_FALSE(live.is_allocated());
  ASSERT_TRUE(live.allocate());
  EXPECT_TRUE(live.is_allocated());
  EXPECT_EQ(bytes_in_memory(live.fd()), fixed + 2 * kRing);
  EXPECT_EQ(area.data(1)[0], 1);
}

TEST(Area, HoldsProgramsWithTextsInOnePool) {
  Area area = make_area(1, 8192, two_events());
  const auto* insns = table<Insn>(area, area.header().insn_offset);
  EXPECT_EQ(area.event(0).first_insn, 0u);
  EXPECT_EQ(area.event(0).insn_count, 3u);
  EXPECT_EQ(area.event(0).type, 0u);
  EXPECT_EQ(area.event(1).first_insn, 3u);
  EXPECT_EQ(area.event(1).insn_count, 4u);
  EXPECT_EQ(area.event(1).fixed_bytes, 32u);
  EXPECT_EQ(area.event(1).type, 1u);
  EXPECT_EQ(insns[1].immediate, 0u);
  EXPECT_EQ(insns[3].immediate, 3u + 2u);
  const char* text = table<char>(area, area.header().text_offset);
  EXPECT_STREQ(text + insns[1].immediate, "ab");
  EXPECT_STREQ(text + insns[3].immediate, "yz");
}

TEST(Area, TakesFurtherEventsWhileItRecords) {
  const auto programs = two_events();
  trace::AreaSpec spec{.events = {&programs[0]}, .ring_bytes = 8192, .more_events = 1, .more_insns = 4, .more_text = 5};
  Area area = Area::create_private(spec).take();
  area.set_state(shared::SessionState::recording);
  ASSERT_TRUE(area.add_event(programs[1]));
  EXPECT_EQ(area.header().event_count, 2u);
  EXPECT_EQ(area.header().insn_count, 7u);
  EXPECT_EQ(area.header().text_bytes, 8u);
  EXPECT_EQ(area.event(1).first_insn, 3u);
  EXPECT_EQ(area.event(1).type, 1u);
  EXPECT_EQ(table<Insn>(area, area.header().insn_offset)[3].immediate, 3u + 2u);
  EXPECT_EQ(area.event(1).state, static_cast<std::uint32_t>(shared::SessionState::recording));
  EXPECT_EQ(area.comm_locators(1).size(), 2u);
  EXPECT_FALSE(area.add_event(programs[1]));
  EXPECT_EQ(area.event_count(), 2u);
}

TEST(Area, SwitchesEventsAndKeepsThemOff) {
  Area area = make_area(1, 8192, two_events());
  const auto off = static_cast<std::uint32_t>(shared::SessionState::off);
  EXPECT_EQ(area.event(0).state, off);
  area.set_event(0, false);
  area.set_state(shared::SessionState::recording);
  EXPECT_EQ(area.event(0).state, off);
  EXPECT_NE(area.event(1).state, off);
  area.set_event(0, true);
  EXPECT_NE(area.event(0).state, off);
  area.set_state(shared::SessionState::off);
  EXPECT_EQ(area.event(0).state, off);
  EXPECT_EQ(area.event(1).state, off);
}

TEST(Area, RemembersWhatTheReaderNeeds) {
  Area area = make_area(1, 8192, two_events());
  std::memset(area.base(), 0xff, area.header().data_offset);
  EXPECT_EQ(area.event_count(), 2u);
  EXPECT_EQ(area.ring_count(), 1u);
  EXPECT_EQ(area.ring_bytes(), 8192u);
  EXPECT_EQ(area.fixed_bytes(1), 32u);
  EXPECT_TRUE(area.comm_locators(0).empty());
  ASSERT_EQ(area.comm_locators(1).size(), 2u);
  EXPECT_EQ(area.comm_locators(1)[1], 28u);
}

TEST(Area, MapsEachRingTwiceInARow) {
  Area area = make_area(3, 8192, two_events());
  for (std::uint32_t ring = 0; ring < 3; ++ring) {
    std::uint8_t* data = area.data(ring);
    EXPECT_EQ(data[0], 0);
    data[5] = static_cast<std::uint8_t>(ring + 1);
    data[2 * 8192 - 1] = 77;
    EXPECT_EQ(data[8192 + 5], ring + 1);
    EXPECT_EQ(data[8191], 77);
  }
  EXPECT_EQ(area.data(0)[5], 1);
}

// A target that executes the steps gets the same layout as the tool's own mapping.
TEST(Area, MapStepsRebuildTheArea) {
  Area area = make_area(2, 8192, two_events());
  void* base = ::mmap(nullptr, area.span_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(base, MAP_FAILED);
  auto* bytes = static_cast<std::uint8_t*>(base);
  for (const MapStep& step : area.map_steps()) {
    ASSERT_LE(step.offset + step.length, area.span_bytes());
    const int protection = step.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    ASSERT_NE(::mmap(bytes + step.offset, step.length, protection, MAP_SHARED | MAP_FIXED, step.fd,
                     static_cast<off_t>(step.file_offset)),
              MAP_FAILED);
  }
  area.data(1)[9] = 42;
  const std::uint64_t ring1 = area.header().data_offset + 2 * 8192;
  EXPECT_EQ(bytes[ring1 + 9], 42);
  EXPECT_EQ(bytes[ring1 + 8192 + 9], 42);
  EXPECT_EQ(std::memcmp(bytes, area.base(), area.header().data_offset), 0);
  ::munmap(base, area.span_bytes());
}

TEST(Area, CannotBeShrunkOrSealedByATarget) {
  Area area = make_area(1, 8192, two_events());
  for (const int fd : {area.fd(), area.live(0).fd()}) {
    EXPECT_NE(::ftruncate(fd, 0), 0);
    EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
    EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
}

// By no descriptor of the plan, inherited or opened again, can a target change it. A target sees the tool's writes.
TEST(Area, ThePlanIsWrittenByTheToolAlone) {
  Area area = make_area(1, 8192, two_events());
  ASSERT_TRUE(area.is_sealed());
  const std::string name = "/proc/self/fd/" + std::to_string(area.fd());
  const Fd again(::open(name.c_str(), O_RDWR));
  for (const int fd : {area.fd(), again.get()}) {
    const int word = 1;
    EXPECT_LT(::pwrite(fd, &word, sizeof word, 0), 0);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    void* const at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_NE(::mprotect(at, 4096, PROT_READ | PROT_WRITE), 0);
    const Fd memory(::open("/proc/self/mem", O_RDWR));
    EXPECT_LT(::pwrite(memory.get(), &word, sizeof word, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(at))), 0);
    area.header().tool_heartbeat = 77;
    EXPECT_EQ(static_cast<const shared::AreaHeader*>(at)->tool_heartbeat, 77u);
    ::munmap(at, 4096);
  }
}

TEST(Area, HasFurtherLivePartsOfTheSameLayout) {
  Area area = make_area(2, 8192, two_events());
  area.live(0).counts(1).lost_full = 3;
  const auto part = area.add_live();
  ASSERT_TRUE(part);
  EXPECT_EQ(*part, 1u);
  EXPECT_NE(area.live(1).inode(), area.live(0).inode());
  area.live(1).counts(1).lost_full = 4;
  area.live(1).data(1)[5] = 9;
  EXPECT_EQ(area.live(1).data(1)[8192 + 5], 9);
  EXPECT_EQ(area.live(0).data(1)[5], 0);
  EXPECT_EQ(area.counts(1).lost_full, 7u);
  const auto steps = area.map_steps(1);
  EXPECT_EQ(steps.front().fd, area.fd());
  EXPECT_EQ(steps[1].fd, area.live(1).fd());
  EXPECT_EQ(steps[1].offset, area.header().live_offset);
  while (area.live_count() < Area::kMostParts) ASSERT_TRUE(area.add_live());
  EXPECT_FALSE(area.add_live());
}

TEST(Area, StateIsTheToolsToSet) {
  Area area = make_area(1, 8192, two_events());
  area.set_state(shared::SessionState::recording);
  EXPECT_EQ(area.header().state, 1u);
  area.set_state(shared::SessionState::off);
  EXPECT_EQ(area.header().state, 0u);
}

TEST(Area, RefusesWhatIsOutOfRange) {
  const program::EventProgram fine = make_program(16), small = make_program(15), big = make_program(4073);
  const auto code = [](const AreaSpec& spec) {
    const Result<Area> area = Area::create_private(spec);
    return area ? Code::usage : area.error().code;
  };
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 4096, .ring_count = 1}), Code::limit);
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 12288, .ring_count = 1}), Code::limit);
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 2ull << 30, .ring_count = 1}), Code::limit);
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 0, .ring_count = 1}), Code::limit);
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 8192, .ring_count = 0}), Code::limit);
  EXPECT_EQ(code({.events = {&fine}, .ring_bytes = 8192, .ring_count = 257}), Code::limit);
  EXPECT_EQ(code({.events = {&small}, .ring_bytes = 8192, .ring_count = 1}), Code::limit);
  EXPECT_EQ(code({.events = {&big}, .ring_bytes = 8192, .ring_count = 1}), Code::limit);
  EXPECT_EQ(
      code({.events = std::vector<const program::EventProgram*>(65536, &fine), .ring_bytes = 8192, .ring_count = 1}),
      Code::limit);
}

TEST(Area, MovesWithItsMapping) {
  Area area = make_area(1, 8192, two_events());
  void* base = area.base();
  Area other = std::move(area);
  EXPECT_EQ(other.base(), base);
  other = make_area(2, 8192, two_events());
  EXPECT_EQ(other.ring_count(), 2u);
}

}  // namespace
}  // namespace uprobe::test
