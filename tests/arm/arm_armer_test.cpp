// SPDX-License-Identifier: MIT
// The effects of arming on a process, byte by byte, in one that exists only in memory.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "engine/arm/armer.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Armer;
using control::Block;
using control::ProbeSet;

constexpr Addr kBlock{0x10000000}, kBase{0x100000000000}, kFar{0x300000000000};
constexpr std::uint64_t kReach = 1ull << 31;

class ArmerTest : public testing::Test {
 protected:
  void SetUp() override {
    subject_ = std::make_shared<const elf::ElfFile>(elf::ElfFile::open(SUBJECT).take());
    other_ = std::make_shared<const elf::ElfFile>(elf::ElfFile::open(OTHER).take());
    target_.map_anonymous(kBlock, Block::bytes_for({64}));
    block_.emplace(Block::create(target_, kBlock, {64}).take());
  }

  static plan::Site site_of(const std::shared_ptr<const elf::ElfFile>& file, const std::string& function) {
    const auto found = file->find_functions(function);
    EXPECT_EQ(found.size(), 1U) << function;
    return plan::site_at(file, *file->offset_of_address(found.at(0).address)).take();
  }
  void probe(const std::string& function, std::uint16_t event) {
    probes_.add(site_of(function[0] == 's' ? subject_ : other_, function), {.event = event});
  }
  Addr address_of(const Mapping& m, const std::string& function) {
    return m.begin + (site_of(function[0] == 's' ? subject_ : other_, function).offset - m.offset);
  }
  std::uint8_t byte_at(Addr at) { return target_.get<std::uint8_t>(at); }
  void arm() {
    const Status armed = armer_.arm(target_, *block_);
    ASSERT_TRUE(armed) << armed.error().text;
  }
  const shared::Point& point_at(Addr address) {
    const auto found = block_->find(address);
    EXPECT_TRUE(found);
    return block_->points()[found.value_or(0)];
  }
  std::vector<std::uint16_t> events_at(Addr address) {
    std::vector<std::uint16_t> events;
    const auto head = target_.get<shared::ProcessBlock>(kBlock);
    for (std::uint32_t next = point_at(address).consumer; next != 0 && events.size() < 10'000;) {
      const auto consumer =
          target_.get<shared::Consumer>(kBlock + head.consumer_offset + sizeof(shared::Consumer) * (next - 1ull));
      events.push_back(consumer.event);
      next = consumer.next;
    }
    return events;
  }

  FakeTarget target_;
  std::shared_ptr<const elf::ElfFile> subject_, other_;
  ProbeSet probes_;
  std::optional<Block> block_;
  Armer armer_{probes_};
};

TEST_F(ArmerTest, CopyThenTablesThenHashThenBreakpoint) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr address = address_of(code, "subject_add");
  target_.writes.clear();
  arm();
  const auto kind = [&](const FakeTarget::Write& write) {
    const std::uint64_t place = write.at.value - kBlock.value;
    const shared::ProcessBlock& head = block_->head();
    if (write.at == address) return 'b';
    if (place >= head.block_bytes) return 'c';
    if (place == 0) return 'H';
    if (place == offsetof(shared::ProcessBlock, stamp)) return 's';
    return place >= head.hash_offset       ? 'h'
           : place >= head.consumer_offset ? 'o'
           : place >= head.undo_offset     ? 'u'
                                           : 'p';
  };
  std::string order;
  for (const auto& write : target_.writes) order += kind(write);
  EXPECT_EQ(order, "scoupHhb");
  EXPECT_EQ(target_.writes.back().bytes, std::vector<std::uint8_t>{0xcc});
  EXPECT_EQ(target_.calls, std::vector<long>{SYS_mmap});
}

