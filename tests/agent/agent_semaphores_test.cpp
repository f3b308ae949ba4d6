// SPDX-License-Identifier: MIT
// The semaphores of markers when the tool is gone: the agent counts them down, once, and never into memory that is not there.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "engine/trace/area.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using trace::Area;

class AgentSemaphores : public testing::Test {
 protected:
  void SetUp() override {
    install_agent_handlers();
    block_ = &empty_block();
    program_.layout.fixed_bytes = 16;
    program_.insns = {shared::Insn{shared::Op::end, 0, 0, 0, 0}};
    const trace::AreaSpec spec{.events = {&program_}, .ring_bytes = 8192, .ring_count = 1};
    area_.emplace(Area::create_private(spec).take());
    block_->session_count = 1;
    block_->sessions[0].area = word_of(area_->base());
    add(word_of(&up_));
  }
  void add(u64 address) { block_->semaphores[block_->semaphore_count++] = {address, 1, 0}; }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }
  void hit(bool may_fault = true) {
    const shared::Point point{};
    shared::Registers registers{};
    agent::watch_tool({block_, &point, &registers, 1, may_fault, false});
  }
  void kill_tool() { header()->tool_life = shared::kLifeEnded; }

  shared::ProcessBlock* block_ = nullptr;
  program::EventProgram program_;
  std::optional<Area> area_;
  u16 up_ = 1;
};

TEST_F(AgentSemaphores, StayUpWhileTheToolLives) {
  for (const u32 life : {u32{0}, u32{1}, u32{4'194'304}}) {
    header()->tool_life = life;
    hit();
    EXPECT_EQ(up_, 1);
  }
}

TEST_F(AgentSemaphores, GoDownOnceItHasDied) {
  kill_tool();
  hit(false);  // a fault would kill the process
  EXPECT_EQ(up_, 1);
  hit();
  EXPECT_EQ(up_, 0);
  EXPECT_EQ(block_->semaphores[0].is_up, 0u);
  up_ = 5;
  hit();
  EXPECT_EQ(up_, 5);
}

TEST_F(AgentSemaphores, MemoryThatIsNotThereIsLeftAlone) {
  HoleyMemory memory(1);
  add(word_of(memory.end()));
  add(~u64{0} << 47);
  u16 other = 3, at_zero = 0;
  add(word_of(&other));
  add(word_of(&at_zero));
  agent::count_down_semaphores(*block_);
  EXPECT_EQ(up_, 0);
  EXPECT_EQ(other, 2);
  EXPECT_EQ(at_zero, 0);
}

TEST_F(AgentSemaphores, NotWithSignalsBlockedThatAFaultNeeds) {
  sigset_t segv, before;
  sigemptyset(&segv), sigaddset(&segv, SIGSEGV);
  sigprocmask(SIG_BLOCK, &segv, &before);
  agent::count_down_semaphores(*block_);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(up_, 1);
}

TEST_F(AgentSemaphores, ManyThreadsCountOnce) {
  up_ = 100;
  std::vector<std::thread> threads;
  std::atomic<bool> go{false};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!go) std::this_thread::yield();
      agent::count_down_semaphores(*block_);
    });
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(up_, 99);
}

TEST_F(AgentSemaphores, AnImpossibleCountIsBounded) {
  block_->semaphore_count = ~u32{0};
  agent::count_down_semaphores(*block_);
  EXPECT_EQ(up_, 0);
}

}  // namespace
}  // namespace uprobe::test
