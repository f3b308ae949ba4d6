// SPDX-License-Identifier: MIT
// Points that are added to a running process, and removed: the writes and their order, in a process that exists only in memory.
#include <gtest/gtest.h>

#include "engine/arm/armer.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Armer;
using control::Block;
using control::ProbeSet;

constexpr Addr kBlock{0x10000000}, kBase{0x100000000000};

class LiveTest : public testing::Test {
 protected:
  void SetUp() override {
    target_.map_anonymous(kBlock, Block::bytes_for({64}));
    block_.emplace(Block::create(target_, kBlock, {64}).take());
    code_ = target_.map_code(*subject_, kBase);
    probes_.add(site_of("subject_twice"), {.event = 0});
    ASSERT_TRUE(armer_.arm(target_, *block_));
    target_.writes.clear();
    target_.calls.clear();
  }

  plan::Site site_of(const std::string& function) {
    return plan::site_at(subject_, *subject_->offset_of_address(subject_->find_functions(function).at(0).address))
        .take();
  }
  Addr address_of(const std::string& function) { return code_.begin + (site_of(function).offset - code_.offset); }
  std::uint8_t byte_at(Addr at) { return target_.get<std::uint8_t>(at); }

  Status add(const std::string& function, std::uint16_t event) {
    ProbeSet more;
    more.add(site_of(function), {.event = event});
    return armer_.add(target_, kBlock, more);
  }
  Status keep(std::set<std::uint16_t> live) {
    return armer_.remove(target_, kBlock, [&](std::uint16_t event) { return live.count(event) != 0; });
  }
  // The process's own block, as an agent would find it.
  Block now() { return Block::read(target_, kBlock).take(); }
  std::vector<std::uint16_t> events_at(const std::string& function) {
    const Block block = now();
    std::vector<std::uint16_t> events;
    for (const shared::Consumer& consumer : block.list_of(block.find(address_of(function)).value()))
      events.push_back(consumer.event);
    return events;
  }
  std::string order() {
    std::string kinds;
    const Block block = now();
    const shared::ProcessBlock& head = const_cast<Block&>(block).head();
    for (const auto& write : target_.writes) {
      const std::uint64_t place = write.at.value - kBlock.value;
      const bool in_code = code_.begin <= write.at && write.at < code_.end;
      kinds += in_code                                          ? 'b'
               : place >= head.block_bytes                      ? 'c'
               : place == 0                                     ? 'H'
               : place == offsetof(shared::ProcessBlock, stamp) ? 's'
               : place >= head.hash_offset                      ? 'h'
               : place >= head.consumer_offset                  ? 'o'
               : place >= head.undo_offset                      ? 'u'
                                                                : 'p';
    }
    return kinds;
  }

  FakeTarget target_;
  std::shared_ptr<const elf::ElfFile> subject_ =
      std::make_shared<const elf::ElfFile>(elf::ElfFile::open(SUBJECT).take());
  Mapping code_;
  ProbeSet probes_;
  std::optional<Block> block_;
  Armer armer_{probes_};
};

TEST_F(LiveTest, APointHasAllThatItNeedsBeforeItsBreakpoint) {
  ASSERT_TRUE(add("subject_add", 1));
  EXPECT_EQ(order(), "scoupHhb");
  EXPECT_EQ(target_.writes.back().bytes, std::vector<std::uint8_t>{0xcc});
  EXPECT_TRUE(target_.calls.empty()) << "no thread of the process does anything for it";
  EXPECT_EQ(events_at("subject_add"), std::vector<std::uint16_t>{1});
}

TEST_F(LiveTest, AFurtherConsumerGetsAListOfItsOwn) {
  ASSERT_TRUE(add("subject_twice", 1));
  EXPECT_EQ(order(), "soHpu");
  EXPECT_EQ(events_at("subject_twice"), (std::vector<std::uint16_t>{1, 0}));
}

TEST_F(LiveTest, WhoLeavesTakesNothingFromTheOthers) {
  ASSERT_TRUE(add("subject_twice", 1));
  ASSERT_TRUE(add("subject_twice", 2));
  ASSERT_TRUE(keep({0, 2}));
  EXPECT_EQ(events_at("subject_twice"), (std::vector<std::uint16_t>{2, 0}));
  EXPECT_EQ(byte_at(address_of("subject_twice")), 0xcc);
  ASSERT_TRUE(keep({2}));
  EXPECT_EQ(events_at("subject_twice"), std::vector<std::uint16_t>{2});
}

TEST_F(LiveTest, TheLastOneTakesTheBreakpointAndLeavesTheCopy) {
  const std::uint8_t before = byte_at(address_of("subject_add"));
  ASSERT_TRUE(add("subject_add", 1));
  const std::uint32_t index = now().find(address_of("subject_add")).value();
  const std::uint64_t copy = now().points()[index].copy;
  ASSERT_TRUE(keep({0}));
  EXPECT_EQ(byte_at(address_of("subject_add")), before);
  EXPECT_EQ(now().points()[index].state, static_cast<std::uint32_t>(shared::PointState::disarmed));
  EXPECT_EQ(now().points()[index].copy, copy);
  ASSERT_TRUE(add("subject_add", 2));
  EXPECT_EQ(byte_at(address_of("subject_add")), 0xcc);
  EXPECT_EQ(now().find(address_of("subject_add")), index) << "as before";
  EXPECT_EQ(now().points()[index].copy, copy);
  EXPECT_EQ(events_at("subject_add"), std::vector<std::uint16_t>{2});
}

TEST_F(LiveTest, ComingAndGoingDoesNotUseTheTablesUp) {
  for (int round = 0; round < 10'000; ++round) {
    ASSERT_TRUE(add("subject_add", 1)) << round;
    ASSERT_TRUE(add("subject_twice", 1)) << round;
    ASSERT_TRUE(keep({0})) << round;
  }
  EXPECT_EQ(now().points().size(), 2U);
  EXPECT_EQ(now().head().island_count, 1U);
}

TEST_F(LiveTest, ForeignBytesAreRefusedAndNothingIsWrittenThere) {
  const Addr at = address_of("subject_add");
  const std::uint8_t other[] = {0x0f, 0x0b};
  ASSERT_TRUE(target_.write(at, other, sizeof other));
  const Status added = add("subject_add", 1);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().text.find("not the file's"), std::string::npos);
  EXPECT_EQ(byte_at(at), 0x0f);
}

// Code that is mapped later is armed with all points that are wanted by then.
TEST_F(LiveTest, LaterMappingsHaveWhatHasJoined) {
  ASSERT_TRUE(add("subject_add", 1));
  probes_.add(site_of("subject_add"), {.event = 1});
  probes_.remove(0);
  const Mapping later = target_.map_code(*subject_, kBase + 0x10000000);
  ASSERT_TRUE(armer_.arm(target_, kBlock, control::Changed{later.begin, later.end}));
  EXPECT_EQ(byte_at(later.begin + (site_of("subject_add").offset - later.offset)), 0xcc);
  EXPECT_NE(byte_at(later.begin + (site_of("subject_twice").offset - later.offset)), 0xcc);
}

}  // namespace
}  // namespace uprobe::test
