// SPDX-License-Identifier: MIT
// The calls of mmap and mprotect about which the agent asks the tool, and their results. Each goes through the agent as if a
// thread stood at its `syscall` instruction; another thread answers the mail, and counts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "preload/mappings.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

constexpr int kReadable = PROT_READ, kCode = PROT_READ | PROT_EXEC, kAll = PROT_READ | PROT_WRITE | PROT_EXEC;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

// A session whose tool answers every question with nothing to do.
struct Session {
  shared::Mailbox box{};  // before the area
  shared::AreaHeader header{};
  shared::LiveHeader live{};
  u32 asked = 0;
  std::atomic<bool> has_ended = false;
  std::thread tool;

  Session() {
    header.state = static_cast<u32>(shared::SessionState::recording);
    header.live_offset = offsetof(Session, live) - offsetof(Session, header);
    tool = std::thread([this] {
      for (; !has_ended; ::usleep(50)) answer();
    });
  }
  ~Session() {
    has_ended = true;
    tool.join();
  }

 private:
  void answer() {
    shared::MailSlot& slot = box.slots[0];
    const u32 word = __atomic_load_n(&slot.asked.check, __ATOMIC_ACQUIRE);
    const u32 done = shared::turn(shared::number_after(shared::number_of(word), 1), shared::MailState::done);
    if (shared::state_of(word) != shared::MailState::request || slot.answered.word == done) return;
    __atomic_fetch_add(&asked, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&slot.answered.word, done, __ATOMIC_RELEASE);
    __atomic_store_n(&slot.answered.check, done, __ATOMIC_RELEASE);
    u32& wake = header.notices[slot.called % shared::kNotices].wake;
    __atomic_fetch_add(&wake, 1, __ATOMIC_RELEASE);
    ::syscall(SYS_futex, &wake, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};

class Mappings : public testing::Test {
 protected:
  Mappings() : block_(empty_block()) {
    block_.sessions[0].area = word_of(&session_.header);
    block_.session_count = 1;
    install_agent_handlers();
    file_ = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  }
  ~Mappings() override { ::close(file_); }

  // How many questions were asked since the last call.
  u32 questions() {
    EXPECT_EQ(session_.live.mail_timeouts, 0U);
    return __atomic_exchange_n(&session_.asked, 0, __ATOMIC_ACQUIRE);
  }
  std::uint8_t* map(int protection, int flags, void* at = nullptr, std::size_t pages = 4) {
    agent::SignalFrame frame{};
    frame.ax = SYS_mmap, frame.di = word_of(at), frame.si = pages * kPage, frame.dx = static_cast<u64>(protection);
    frame.r10 = static_cast<u64>(flags);
    frame.r8 = (flags & MAP_ANONYMOUS) != 0 ? ~u64{0} : static_cast<u64>(file_);
    long result = 0;
    EXPECT_TRUE(agent::map_pages(block_, frame, result));
    EXPECT_TRUE(result > 0 || result < -4095) << result;
    return reinterpret_cast<std::uint8_t*>(result);
  }
  // Whether the agent made the call itself.
  bool protect(void* at, int protection, std::size_t pages = 1, int number = SYS_mprotect) {
    agent::SignalFrame frame{};
    frame.ax = static_cast<u64>(number), frame.di = word_of(at), frame.si = pages * kPage;
    frame.dx = static_cast<u64>(protection), frame.r10 = ~u64{0};
    long result = -1;
    const bool made = agent::protect_pages(block_, frame, result);
    if (made) {
      EXPECT_EQ(result, 0);
    }
    return made;
  }

  shared::ProcessBlock& block_;
  Session session_;
  int file_ = -1;
};

TEST_F(Mappings, CodeOfAFileIsAskedAbout) {
  map(kCode, MAP_PRIVATE);
  EXPECT_EQ(questions(), 1U);
  for (const int protection : {PROT_NONE, kReadable, PROT_READ | PROT_WRITE, kAll}) map(protection, MAP_PRIVATE);
  EXPECT_EQ(questions(), 0U) << "not code, or not yet";
  map(kCode, MAP_SHARED);
  map(kCode, kAnonymous);
  EXPECT_EQ(questions(), 0U) << "nothing that is ever probed";
}

TEST_F(Mappings, AFileThatBecomesCodeIsAskedAboutOnce) {
  for (const int protection : {kReadable, kAll}) {
    std::uint8_t* pages = map(protection, MAP_PRIVATE);
    EXPECT_TRUE(protect(pages + kPage, kCode));
    EXPECT_EQ(questions(), 1U);
    EXPECT_FALSE(protect(pages + kPage, kCode));
    EXPECT_FALSE(protect(pages, kReadable));
    EXPECT_EQ(questions(), 0U);
    EXPECT_TRUE(protect(pages + 2 * kPage, kCode, 1, SYS_pkey_mprotect)) << "the rest is still remembered";
    EXPECT_TRUE(protect(pages, kCode));
    EXPECT_EQ(questions(), 2U);
  }
}

TEST_F(Mappings, ACompilersMemoryIsNot) {
  std::uint8_t* pages = map(PROT_READ | PROT_WRITE, kAnonymous);
  EXPECT_FALSE(protect(pages, kCode));
  // Anonymous memory replaces the file.
  std::uint8_t* file = map(kReadable, MAP_PRIVATE);
  EXPECT_EQ(map(PROT_READ | PROT_WRITE, kAnonymous | MAP_FIXED, file + kPage, 2), file + kPage);
  EXPECT_FALSE(protect(file + kPage, kCode, 2));
  EXPECT_EQ(questions(), 0U);
  EXPECT_TRUE(protect(file, kCode)) << "left of it";
  EXPECT_TRUE(protect(file + 3 * kPage, kCode)) << "right of it";
}

TEST_F(Mappings, TheHooksBeforeTheProgramAreQuietWhereItsCodeWasShown) {
  EXPECT_FALSE(agent::is_quiet_hook(block_)) << "the tool wants to hear of all";
  block_.quiet_hooks = 2;
  EXPECT_TRUE(agent::is_quiet_hook(block_)) << "nothing is mapped yet";
  map(kCode, MAP_PRIVATE);
  EXPECT_TRUE(agent::is_quiet_hook(block_));
  EXPECT_FALSE(agent::is_quiet_hook(block_)) << "the program has begun, and loads a library";
}

TEST_F(Mappings, AHookIsNotQuietWhereNoCodeWasShown) {
  block_.quiet_hooks = 2;
  EXPECT_TRUE(agent::is_quiet_hook(block_));
  map(kReadable, MAP_PRIVATE);
  map(kCode, kAnonymous);
  EXPECT_FALSE(agent::is_quiet_hook(block_)) << "the loader maps code in a way that the agent does not see";
  map(kCode, MAP_PRIVATE);
  EXPECT_FALSE(agent::is_quiet_hook(block_));
}

TEST_F(Mappings, AHookIsNotQuietWhereTheToolHasNotAnswered) {
  block_.quiet_hooks = 2;
  EXPECT_TRUE(agent::is_quiet_hook(block_));
  block_.tool_gone = 1;
  map(kCode, MAP_PRIVATE);
  block_.tool_gone = 0;
  map(kCode, MAP_PRIVATE);
  EXPECT_FALSE(agent::is_quiet_hook(block_));
}

// More mappings than the table has entries: it then covers too much, never too little.
TEST_F(Mappings, NoneIsForgottenWhenTheTableIsFull) {
  constexpr std::size_t kMany = 3 * shared::kFileRanges;
  auto* room =
      static_cast<std::uint8_t*>(::mmap(nullptr, 2 * kMany * kPage, PROT_NONE, kAnonymous | MAP_NORESERVE, -1, 0));
  for (std::size_t i = 0; i < kMany; ++i) map(kReadable, MAP_PRIVATE | MAP_FIXED, room + 2 * i * kPage, 1);
  EXPECT_EQ(questions(), 0U);
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_TRUE(protect(room + 2 * i * kPage, kCode)) << i;
  EXPECT_EQ(questions(), kMany);
}

TEST_F(Mappings, UnderAFilterOfItsOwnTheToolIsNotAsked) {
  block_.flags = shared::kBlockFiltered | shared::kBlockFilteredLater;
  map(kCode, MAP_PRIVATE);
  EXPECT_EQ(questions(), 0U);
}

TEST_F(Mappings, ALoaderThatHasRelocatedIsAskedForAnIfunc) {
  std::uint8_t* data = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
  EXPECT_FALSE(protect(data, kReadable));
  block_.unbound = 1;
  EXPECT_TRUE(protect(data, kReadable));
  EXPECT_EQ(questions(), 1U);
  block_.unbound = 0;
}

TEST_F(Mappings, ErrorsComeBack) {
  agent::SignalFrame frame{};
  frame.ax = SYS_mmap, frame.si = 0, frame.dx = kCode, frame.r10 = MAP_PRIVATE, frame.r8 = static_cast<u64>(file_);
  long result = 0;
  EXPECT_TRUE(agent::map_pages(block_, frame, result));
  EXPECT_EQ(result, -EINVAL);
  frame.si = kPage, frame.r8 = ~u64{0};
  EXPECT_TRUE(agent::map_pages(block_, frame, result));
  EXPECT_EQ(result, -EBADF);
  EXPECT_EQ(questions(), 0U);
}

// The stack that the agent runs on is not replaced under it.
TEST_F(Mappings, ItsOwnStackIsLeftToTheApplication) {
  agent::SignalFrame frame{};
  frame.ax = SYS_mmap, frame.di = word_of(&frame) & ~(kPage - 1), frame.si = kPage, frame.dx = kReadable;
  frame.r10 = kAnonymous | MAP_FIXED, frame.r8 = ~u64{0};
  long result = 0;
  EXPECT_FALSE(agent::map_pages(block_, frame, result));
}

// After a breakpoint: the point's own code, the same with another breakpoint, and foreign code.
TEST_F(Mappings, CodeThatIsGoneIsTold) {
  std::uint8_t text[16] = {0xcc, 0x44, 0x7f, 0x01, 0xc3, 0x0f, 0x1f, 0x00};
  struct {
    shared::ProcessBlock head{};
    shared::Point point{};
    shared::Undo undo{};
  } tables;
  shared::ProcessBlock& block = tables.head;
  shared::Point& point = tables.point;
  block.point_offset = static_cast<u32>(word_of(&tables.point) - word_of(&tables));
  block.undo_offset = static_cast<u32>(word_of(&tables.undo) - word_of(&tables));
  block.sessions[0] = block_.sessions[0];
  point.address = word_of(text), point.state = static_cast<u32>(shared::PointState::armed);
  point.following_bytes = 7;
  std::memcpy(tables.undo.original, text, sizeof text);
  const agent::SignalFrame frame{};
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::ours);
  text[4] = 0xcc;
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::ours);
  EXPECT_EQ(questions(), 0U);
  text[1] = 0xb8;
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::ours) << "the tool has not said otherwise";
  EXPECT_EQ(questions(), 1U);
  std::memset(text, 0xcc, sizeof text);
  point.state = static_cast<u32>(shared::PointState::disarmed);
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::foreign);
  text[0] = 0x90;
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::changed) << "the tool has put the first byte back";
  point.state = static_cast<u32>(shared::PointState::unmapped);
  EXPECT_EQ(agent::code_at(block, point, frame), agent::Code::foreign);
}

}  // namespace
}  // namespace uprobe::test