TEST_F(ArmerTest, TheCopyIsTheDisplacedInstructionNearTheCode) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  arm();
  const Addr address = address_of(code, "subject_add");
  const shared::Point point = point_at(address);
  const auto expected = arch::displace(site_of(subject_, "subject_add").insn, address, Addr{point.copy});
  ASSERT_TRUE(expected);
  std::vector<std::uint8_t> copy(point.copy_bytes);
  ASSERT_TRUE(target_.read(Addr{point.copy}, copy.data(), copy.size()));
  EXPECT_EQ(copy, *expected);
  EXPECT_LT(std::max(point.copy, address.value) - std::min(point.copy, address.value), kReach);
  EXPECT_EQ(point.file_bias, address.value - site_of(subject_, "subject_add").offset);
  const auto maps = target_.maps();
  for (const Mapping& m : *maps)
    EXPECT_TRUE(point.copy < m.begin.value || point.copy >= m.end.value || (m.executable && m.readable && !m.writable));
}

TEST_F(ArmerTest, ArmingAgainChangesNothing) {
  probe("subject_add", 0);
  target_.map_code(*subject_, kBase);
  arm();
  target_.writes.clear(), target_.calls.clear();
  arm();
  EXPECT_TRUE(target_.writes.empty());
  EXPECT_TRUE(target_.calls.empty());
}

TEST_F(ArmerTest, SeveralProbesAtOneAddressNewestFirst) {
  for (std::uint16_t event = 0; event < 5; ++event) probe("subject_add", event);
  const Mapping code = target_.map_code(*subject_, kBase);
  arm();
  EXPECT_EQ(block_->points().size(), 1U);
  EXPECT_EQ(events_at(address_of(code, "subject_add")), (std::vector<std::uint16_t>{4, 3, 2, 1, 0}));
}

// A probe at only some of a function's returns would give a useless count.
TEST_F(ArmerTest, AllExitsOfAFunctionOrNone) {
  const control::PlannedConsumer first{.event = 0, .kind = shared::ConsumerKind::exit, .distance = 4, .pops = 8};
  control::PlannedConsumer second = first;
  second.event = 1;
  probes_.add(site_of(subject_, "subject_add"), first);
  probes_.add(site_of(subject_, "subject_twice"), first);
  probes_.add(site_of(subject_, "subject_add"), second);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr add = address_of(code, "subject_add"), twice = address_of(code, "subject_twice");
  const std::uint8_t other[] = {0x0f, 0x0b};
  ASSERT_TRUE(target_.write(twice, other, sizeof other));
  arm();
  EXPECT_EQ(byte_at(add), 0xcc);
  EXPECT_EQ(events_at(add), std::vector<std::uint16_t>{1}) << "whose other exits are there";
  EXPECT_EQ(byte_at(twice), 0x0f);
  EXPECT_TRUE(armer_.report().armed_events.has(1));
  EXPECT_EQ(armer_.report().armed_events.size(), 1U);
  EXPECT_EQ(armer_.report().refusals.count(0), 1U);
}

TEST_F(ArmerTest, AnExitWithoutConsumersIsLeftAlone) {
  const control::PlannedConsumer only{.event = 0, .kind = shared::ConsumerKind::exit, .distance = 4, .pops = 8};
  probes_.add(site_of(subject_, "subject_add"), only);
  probes_.add(site_of(subject_, "subject_twice"), only);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr add = address_of(code, "subject_add"), twice = address_of(code, "subject_twice");
  const std::uint8_t before = byte_at(add), other[] = {0x0f, 0x0b};
  ASSERT_TRUE(target_.write(twice, other, sizeof other));
  arm();
  EXPECT_EQ(byte_at(add), before);
  EXPECT_TRUE(block_->points().empty());
}

// More probes at one address than a block has places for consumers: refused, without a write after the table.
TEST_F(ArmerTest, TooManyProbesAtOneAddress) {
  for (std::uint16_t event = 0; event < 5000; ++event) probe("subject_add", event);
  const Mapping code = target_.map_code(*subject_, kBase);
  target_.writes.clear();
  static_cast<void>(armer_.arm(target_, *block_));
  EXPECT_NE(byte_at(address_of(code, "subject_add")), 0xcc);
  const shared::ProcessBlock& head = block_->head();
  const std::uint64_t end = head.consumer_offset + sizeof(shared::Consumer) * std::uint64_t{head.consumer_capacity};
  for (const auto& write : target_.writes) {
    const std::uint64_t place = write.at.value - kBlock.value;
    EXPECT_TRUE(place < head.consumer_offset || place >= end || place + write.bytes.size() <= end) << place;
  }
}

