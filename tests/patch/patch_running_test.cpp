// SPDX-License-Identifier: MIT
// Text that changes under threads that run it, a hundred thousand times: no hit is lost, no thread crashes, and every
// function returns what it always does.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tests/patch/patch_subject.h"

namespace uprobe::test {
namespace {

using control::Patch;
using control::Patched;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The number of changes for a kind of window; PATCH_ROUNDS: how often all of them change together instead.
constexpr std::size_t kChanges = 100'000;
std::size_t rounds() {
  const char* const wanted = std::getenv("PATCH_ROUNDS");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : kChanges / (Subject::kSites / 4) / 2;
}

class PatchRunning : public testing::Test {
 protected:
  using Text = std::array<std::uint8_t, control::kMostPatched>;

  static std::ptrdiff_t done(const std::vector<Patched>& outcomes) {
    return std::count(outcomes.begin(), outcomes.end(), Patched::done);
  }

  // Back and forth; if the test may not preempt the program's threads a change takes long, and a few have to do.
  void change(Subject& subject, Text Site::*one, Text Site::*other, bool (*wanted)(Kind)) {
    target::RunningTarget target(target::ProcessFiles::open(subject.pid()).take());
    control::ProcessSerializer serializer(subject.pid());
    std::vector<Patch> there, back;
    for (const Site& s : subject.sites()) {
      if (!wanted(s.kind)) continue;
      there.push_back(s.patch(s.*one, s.*other));
      back.push_back(s.patch(s.*other, s.*one));
    }
    const auto all = static_cast<std::ptrdiff_t>(there.size());
    const auto enough = Clock::now() + 30s;
    for (std::size_t i = 0; i < rounds() && (i < 20 || Clock::now() < enough); ++i) {
      ASSERT_EQ(done(control::patch_running(target, there, serializer)), all) << "round " << i;
      ASSERT_EQ(done(control::patch_running(target, back, serializer)), all) << "round " << i;
      ASSERT_TRUE(subject.is_alive()) << "round " << i;
    }
  }
};

TEST_F(PatchRunning, BetweenBreakpointAndJumpNoHitIsLost) {
  Subject subject(true);
  change(subject, &Site::trap, &Site::jump, [](Kind) { return true; });
  EXPECT_EQ(subject.finish(), 0);
  for (std::size_t i = 0; i < subject.sites().size(); ++i) {
    EXPECT_EQ(subject.hits(i), subject.calls(i)) << "site " << i;
    EXPECT_GT(subject.calls(i), 0U);
  }
}

// No thread may stand inside a window of several instructions when the jump is written.
TEST_F(PatchRunning, BetweenOriginalAndJumpNoThreadIsHarmed) {
  Subject subject(false);
  change(subject, &Site::original, &Site::jump, [](Kind kind) { return kind != Kind::several; });
  EXPECT_EQ(subject.finish(), 0);
  EXPECT_EQ(subject.wrong_results(), 0U);
  for (std::size_t i = 0; i < subject.sites().size(); ++i) {
    EXPECT_LE(subject.hits(i), subject.calls(i)) << "site " << i;
    EXPECT_EQ(subject.hits(i) != 0, subject.sites()[i].kind != Kind::several) << "site " << i;
  }
}

// They go while threads come to them and are in their copies. Threads are kept out only while the jumps are written.
TEST_F(PatchRunning, JumpsOverSeveralInstructionsGoWhileTheyAreExecuted) {
  Subject subject(true);
  target::RunningTarget target(target::ProcessFiles::open(subject.pid()).take());
  control::ProcessSerializer serializer(subject.pid());
  std::vector<Patch> begin, go, come;
  for (const Site& s : subject.sites()) {
    if (s.kind != Kind::several) continue;
    begin.push_back(s.patch(s.trap, s.jump));
    go.push_back(s.patch(s.jump, s.original));
    come.push_back(s.patch(s.original, s.jump));
  }
  const auto all = std::ssize(go);
  ASSERT_EQ(done(control::patch_running(target, begin, serializer)), all);
  const auto enough = Clock::now() + 20s;
  for (int i = 0; i < 200 && (i < 20 || Clock::now() < enough); ++i) {
    ASSERT_EQ(done(control::patch_running(target, go, serializer)), all) << "round " << i;
    subject.pause();
    ASSERT_EQ(done(control::patch_running(target, come, serializer)), all) << "round " << i;
    subject.go_on();
    ASSERT_TRUE(subject.is_alive()) << "round " << i;
  }
  EXPECT_EQ(subject.finish(), 0);
}

TEST_F(PatchRunning, BetweenOriginalAndBreakpointNoThreadIsHarmed) {
  Subject subject(false);
  change(subject, &Site::original, &Site::trap, [](Kind) { return true; });
  EXPECT_EQ(subject.finish(), 0);
  for (std::size_t i = 0; i < subject.sites().size(); ++i) EXPECT_LE(subject.hits(i), subject.calls(i));
}

}  // namespace
}  // namespace uprobe::test
