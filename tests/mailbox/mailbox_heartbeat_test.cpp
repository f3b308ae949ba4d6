// SPDX-License-Identifier: MIT
// What the words of a heartbeat say of a process that beats, is stopped, ends, and is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "engine/mailbox/heartbeat.h"
#include "engine/shared/session_area.h"

namespace uprobe::test {
namespace {

struct Words {
  std::uint32_t beat, life;
};

std::uint32_t read(const std::uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

class HeartbeatTest : public testing::Test {
 protected:
  HeartbeatTest()
      : words_(static_cast<Words*>(
            ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~HeartbeatTest() override { ::munmap(words_, sizeof(Words)); }
  // A process that beats.
  pid_t start() {
    const pid_t child = ::fork();
    if (child == 0) {
      const control::Heartbeat heartbeat(words_->beat, &words_->life);
      for (;;) ::pause();
    }
    while (read(words_->life) == 0) ::usleep(1000);
    return child;
  }
  void end(pid_t child, int signal) {
    ::kill(child, signal);
    ::waitpid(child, nullptr, 0);
  }

  Words* words_;
};

TEST_F(HeartbeatTest, TheKernelMarksADeath) {
  for (const int signal : {SIGKILL, SIGTERM, SIGSEGV}) {
    words_->life = 0;
    const pid_t child = start();
    EXPECT_EQ(read(words_->life) & shared::kLifeEnded, 0U);
    end(child, signal);
    EXPECT_EQ(read(words_->life), shared::kLifeEnded);
  }
}

// It still has things to undo.
TEST_F(HeartbeatTest, AToolThatIsKilledAfterItsLastBeatHasDied) {
  const pid_t child = ::fork();
  if (child == 0) {
    control::Heartbeat heartbeat(words_->beat, &words_->life);
    heartbeat.stop_beating();
    for (;;) ::pause();
  }
  while (read(words_->beat) == 0) ::usleep(1000);
  ::usleep(200'000);
  const std::uint32_t beat = read(words_->beat);
  ::usleep(200'000);
  EXPECT_EQ(read(words_->beat), beat);
  EXPECT_NE(read(words_->life), 0U);
  end(child, SIGKILL);
  EXPECT_EQ(read(words_->life), shared::kLifeEnded);
}

TEST_F(HeartbeatTest, AStoppedProcessLives) {
  const pid_t child = start();
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_NE(read(words_->life), 0U);
  EXPECT_EQ(read(words_->life) & shared::kLifeEnded, 0U);
  end(child, SIGKILL);
}

// A tool that is killed right after it has let a program go would not be known to be dead.
TEST_F(HeartbeatTest, TheWordsSayThatTheToolLivesBeforeItGoesOn) {
  for (int times = 0; times < 300; ++times) {
    words_->beat = words_->life = 0;
    const control::Heartbeat heartbeat(words_->beat, &words_->life);
    EXPECT_NE(read(words_->life), 0U);
    EXPECT_NE(read(words_->beat), 0U);
  }
}

TEST_F(HeartbeatTest, TheEndOfAHeartbeatIsNoDeath) {
  std::optional<control::Heartbeat> heartbeat(std::in_place, words_->beat, &words_->life);
  heartbeat.reset();
  EXPECT_EQ(read(words_->life), 0U);
  EXPECT_NE(read(words_->beat), 0U);
}

}  // namespace
}  // namespace uprobe::test