TEST_F(ArmerTest, TheSameFileUnderTwoMappings) {
  probe("subject_add", 0);
  const Mapping near = target_.map_code(*subject_, kBase), far = target_.map_code(*subject_, kFar);
  arm();
  for (const Mapping& code : {near, far}) {
    const Addr address = address_of(code, "subject_add");
    EXPECT_EQ(byte_at(address), 0xcc);
    const std::uint64_t copy = point_at(address).copy;
    EXPECT_LT(std::max(copy, address.value) - std::min(copy, address.value), kReach);
  }
  EXPECT_EQ(block_->head().island_count, 2U) << "one island cannot reach both";
}

TEST_F(ArmerTest, SharedAndWritableAndOtherMappingsAreLeftAlone) {
  probe("subject_add", 0);
  Mapping code = target_.map_code(*subject_, kBase);
  std::vector<std::uint8_t> bytes(code.end - code.begin);
  ASSERT_TRUE(target_.read(code.begin, bytes.data(), bytes.size()));
  target_.unmap(code.begin);
  const auto variant = [&](std::uint64_t distance, auto change) {
    Mapping m = code;
    m.begin = m.begin + distance, m.end = m.end + distance;
    change(m);
    target_.map(m, bytes);
  };
  variant(0x1000000, [](Mapping& m) { m.shared = true; });
  variant(0x2000000, [](Mapping& m) { m.writable = true; });
  variant(0x3000000, [](Mapping& m) { m.executable = false; });
  variant(0x4000000, [](Mapping& m) { m.path = "[anon]"; });
  variant(0x5000000, [](Mapping& m) { m.path = OTHER; });
  variant(0x6000000, [](Mapping& m) { m.path = "/nowhere (deleted)"; });
  target_.writes.clear();
  arm();
  for (const auto& write : target_.writes)  // there is an island for probes that are added later
    EXPECT_LT(write.at.value - kBlock.value, shared::kToolOwnedBytes);
  EXPECT_TRUE(armer_.report().armed_events.empty());
}

TEST_F(ArmerTest, ForeignBytesAreRefused) {
  probe("subject_add", 0);
  probe("subject_twice", 1);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr foreign = address_of(code, "subject_add"), good = address_of(code, "subject_twice");
  const std::uint8_t breakpoint = 0xcc;  // a debugger's
  ASSERT_TRUE(target_.write(foreign, &breakpoint, 1));
  arm();
  EXPECT_EQ(block_->find(foreign), std::nullopt);
  EXPECT_EQ(byte_at(good), 0xcc);
  EXPECT_EQ(armer_.report().refusals.count(0), 1U);
  EXPECT_EQ(armer_.report().refusals.count(1), 0U);
  EXPECT_TRUE(armer_.report().armed_events.has(1));
  EXPECT_EQ(armer_.report().armed_events.size(), 1U);
}

TEST_F(ArmerTest, AMappingThatEndsInTheMiddle) {
  probe("subject_sum", 0);
  Mapping code = target_.map_code(*subject_, kBase);
  const Addr address = address_of(code, "subject_sum");
  std::vector<std::uint8_t> bytes(address - code.begin + 1);
  ASSERT_TRUE(target_.read(code.begin, bytes.data(), bytes.size()));
  target_.unmap(code.begin);
  code.end = address + 1;  // the instruction's first byte is the last one there
  target_.map(code, bytes);
  const std::size_t length = site_of(subject_, "subject_sum").insn.size();
  arm();
  ASSERT_GT(length, 1U);
  EXPECT_EQ(block_->find(address), std::nullopt);
}

TEST_F(ArmerTest, ALibraryThatComesBackIsArmedAgain) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr address = address_of(code, "subject_add");
  arm();
  for (int round = 0; round < 3; ++round) {
    target_.unmap(code.begin);
    arm();
    target_.map_code(*subject_, kBase);
    ASSERT_NE(byte_at(address), 0xcc);
    arm();
    EXPECT_EQ(byte_at(address), 0xcc);
    EXPECT_EQ(block_->points().size(), 1U);
    EXPECT_EQ(events_at(address), std::vector<std::uint16_t>{0});
  }
}

