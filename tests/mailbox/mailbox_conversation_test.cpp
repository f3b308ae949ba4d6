// SPDX-License-Identifier: MIT
// The tool's end of a conversation with a thread that speaks in turn, and with one that writes anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "engine/mailbox/conversation.h"
#include "engine/mailbox/mail_target.h"

namespace uprobe::test {
namespace {

using control::Conversation;
using shared::MailSlot;
using shared::MailState;

constexpr std::array<std::uint64_t, 7> kCommand = {9, 1, 2, 3, 4, 5, 6};

// A slot in memory. The other side acts before each read.
class FakeLine : public control::MailLine {
 public:
  MailSlot slot{};
  std::function<void()> before_read = [] {};
  std::function<std::optional<target::ThreadRun>()> next_run = [] { return std::nullopt; };
  bool is_gone = false, is_stopped = false;
  int waits = 0, wakes = 0;
  std::vector<std::pair<std::size_t, std::size_t>> writes;

  Status read(std::size_t offset, void* to, std::size_t bytes) override {
    before_read();
    if (is_gone) return Error{.code = Code::system, .text = "gone"};
    EXPECT_LE(offset + bytes, sizeof slot);
    std::memcpy(to, reinterpret_cast<const char*>(&slot) + offset, bytes);
    return ok();
  }
  Status write(std::size_t offset, const void* from, std::size_t bytes) override {
    if (is_gone) return Error{.code = Code::system, .text = "gone"};
    EXPECT_LE(offset + bytes, sizeof slot);
    writes.emplace_back(offset, bytes);
    std::memcpy(reinterpret_cast<char*>(&slot) + offset, from, bytes);
    return ok();
  }
  void wake() override { ++wakes; }
  std::uint32_t rung() override { return 0; }
  void wait(std::uint32_t, std::chrono::nanoseconds) override { ++waits; }
  bool may_answer() override { return !is_stopped; }
  std::optional<target::ThreadRun> run() override { return next_run(); }

  void say(std::uint32_t number, MailState state) { slot.asked.word = slot.asked.check = shared::turn(number, state); }
  MailState heard() const { return shared::state_of(slot.answered.check); }
  std::uint32_t heard_number() const { return shared::number_of(slot.answered.check); }
};

TEST(Conversation, ByTurns) {
  FakeLine line;
  Conversation thread(line);
  EXPECT_FALSE(thread.has_request());
  line.say(5, MailState::request);
  ASSERT_TRUE(thread.has_request());
  ASSERT_TRUE(thread.begin());
  EXPECT_EQ(line.heard(), MailState::working);
  EXPECT_TRUE(thread.still_waits());
  line.before_read = [&] {
    if (line.heard() != MailState::command) return;
    EXPECT_TRUE(std::equal(kCommand.begin(), kCommand.end(), line.slot.command));
    line.slot.result = 42;
    line.say(line.heard_number() + 1, MailState::result);
  };
  const auto first = thread.command(kCommand), second = thread.command(kCommand);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*second, 42U);
  EXPECT_EQ(line.heard_number(), 8U);
  EXPECT_TRUE(thread.finish());
  EXPECT_EQ(line.heard(), MailState::done);
  EXPECT_EQ(line.wakes, 3);
  EXPECT_FALSE(thread.has_request()) << "it has been answered";
}

TEST(Conversation, AStoppedThreadIsNotWaitedFor) {
  FakeLine line;
  Conversation thread(line);
  line.say(5, MailState::request);
  ASSERT_TRUE(thread.has_request() && thread.begin());
  line.is_stopped = true;
  const auto result = thread.command(kCommand);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text, "the waiting thread has been stopped");
}

TEST(Conversation, AThreadThatIsSilentOrLateUsesUpThePatience) {
  using namespace std::chrono_literals;
  FakeLine line;
  Conversation thread(line);
  line.say(5, MailState::request);
  ASSERT_TRUE(thread.has_request() && thread.begin());
  thread.limit_patience(50ms);
  int late = 0;
  line.before_read = [&] {
    if (line.heard() != MailState::command || ++late % 2 != 0) return;
    std::this_thread::sleep_for(20ms);
    line.say(line.heard_number() + 1, MailState::result);
  };
  int answers = 0;
  while (thread.command(kCommand)) ++answers;
  EXPECT_LT(answers, 4);
  EXPECT_GE(thread.waited_in_vain(), 20ms);
  line.before_read = [] {};
  const auto result = thread.command(kCommand);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text, "the waiting thread does not answer");
}

// How a thread runs from one look to the next, and how long a tool that would have waited for half a second has waited for it.
std::chrono::nanoseconds waited_for(std::function<std::optional<target::ThreadRun>()> next_run) {
  FakeLine line;
  Conversation thread(line);
  line.say(5, MailState::request);
  EXPECT_TRUE(thread.has_request() && thread.begin());
  line.next_run = std::move(next_run);
  thread.limit_patience(std::chrono::milliseconds(500));
  const auto result = thread.command(kCommand);
  EXPECT_FALSE(result);
  EXPECT_EQ(result ? "" : result.error().text, "the waiting thread does not answer");
  return thread.waited_in_vain();
}

