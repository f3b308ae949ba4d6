// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "engine/session/event_table.h"

extern "C" [[gnu::noinline, gnu::used]] int event_table_subject(int a) { return a * 3 + 1; }
extern "C" [[gnu::noinline, gnu::used]] int event_table_other(int a) { return a * 5 + 2; }

namespace uprobe {
namespace {

std::string own_path() {
  std::array<char, 4096> path{};
  return ::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "";
}

Definition definition(const std::string& event, const std::string& function) {
  return {.text = "p:" + event + " " + own_path() + ":" + function, .default_object = {}};
}

class EventTableTest : public testing::Test {
 protected:
  void SetUp() override {
    const Status made =
        table_.prepare({definition("first", "event_table_subject"), definition("second", "event_table_other")});
    ASSERT_TRUE(made) << made.error().text;
  }
  // The event's probe, as `owner` would define it.
  Probe probe_of(std::uint16_t event, std::uint32_t owner) const {
    Probe probe = table_.probes()[event];
    probe.owner = owner;
    probe.live = true;
    probe.is_free = false;
    return probe;
  }
  using Events = std::vector<std::uint16_t>;

  const SessionOptions options_;
  EventTable table_{options_};
};

TEST_F(EventTableTest, EventsAreNumberedAsDefined) {
  ASSERT_EQ(table_.probes().size(), 2u);
  EXPECT_EQ(table_.probes()[0].spec.event, "first");
  EXPECT_EQ(table_.probes()[1].spec.event, "second");
  EXPECT_EQ(table_.live_events_of(0), (Events{0, 1}));
  EXPECT_EQ(table_.planned().files().size(), 1u);
}

TEST_F(EventTableTest, ASessionNeedsAProbe) {
  EventTable empty(options_);
  const Status made = empty.prepare({});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text, "no probe is defined");
}

TEST_F(EventTableTest, ADefinitionThatComesBackGetsItsOldNumber) {
  const Probe again = probe_of(0, 0);
  EXPECT_EQ(table_.former(again), std::nullopt) << "it is live";
  table_.set_live(0, false);
  EXPECT_EQ(table_.live_events_of(0), Events{1});
  ASSERT_EQ(table_.former(again), std::optional<std::uint16_t>(0));
  EXPECT_EQ(table_.put(again, table_.former(again)), 0u);
  EXPECT_EQ(table_.live_events_of(0), (Events{0, 1}));
  EXPECT_EQ(table_.probes().size(), 2u);
}

TEST_F(EventTableTest, AnotherOwnerGetsANumberOnlyWhenItIsFree) {
  table_.set_live(0, false);
  const Probe of_client = probe_of(0, 9);
  EXPECT_EQ(table_.former(of_client), std::nullopt);
  table_.free_events_of(0);
  EXPECT_EQ(table_.former(of_client), std::optional<std::uint16_t>(0));
  EXPECT_EQ(table_.former(probe_of(1, 9)), std::nullopt) << "freed, but live";
}

TEST_F(EventTableTest, ADifferentEventGetsANewNumber) {
  table_.set_live(0, false);
  Probe renamed = probe_of(0, 0);
  renamed.spec.event = "third";
  EXPECT_EQ(table_.former(renamed), std::nullopt);
  EXPECT_EQ(table_.put(renamed, std::nullopt), 2u);
  EXPECT_EQ(table_.live_events_of(0), (Events{1, 2}));
}

TEST_F(EventTableTest, RoutesLeadToTheirClientUntilItIsGone) {
  const std::uint16_t number = table_.put(probe_of(0, 9), std::nullopt);
  EXPECT_EQ(table_.route_of(number), nullptr);
  const auto client = std::make_shared<Client>(Fd(), Peer{});
  table_.lead(number, {.client = client, .index = 4, .since = 11});
  EXPECT_EQ(table_.client_of(number), client.get());
  EXPECT_EQ(table_.client_of(0), nullptr);
  ASSERT_NE(table_.route_of(number), nullptr);
  EXPECT_EQ(table_.route_of(number)->index, 4u);
  table_.free_events_of(9);
  EXPECT_EQ(table_.client_of(number), nullptr);
}

TEST_F(EventTableTest, AProbeThatIsRefusedLosesItsRoute) {
  const std::uint16_t number = table_.put(probe_of(0, 9), std::nullopt);
  table_.lead(number, {.client = std::make_shared<Client>(Fd(), Peer{})});
  table_.withdraw(number, false, true);
  EXPECT_TRUE(table_.probes()[number].was_refused);
  EXPECT_TRUE(table_.probes()[number].is_free);
  EXPECT_EQ(table_.client_of(number), nullptr);
}

TEST_F(EventTableTest, OnlyTheSameDefinitionsOfTheSameFileAreDescribedAlike) {
  const auto described = describe(table_.probes());
  ASSERT_EQ(described.size(), 2u);
  EXPECT_NE(described[0], described[1]);
  EventTable other(options_);
  ASSERT_TRUE(other.prepare({definition("first", "event_table_subject")}));
  EXPECT_EQ(describe(other.probes())[0], described[0]);
}

}  // namespace
}  // namespace uprobe