// dlopen and dlclose for ever: the pages for copies must not run out.
TEST_F(ArmerTest, ALibraryThatComesBackManyTimes) {
  probe("subject_add", 0);
  probe("subject_twice", 1);
  const Mapping code = target_.map_code(*subject_, kBase);
  arm();
  const std::uint32_t islands = block_->head().island_count;
  const std::uint32_t used = block_->head().islands[0].used;
  for (int round = 0; round < 5000; ++round) {
    target_.unmap(code.begin);
    target_.map_code(*subject_, kBase);
    arm();
    ASSERT_EQ(byte_at(address_of(code, "subject_add")), 0xcc) << "round " << round;
    target_.writes.clear();
  }
  EXPECT_EQ(block_->head().island_count, islands);
  EXPECT_EQ(block_->head().islands[0].used, used) << "the copy that is there already does";
}

// The tool must not take an earlier mapping at an address for the present one.
TEST_F(ArmerTest, AnotherLibraryAtTheSameAddress) {
  probe("subject_add", 3);
  probe("other_first", 4);
  const Mapping first = target_.map_code(*subject_, kBase);
  const Addr address = address_of(first, "subject_add");
  arm();
  ASSERT_EQ(events_at(address), std::vector<std::uint16_t>{3});
  target_.unmap(first.begin);
  const Mapping at_zero = target_.map_code(*other_, Addr{0});
  const std::uint64_t within = address_of(at_zero, "other_first").value;
  target_.unmap(at_zero.begin);
  const Mapping second = target_.map_code(*other_, address - within);
  ASSERT_EQ(address_of(second, "other_first"), address);
  arm();
  ASSERT_EQ(byte_at(address), 0xcc);
  EXPECT_EQ(events_at(address), std::vector<std::uint16_t>{4});
  EXPECT_EQ(point_at(address).file_bias, address.value - site_of(other_, "other_first").offset);
}

// The cost of one more library does not depend on the number of points.
TEST_F(ArmerTest, WhatWasLookedAtIsLeftAlone) {
  for (const char* function : {"subject_add", "subject_twice", "subject_sum"}) probe(function, 0);
  target_.map_code(*subject_, kBase);
  arm();
  target_.reads.clear();
  arm();
  EXPECT_EQ(target_.reads.size(), 1U) << "one breakpoint shows that the code is still the one";
}

// A process that another tracer has taken over.
TEST_F(ArmerTest, WhereTheBreakpointsWereTakenOutNothingIsArmed) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  const std::uint32_t left = 1;
  ASSERT_TRUE(target_.write(kBlock + offsetof(shared::ProcessBlock, left), &left, sizeof left));
  ASSERT_TRUE(armer_.arm(target_, kBlock, {}));
  EXPECT_NE(byte_at(address_of(code, "subject_add")), 0xcc);
}

// A process may claim that it has points without number, each of which the tool would look at.
TEST_F(ArmerTest, ABlockWithMoreRoomThanTheToolGaveIsRefused) {
  probe("subject_add", 0);
  target_.map_code(*subject_, kBase);
  armer_.admit(*block_);
  ASSERT_TRUE(armer_.arm(target_, kBlock, {}));
  shared::ProcessBlock head = Block::read(target_, kBlock).take().head();
  head.point_capacity /= 2, head.stamp = 77;  // less is no harm
  ASSERT_TRUE(target_.write(kBlock, &head, sizeof head));
  EXPECT_TRUE(armer_.arm(target_, kBlock, {}));
  Armer another(probes_);
  shared::ProcessBlock larger = head;
  another.admit(Block::read(target_, kBlock).take());
  larger.point_capacity *= 2;
  ASSERT_TRUE(target_.write(kBlock, &larger, sizeof larger));
  EXPECT_EQ(another.arm(target_, kBlock, {}).error().code, Code::damaged);
}

