// SPDX-License-Identifier: MIT
// Events that record a part of their hits: the choice is even, the same for all events of a hit, and what is left out is counted.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "engine/trace/area.h"
#include "preload/thinning.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using agent::EntryRecord;
using shared::Consumer;
using shared::ConsumerKind;

// Two events with the same program.
class Session {
 public:
  explicit Session(program::Thinning thinning, bool is_return = false) {
    program_.layout.is_return = is_return;
    program_.layout.fixed_bytes = is_return ? 24 : 16;
    program_.insns = {{shared::Op::end, 0, 0, 0, 0}};
    program_.thinning = thinning;
    const trace::AreaSpec spec{.events = {&program_, &program_}, .ring_bytes = 1 << 20, .ring_count = 1};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->header().tick_rate = u64{1} << 32;  // a nanosecond
    area_->set_state(shared::SessionState::recording);
  }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }
  shared::EventCounts& counts(u32 event = 0) { return area_->live(0).counts(event); }
  shared::Event& event() { return area_->event(0); }
  trace::Area& area() { return *area_; }

 private:
  program::EventProgram program_;
  std::optional<trace::Area> area_;
};

shared::ProcessBlock& block() {
  static shared::ProcessBlock& made = empty_block();
  return made;
}

struct OneHit {
  shared::Point point{};
  shared::Registers registers{};
  EntryRecord noted{};
  agent::Hit hit{&block(), &point, &registers, 1, true, true};

  OneHit() { hit.noted = &noted; }
  bool chooses(Session& session, u16 event = 0, ConsumerKind kind = ConsumerKind::entry) {
    return agent::choose(hit, session.header(), Consumer{.kind = static_cast<u8>(kind), .event = event});
  }
};

TEST(Thinning, OneOfSoManyIsChosen) {
  for (const u32 one_in : {2u, 10u, 1000u}) {
    Session session({.one_in = one_in});
    constexpr double kHits = 200'000;
    double chosen = 0;
    for (int i = 0; i < kHits; ++i) chosen += OneHit().chooses(session) ? 1 : 0;
    const double mean = kHits / one_in;
    EXPECT_NEAR(chosen, mean, 8 * std::sqrt(mean) + 1);
    EXPECT_EQ(session.counts().unsampled, kHits - chosen);
  }
}

TEST(Thinning, AllEventsOfAHitChooseAlike) {
  Session session({.one_in = 3});
  for (int i = 0; i < 1000; ++i) {
    OneHit hit;
    const bool is_chosen = hit.chooses(session, 0);
    EXPECT_EQ(hit.chooses(session, 1, ConsumerKind::note), is_chosen);
    EXPECT_EQ(hit.chooses(session, 1, ConsumerKind::stub), is_chosen);
  }
  EXPECT_GT(session.counts(0).unsampled, 0u);
  EXPECT_EQ(session.counts(1).unsampled, 0u) << "the return counts, and not its entry";
}

TEST(Thinning, WithoutASampleAllAreChosen) {
  Session session({.per_second = 1});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(OneHit().chooses(session));
  EXPECT_TRUE(OneHit().chooses(session, 7)) << "no such event";
}

TEST(Thinning, NothingIsCountedWhileRecordingIsOff) {
  Session session({.one_in = 1000000});
  session.area().set_event(0, false);
  for (int i = 0; i < 100; ++i) static_cast<void>(OneHit().chooses(session));
  EXPECT_EQ(session.counts().unsampled, 0u);
}

TEST(Thinning, AReturnIsKeptByItsEntryRecord) {
  Session session({.one_in = 5, .per_second = 0, .min_latency = 100}, true);
  OneHit hit;
  const auto is_kept = [&] { return agent::is_kept(hit.hit, session.header(), session.event(), 0); };
  EXPECT_FALSE(is_kept());
  hit.noted.known = true, hit.noted.nanoseconds = 99;
  EXPECT_FALSE(is_kept());
  hit.noted.nanoseconds = 100;
  EXPECT_TRUE(is_kept());
  EXPECT_EQ(session.counts().unsampled, 1u);
  EXPECT_EQ(session.counts().too_short, 1u);
}

TEST(Thinning, ALatencyThatIsNotKnownIsTooShort) {
  Session session({.one_in = 0, .per_second = 0, .min_latency = 1}, true);
  OneHit hit;
  EXPECT_FALSE(agent::is_kept(hit.hit, session.header(), session.event(), 0));
  EXPECT_EQ(session.counts().too_short, 1u);
}

class Turns : public testing::Test {
 protected:
  agent::Built take(u64 tsc) { return agent::take_turn(builder_, tsc); }
  u64 taken(u64 from, u64 to, u64 step) {
    u64 sum = 0;
    for (u64 tsc = from; tsc < to; tsc += step) sum += take(tsc) == agent::Built::ok ? 1 : 0;
    return sum;
  }
  void begin(u32 rate) {
    session_.emplace(program::Thinning{.one_in = 0, .per_second = rate});
    builder_.area = session_->header(), builder_.event = &session_->event(), builder_.counts = &session_->counts();
  }

  static constexpr u64 kSecond = 1'000'000'000;
  std::optional<Session> session_;
  agent::RecordBuilder builder_{};
};

TEST_F(Turns, OneASecond) {
  begin(1);
  EXPECT_EQ(taken(kSecond, 11 * kSecond, kSecond / 1000), 10u);
}

TEST_F(Turns, ATenthAtOnceAndThenEvenly) {
  begin(1000);
  EXPECT_EQ(taken(kSecond, kSecond + 200, 1), 100u);
  const u64 later = taken(kSecond + 200, 2 * kSecond + 200, 10'000);
  EXPECT_TRUE(later == 999 || later == 1000) << later;
  EXPECT_EQ(taken(10 * kSecond, 10 * kSecond + 200, 1), 100u) << "rest is not saved up";
}

TEST_F(Turns, WhereTheClockIsNotKnownThereIsNoRate) {
  begin(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(take(0), agent::Built::ok);
  session_->header()->tick_rate = 0;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(take(kSecond), agent::Built::ok);
}

TEST_F(Turns, NonsenseInTheSharedWordSpoilsTheRateAlone) {
  begin(5);
  for (const u64 nonsense : {~u64{0}, u64{1} << 63, kSecond}) {
    session_->counts().next_turn = nonsense;
    const agent::Built built = take(kSecond);
    EXPECT_TRUE(built == agent::Built::ok || built == agent::Built::over_rate);
  }
}

TEST_F(Turns, HitsOverTheRateAreCounted) {
  begin(1);
  OneHit hit;
  for (int i = 0; i < 50; ++i) agent::record_event(hit.hit, session_->header(), 0);
  const u64 recorded = session_->area().ring(0).commit & 0xffffffff;
  EXPECT_GE(recorded, 1u);
  EXPECT_EQ(recorded + session_->counts().over_rate, 50u);
}

}  // namespace
}  // namespace uprobe::test
