// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engine/session/recipient.h"

namespace uprobe {
namespace {

class Collector : public Recipient {
 public:
  void learn_events() override { ++learned; }
  void take(const trace::EventRecord& record, std::string_view task) override {
    taken += std::string(task) + ":" + std::to_string(record.type) + " ";
  }
  void end_batch() override { ++batches; }
  bool is_full() const override { return full; }
  bool is_broken() const override { return broken; }

  std::string taken;
  int learned = 0, batches = 0;
  bool full = false, broken = false;
};

class OwnRecordsTest : public testing::Test {
 protected:
  void take(std::uint16_t event) {
    trace::EventRecord record;
    record.type = event;
    record.payload = payload_;
    own_.take(event, record, "task");
  }
  std::string queued() {
    std::string bytes, text;
    own_.queue().swap_out(bytes);
    each_record(bytes, [&](const ClientRecord& record) { text += std::to_string(record.index) + " "; });
    return text;
  }

  const std::array<std::uint8_t, 32> payload_{};
  Collector collector_;
  OwnRecords own_;
};

TEST(Printer, CountsWhatItTakesUpToTheLimit) {
  const std::vector<Probe> probes(2);
  const RunOptions options{.max_events = 3, .header = false};
  const Output output = [](std::string_view) { return 0; };
  const auto printer = make_printer(probes, options, output, shared::kMostString, nullptr, false);
  printer->learn_events();
  const std::array<std::uint8_t, 32> payload{};
  trace::EventRecord record;
  record.payload = payload;
  for (const std::uint16_t event : std::array<std::uint16_t, 5>{1, 0, 1, 1, 0}) {
    record.type = event;
    printer->take(record, "task");
  }
  EXPECT_TRUE(printer->is_full());
  EXPECT_EQ(printer->taken(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(OwnRecordsTest, WithoutARecipientTheyAreDropped) {
  take(1);
  own_.learn_events();
  own_.end_batch();
  own_.lead_to(&collector_);
  EXPECT_EQ(collector_.taken, "");
  EXPECT_EQ(collector_.batches, 0);
}

TEST_F(OwnRecordsTest, TheyGoToTheRecipientAtOnce) {
  own_.lead_to(&collector_);
  own_.learn_events();
  take(3);
  take(4);
  own_.end_batch();
  EXPECT_EQ(collector_.taken, "task:3 task:4 ");
  EXPECT_EQ(collector_.learned, 1);
  EXPECT_EQ(collector_.batches, 1);
}

TEST_F(OwnRecordsTest, AQueuePassesTheRecipientOver) {
  own_.lead_to(&collector_);
  own_.begin_queue();
  own_.learn_events();
  take(3);
  own_.end_batch();
  EXPECT_EQ(collector_.taken, "");
  EXPECT_EQ(collector_.learned, 0);
  EXPECT_EQ(collector_.batches, 0);
  EXPECT_EQ(queued(), "3 ");
  EXPECT_EQ(own_.lost(3), 0u);
}

TEST_F(OwnRecordsTest, AQueueThatCouldNotBeServedIsUndone) {
  own_.lead_to(&collector_);
  own_.begin_queue();
  own_.end_queue();
  take(5);
  EXPECT_EQ(collector_.taken, "task:5 ");
}

TEST_F(OwnRecordsTest, AUserWhoHasLeftGetsNoMore) {
  own_.begin_queue();
  take(1);
  own_.discard();
  take(2);
  EXPECT_EQ(queued(), "1 ");
}

TEST(Forwarder, PassesOnRecordsOfTheEventsThatItHasLearnt) {
  std::vector<Probe> probes(1);
  probes[0].program.layout.event = "first";
  std::string passed;
  const RecordSink sink = [&](const trace::EventRecord&, const program::EventLayout& layout, std::string_view task) {
    passed += layout.event + "/" + std::string(task) + " ";
  };
  const auto forwarder = make_forwarder(probes, sink);
  trace::EventRecord record;
  forwarder->take(record, "a");
  EXPECT_EQ(passed, "") << "no event is known";
  forwarder->learn_events();
  forwarder->take(record, "b");
  record.type = 1;
  probes.emplace_back().program.layout.event = "second";
  forwarder->take(record, "c");
  EXPECT_EQ(passed, "first/b ");
  forwarder->learn_events();
  forwarder->take(record, "d");
  EXPECT_EQ(passed, "first/b second/d ");
}

TEST(LeaveWish, NothingIsAReasonAtFirst) {
  const RunOptions options;
  Collector collector;
  EXPECT_FALSE(LeaveWish(options, collector, true).is_there());
}

TEST(LeaveWish, AFullRecipientIsAReason) {
  const RunOptions options;
  Collector collector;
  const LeaveWish wish(options, collector, false);
  collector.full = true;
  EXPECT_TRUE(wish.is_there());
}

TEST(LeaveWish, ABrokenRecipientIsAReasonOnlyWhereItMatters) {
  const RunOptions options;
  Collector collector;
  collector.broken = true;
  EXPECT_FALSE(LeaveWish(options, collector, false).is_there());
  EXPECT_TRUE(LeaveWish(options, collector, true).is_there());
}

TEST(LeaveWish, TheUserCanAskForIt) {
  bool asked = false;
  RunOptions options;
  options.detach_requested = [&] { return asked; };
  Collector collector;
  const LeaveWish wish(options, collector, false);
  EXPECT_FALSE(wish.is_there());
  asked = true;
  EXPECT_TRUE(wish.is_there());
}

TEST(LeaveWish, TheTimeCanBeLimited) {
  RunOptions options;
  Collector collector;
  options.duration = std::chrono::hours(24);
  EXPECT_FALSE(LeaveWish(options, collector, false).is_there());
  options.duration = std::chrono::nanoseconds(-1);  // over before it begins
  EXPECT_TRUE(LeaveWish(options, collector, false).is_there());
}

}  // namespace
}  // namespace uprobe