// A block that is read anew, as for a child after fork, is known by its generation.
TEST_F(ArmerTest, AForkedProcessIsKnown) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  armer_.admit(*block_);
  ASSERT_TRUE(armer_.arm(target_, kBlock, {}));
  FakeTarget child = target_;
  child.reads.clear(), child.writes.clear();
  ASSERT_TRUE(armer_.arm(child, kBlock, {}));
  EXPECT_LE(child.reads.size(), 4U);
  EXPECT_TRUE(child.writes.empty());
  child.unmap(code.begin);
  ASSERT_TRUE(armer_.arm(child, kBlock, {}));
  const auto state_in = [&](FakeTarget& target) {
    const auto block = Block::read(target, kBlock);
    return block ? block->points().at(0).state : 0;
  };
  EXPECT_EQ(state_in(child), static_cast<std::uint32_t>(shared::PointState::unmapped));
  ASSERT_TRUE(armer_.arm(target_, kBlock, {}));
  EXPECT_EQ(state_in(target_), static_cast<std::uint32_t>(shared::PointState::armed))
      << "the parent still has the code";
}

TEST_F(ArmerTest, TheSameCodeMappedOnceMoreAtTheSamePlace) {
  probe("subject_add", 0);
  probe("subject_twice", 1);
  const Mapping code = target_.map_code(*subject_, kBase);
  arm();
  target_.unmap(code.begin);
  target_.map_code(*subject_, kBase);
  // All but the last one: by an unlucky sentinel it would not show.
  const Addr last = std::max(address_of(code, "subject_add"), address_of(code, "subject_twice"));
  const std::uint8_t breakpoint = 0xcc;
  ASSERT_TRUE(target_.write(last, &breakpoint, 1));
  ASSERT_TRUE(armer_.arm(target_, *block_, {code.begin, code.end}));
  for (const char* function : {"subject_add", "subject_twice"})
    EXPECT_EQ(byte_at(address_of(code, function)), 0xcc) << function;
}

// Anonymous memory in the place of the code: a copy of the code keeps its points, other contents do not.
TEST_F(ArmerTest, CodeThatWasCopiedKeepsItsPoints) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  const Addr address = address_of(code, "subject_add");
  arm();
  std::vector<std::uint8_t> bytes(code.end - code.begin);
  ASSERT_TRUE(target_.read(code.begin, bytes.data(), bytes.size()));
  const auto replace = [&](const std::vector<std::uint8_t>& with) {
    target_.unmap(code.begin);
    Mapping copy = code;
    copy.path.clear(), copy.inode = 0, copy.offset = 0;
    target_.map(copy, with);
    arm();
    return point_at(address).state;
  };
  EXPECT_EQ(replace(bytes), static_cast<std::uint32_t>(shared::PointState::armed));
  std::vector<std::uint8_t> other(bytes.size(), 0x90);
  other[address - code.begin] = 0xcc;
  EXPECT_EQ(replace(other), static_cast<std::uint32_t>(shared::PointState::unmapped));
}

TEST_F(ArmerTest, AFileThatHasChangedIsRefused) {
  const std::string path = testing::TempDir() + "armer_changed.so";
  std::filesystem::copy_file(SUBJECT, path, std::filesystem::copy_options::overwrite_existing);
  const auto file = std::make_shared<const elf::ElfFile>(elf::ElfFile::open(path).take());
  const plan::Site site =
      plan::site_at(file, *file->offset_of_address(file->find_functions("subject_add")[0].address)).take();
  probes_.add(site, {.event = 0});
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  const Mapping code = target_.map_code(*file, kBase);
  arm();
  EXPECT_NE(byte_at(code.begin + (site.offset - code.offset)), 0xcc);
  EXPECT_EQ(armer_.report().refusals.count(0), 1U);
  std::filesystem::remove(path);
}

// A later consumer of a point, such as the choice of an IFUNC, is added to its consumers.
TEST_F(ArmerTest, AProbeThatComesLater) {
  probe("subject_add", 1);
  const Mapping code = target_.map_code(*subject_, kBase);
  arm();
  probe("subject_add", 2);
  ASSERT_TRUE(armer_.arm(target_, *block_, {code.begin, code.end}));
  EXPECT_EQ(events_at(address_of(code, "subject_add")), (std::vector<std::uint16_t>{2, 1}));
}