TEST(Conversation, OnlyAThreadThatTheKernelDoesNotLetRunIsWaitedForToTheEnd) {
  using target::ThreadRun;
  constexpr std::chrono::milliseconds kWhole(500);
  std::uint64_t now = 0;
  EXPECT_LT(waited_for([] { return ThreadRun{'S', 1000, 7}; }), kWhole) << "it sleeps";
  EXPECT_LT(waited_for([] { return ThreadRun{}; }), kWhole) << "there is no such thread";
  EXPECT_LT(waited_for([&] { return ThreadRun{'S', now += 1000, now}; }), kWhole) << "it sleeps again and again";
  EXPECT_LT(waited_for([&] { return ThreadRun{'R', now += 40'000'000, 7}; }), kWhole) << "it spins";
  EXPECT_LT(waited_for([&] {
              return ThreadRun{'R', 1000, now += 3};
            }),
            kWhole)
      << "it is let run, and does other things";
  EXPECT_GE(waited_for([] { return ThreadRun{'R', 1000, 7}; }), kWhole) << "it waits for a processor";
  EXPECT_GE(waited_for([] { return std::optional<ThreadRun>(); }), kWhole) << "that cannot be told";
}

TEST(Conversation, ATornWordIsNone) {
  FakeLine line;
  Conversation thread(line);
  line.slot.asked.word = shared::turn(5, MailState::request);
  EXPECT_FALSE(thread.has_request());
  EXPECT_FALSE(control::has_request(line.slot));
  line.slot.asked.check = shared::turn(4, MailState::request);
  EXPECT_FALSE(thread.has_request());
}

TEST(Conversation, ARequestIsSeenOnceAlsoWhereNumbersWrap) {
  for (const std::uint32_t number : {1U, (1U << 27) - 1, 1U << 27, (1U << 28) - 1, 0U}) {
    FakeLine line;
    line.slot.answered = {shared::turn(shared::number_after(number, ~0U), MailState::done), 0};
    line.say(number, MailState::request);
    Conversation thread(line);
    EXPECT_TRUE(thread.has_request()) << number;
    ASSERT_TRUE(thread.begin());
    EXPECT_FALSE(thread.has_request()) << number;
    EXPECT_FALSE(control::has_request(line.slot)) << number;
  }
}

TEST(Conversation, AThreadThatGivesUpIsNotWaitedFor) {
  for (const MailState last : {MailState::abandoned, MailState::left}) {
    FakeLine line;
    line.say(3, MailState::request);
    Conversation thread(line);
    ASSERT_TRUE(thread.has_request() && thread.begin());
    line.before_read = [&] { line.say(3, last); };
    EXPECT_FALSE(thread.command(kCommand));
    EXPECT_EQ(line.waits, 0);
    EXPECT_FALSE(thread.still_waits());
  }
}

TEST(Conversation, AnAnswerWaitsForNothing) {
  FakeLine line;
  line.say(3, MailState::request);
  Conversation thread(line);
  ASSERT_TRUE(thread.has_request() && thread.begin());
  line.say(3, MailState::abandoned);
  EXPECT_TRUE(thread.answer());
  EXPECT_EQ(line.heard(), MailState::done);
  EXPECT_EQ(line.waits, 0);
  EXPECT_EQ(line.wakes, 1);
}

TEST(Conversation, AProcessThatIsGoneIsNoRequest) {
  FakeLine line;
  line.say(3, MailState::request);
  Conversation thread(line);
  ASSERT_TRUE(thread.has_request());
  line.is_gone = true;
  EXPECT_FALSE(thread.begin());
  EXPECT_FALSE(thread.command(kCommand));
  EXPECT_FALSE(thread.finish());
  EXPECT_FALSE(thread.has_request());
}

// Its words change before each read. The tool writes its own words and commands, and nothing else; a result counts by its
// number.
TEST(Conversation, AThreadThatSaysAnything) {
  std::mt19937 engine(1);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 3000; ++round) {
    FakeLine line;
    line.say(round % 7U, MailState::request);
    Conversation thread(line);
    if (!thread.has_request() || !thread.begin()) continue;
    int reads = 0;
    line.before_read = [&] {
      const std::uint32_t near = line.heard_number() + random() % 4, number = random() % 3 == 0 ? random() : near;
      line.slot.asked.word = shared::turn(number, static_cast<MailState>(random() % 10));
      if (random() % 4 != 0) line.slot.asked.check = line.slot.asked.word;
      line.slot.answered.word = random(), line.slot.result = random();
      if (++reads > 100) line.say(0, MailState::left);
    };
    for (int i = 0; i < 3; ++i) static_cast<void>(thread.command(kCommand));
    static_cast<void>(thread.finish());
    for (const auto& [offset, bytes] : line.writes) {
      const bool is_word = offset >= offsetof(MailSlot, answered) && offset + bytes <= offsetof(MailSlot, taken);
      EXPECT_TRUE(is_word || (offset == offsetof(MailSlot, command) && bytes == sizeof MailSlot::command)) << offset;
    }
  }
}

}  // namespace
}  // namespace uprobe::test