// Libraries that take turns at an address, for ever: the table of consumers must not run out.
TEST_F(ArmerTest, TwoLibrariesThatTakeTurns) {
  probe("subject_add", 3);
  probe("other_first", 4);
  const Mapping first = target_.map_code(*subject_, kBase);
  const Addr address = address_of(first, "subject_add");
  target_.unmap(first.begin);
  const Mapping at_zero = target_.map_code(*other_, Addr{0});
  const std::uint64_t within = address_of(at_zero, "other_first").value;
  target_.unmap(at_zero.begin);
  for (std::uint16_t round = 0; round < 3000; ++round) {
    const Mapping m = round % 2 == 0 ? target_.map_code(*subject_, kBase) : target_.map_code(*other_, address - within);
    ASSERT_TRUE(armer_.arm(target_, *block_, {m.begin, m.end}));
    ASSERT_EQ(byte_at(address), 0xcc) << "round " << round;
    ASSERT_EQ(events_at(address), std::vector<std::uint16_t>{static_cast<std::uint16_t>(3 + round % 2)});
    target_.unmap(m.begin);
    target_.writes.clear(), target_.reads.clear();
  }
}

TEST_F(ArmerTest, AWatchedPointLeavesTheTextAlone) {
  target_.map_anonymous(kFar, 4096);
  const std::vector<std::uint8_t> code(15, 0x90);
  const Addr address = kFar + 16;
  armer_.admit(*block_);
  for (const std::vector<std::uint16_t>& events : {std::vector<std::uint16_t>{2, 5}, {7}}) {
    target_.writes.clear();
    const Status watched = armer_.watch(target_, kBlock, {address, code, events});
    ASSERT_TRUE(watched) << watched.error().text;
    for (const auto& write : target_.writes) EXPECT_LT(write.at.value - kBlock.value, block_->head().block_bytes);
    block_.emplace(Block::read(target_, kBlock).take());
    ASSERT_EQ(block_->points().size(), 1U);
    EXPECT_EQ(point_at(address).state, static_cast<std::uint32_t>(shared::PointState::watched));
    EXPECT_EQ(point_at(address).copy, 0U);
    EXPECT_EQ(point_at(address).insn_bytes, code.size());
    EXPECT_EQ(block_->undo()[0].state, 0U) << "there is nothing to restore";
    EXPECT_TRUE(std::equal(code.begin(), code.end(), block_->undo()[0].original));
    EXPECT_EQ(events_at(address), std::vector<std::uint16_t>(events.rbegin(), events.rend()));
  }
  EXPECT_TRUE(armer_.report().armed_events.has(5) && armer_.report().hardware.has(7));
}

TEST_F(ArmerTest, AnArmedPointIsNotWatched) {
  probe("subject_add", 0);
  const Addr address = address_of(target_.map_code(*subject_, kBase), "subject_add");
  arm();
  EXPECT_FALSE(armer_.watch(target_, kBlock, {address, {1}, {0}}));
  EXPECT_EQ(byte_at(address), 0xcc);
}

TEST_F(ArmerTest, NoRoomWithinReachIsARefusal) {
  probe("subject_add", 0);
  const Mapping code = target_.map_code(*subject_, kBase);
  class Crowded : public FakeTarget {
   public:
    Result<std::int64_t> system_call(long, const std::array<std::uint64_t, 6>&) override {
      return std::int64_t{-EEXIST};
    }
  } crowded;
  crowded.map_anonymous(kBlock, Block::bytes_for({64}));
  Block block = Block::create(crowded, kBlock, {64}).take();
  crowded.map_code(*subject_, kBase);
  EXPECT_TRUE(armer_.arm(crowded, block));
  EXPECT_EQ(armer_.report().refusals.count(0), 1U);
  EXPECT_NE(crowded.get<std::uint8_t>(address_of(code, "subject_add")), 0xcc);
}

}  // namespace
}  // namespace uprobe::test
