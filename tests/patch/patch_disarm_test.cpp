// SPDX-License-Identifier: MIT
// Taking breakpoints out of a process that runs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "engine/patch/disarm.h"
#include "engine/process/block.h"
#include "engine/process/processes.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::Block;

constexpr std::size_t kPage = 4096;

// A child with a page of code and room for a block, at the same addresses as here.
class Child {
 public:
  Child() {
    code_ = static_cast<std::uint8_t*>(
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    block_bytes_ = Block::bytes_for({8});
    block_ = ::mmap(nullptr, block_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::uint8_t returns[] = {0x55, 0x31, 0xc0, 0x5d, 0xc3};  // push %rbp; xor %eax,%eax; pop %rbp; ret
    std::memcpy(code_, returns, sizeof returns);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::alarm(30);
    for (;;) ::pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(code_, kPage);
    ::munmap(block_, block_bytes_);
  }

  pid_t pid() const { return pid_; }
  Addr code() const { return Addr{reinterpret_cast<std::uint64_t>(code_)}; }
  Addr block() const { return Addr{reinterpret_cast<std::uint64_t>(block_)}; }

 private:
  pid_t pid_ = 0;
  std::uint8_t* code_ = nullptr;
  void* block_ = nullptr;
  std::size_t block_bytes_ = 0;
};

class Disarm : public testing::Test {
 protected:
  void SetUp() override {
    block_.emplace(Block::create(target_, child_.block(), {8}).take());
    for (const std::uint64_t offset : {0, 1, 3}) {
      control::NewPoint point;
      point.address = child_.code() + offset, point.copy = child_.code() + 64;
      point.insn = {byte_at(offset)};
      ASSERT_TRUE(block_->add(target_, {point}));
      put(offset, 0xcc);
    }
  }
  std::uint8_t byte_at(std::uint64_t offset) {
    std::uint8_t byte = 0;
    EXPECT_TRUE(target_.read(child_.code() + offset, &byte, 1));
    return byte;
  }
  void put(std::uint64_t offset, std::uint8_t byte) { ASSERT_TRUE(target_.write(child_.code() + offset, &byte, 1)); }

  Child child_;
  target::RunningTarget target_{target::ProcessFiles::open(child_.pid()).take()};
  std::optional<Block> block_;
};

TEST_F(Disarm, TheOriginalBytesComeBackAndTheTablesStay) {
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(byte_at(0), 0x55);
  EXPECT_EQ(byte_at(1), 0x31);
  EXPECT_EQ(byte_at(3), 0x5d);
  const auto block = Block::read(target_, child_.block());
  ASSERT_TRUE(block);
  ASSERT_EQ(block->points().size(), 3U);
  for (const shared::Point& point : block->points())
    EXPECT_EQ(point.state, static_cast<std::uint32_t>(shared::PointState::disarmed));
  for (const shared::Undo& undo : block->undo()) EXPECT_EQ(undo.state, 0U);
  std::uint32_t left = 0;
  ASSERT_TRUE(target_.read(child_.block() + offsetof(shared::ProcessBlock, left), &left, sizeof left));
  EXPECT_EQ(left, 1U) << "nothing is armed there again";
  EXPECT_TRUE(control::disarm_waiting(child_.pid(), child_.block())) << "a second time there is nothing to do";
}

TEST_F(Disarm, WhatIsNoBreakpointOfOursIsLeftAlone) {
  put(1, 0x90);  // the program has changed its code
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(byte_at(0), 0x55);
  EXPECT_EQ(byte_at(1), 0x90);
}

// Other code with a breakpoint of its own stands where a point was: none of its bytes is changed.
TEST_F(Disarm, ABreakpointInOtherCodeIsLeftAlone) {
  control::NewPoint gone;
  gone.address = child_.code() + 16, gone.insn = {0x55}, gone.following = {0x48, 0x89, 0xe5};
  ASSERT_TRUE(block_->add(target_, {gone}));
  put(16, 0xcc), put(17, 0xb8), put(18, 42);
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(byte_at(16), 0xcc);
  EXPECT_EQ(byte_at(0), 0x55);
  const auto block = Block::read(target_, child_.block());
  ASSERT_TRUE(block);
  EXPECT_EQ(block->points().back().state, static_cast<std::uint32_t>(shared::PointState::unmapped));
}

TEST_F(Disarm, APointWhoseMemoryIsGoneDoesNotKeepTheOthers) {
  control::NewPoint nowhere;
  nowhere.address = Addr{0x1000}, nowhere.insn = {0x90};
  ASSERT_TRUE(block_->add(target_, {nowhere}));
  control::NewPoint last;
  last.address = child_.code() + 4, last.insn = {0xc3};
  ASSERT_TRUE(block_->add(target_, {last}));
  put(4, 0xcc);
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(byte_at(4), 0xc3);
}

// A jump over an instruction of five bytes, and its current text.
class DisarmJump : public Disarm {
 protected:
  static constexpr std::uint64_t kAt = 32;
  static constexpr std::uint8_t kOriginal[] = {0xb8, 1, 2, 3, 4, 0xc3};

  void SetUp() override {
    Disarm::SetUp();
    control::NewPoint jump;
    jump.address = child_.code() + kAt, jump.copy = child_.code() + 128, jump.jump_to = child_.code() + 256;
    jump.jump_bytes = 5, jump.insn = {kOriginal, kOriginal + 5}, jump.following = {kOriginal + 1, kOriginal + 6};
    ASSERT_TRUE(block_->add(target_, {jump}));
    const shared::ArmedText armed = shared::armed_text(block_->points().back());
    put_text({armed.bytes, armed.bytes + 5});
    put(kAt + 5, kOriginal[5]);
  }
  void put_text(const std::vector<std::uint8_t>& bytes) {
    ASSERT_TRUE(target_.write(child_.code() + kAt, bytes.data(), bytes.size()));
  }
  std::vector<std::uint8_t> text() {
    std::vector<std::uint8_t> bytes(5);
    EXPECT_TRUE(target_.read(child_.code() + kAt, bytes.data(), bytes.size()));
    return bytes;
  }
  std::uint32_t state() { return Block::read(target_, child_.block())->points()[3].state; }
  const std::vector<std::uint8_t> original_{kOriginal, kOriginal + 5};
};

TEST_F(DisarmJump, TheOriginalComesBackWithTheBreakpoints) {
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(text(), original_);
  EXPECT_EQ(byte_at(0), 0x55);
  EXPECT_EQ(state(), static_cast<std::uint32_t>(shared::PointState::disarmed));
}

TEST_F(DisarmJump, ABreakpointWhereAJumpWasToBeGoesToo) {
  put_text({0xcc, 1, 2, 3, 4});
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(text(), original_);
}

// Its parent forked, or a tool was killed, while the jump came or went.
TEST_F(DisarmJump, WhatIsHalfWayIsBroughtBack) {
  const shared::ArmedText armed = shared::armed_text(block_->points().back());
  for (const int originals : {0, 2, 4}) {
    std::vector<std::uint8_t> halfway(armed.bytes, armed.bytes + 5);
    halfway[0] = 0xcc;
    std::copy_n(original_.begin() + 1, originals, halfway.begin() + 1);
    put_text(halfway);
    ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
    EXPECT_EQ(text(), original_);
    ASSERT_TRUE(block_->set_state(target_, 3, shared::PointState::armed));
  }
}

// A debugger keeps the first byte of the jump and will put it back.
TEST_F(DisarmJump, ABreakpointOfADebuggerIsLeftAlone) {
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, child_.pid(), 0, 0), 0);
  put(kAt, 0xcc);
  const auto before = text();
  EXPECT_FALSE(control::disarm_waiting(child_.pid(), child_.block())) << "the process still needs the agent";
  EXPECT_EQ(text(), before);
  EXPECT_EQ(byte_at(0), 0x55);
  put(kAt, 0xe9), put(kAt + 2, 0xcc);
  const auto inside = text();
  EXPECT_FALSE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(text(), inside);
}

TEST_F(DisarmJump, WhatTheProgramHasChangedIsLeftAlone) {
  put_text({0xe9, 9, 9, 9, 9});
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(text(), (std::vector<std::uint8_t>{0xe9, 9, 9, 9, 9}));
  EXPECT_EQ(byte_at(0), 0x55);
}

TEST_F(DisarmJump, OfAShortJumpTheSecondHalfStays) {
  control::NewPoint near, far;
  far.address = child_.code() + 80, far.copy = far.jump_to = child_.code() + 256, far.jump_bytes = 5;
  far.insn = {0x90, 0x90, 0x90, 0x90, 0x90};
  near.address = child_.code() + 64, near.copy = child_.code() + 192, near.jump_to = far.address, near.jump_bytes = 2;
  near.insn = {0x31, 0xc0};
  ASSERT_TRUE(block_->add(target_, {far, near}));
  const auto put_armed = [&](const shared::Point& point) {
    const shared::ArmedText armed = shared::armed_text(point);
    ASSERT_TRUE(target_.write(Addr{point.address}, armed.bytes, armed.length));
  };
  put_armed(block_->points()[4]), put_armed(block_->points()[5]);
  EXPECT_EQ(byte_at(64), 0xeb);
  EXPECT_EQ(byte_at(65), 14);
  ASSERT_TRUE(control::disarm_waiting(child_.pid(), child_.block()));
  EXPECT_EQ(byte_at(64), 0x31);
  EXPECT_EQ(byte_at(65), 0xc0);
  EXPECT_EQ(byte_at(80), 0xe9) << "a thread may be on its way there";
}

TEST_F(Disarm, WithoutABlockNothingIsTouched) {
  EXPECT_FALSE(control::disarm_waiting(child_.pid(), child_.code()));
  EXPECT_FALSE(control::disarm_waiting(child_.pid(), Addr{0}));
  EXPECT_EQ(byte_at(0), 0xcc);
  EXPECT_FALSE(control::disarm_waiting(0x7ffffff0, child_.block()));
}

// A process that exists only in memory, for the order of the writes, which a real one does not show.
TEST(TakeOut, TheAgentsOwnPointsGoWhenNoProbeIsLeft) {
  constexpr Addr kCode{0x400000}, kBlock{0x10000000};
  class Reachable : public control::Serializer {
   public:
    bool reaches = true;
    Status serialize() override { return reaches ? ok() : Status(Error{}); }
  } serializer;
  FakeTarget target;
  target.map_anonymous(kCode, kPage);
  target.map_anonymous(kBlock, Block::bytes_for({4}));
  auto block = Block::create(target, kBlock, {4}).take();
  control::NewPoint own, jump;
  own.address = kCode, own.copy = kCode + 256, own.insn = {0x90}, own.role = shared::PointRole::system_call;
  jump.address = kCode + 16, jump.copy = kCode + 320, jump.jump_to = kCode + 384, jump.jump_bytes = 5;
  jump.insn = {0xb8, 1, 2, 3, 4};
  ASSERT_TRUE(block.add(target, {own, jump}));
  for (const shared::Point& point : block.points()) {
    const shared::ArmedText armed = shared::armed_text(point);
    ASSERT_TRUE(target.write(Addr{point.address}, armed.bytes, armed.length));
  }
  serializer.reaches = false;
  target.on_write = [&](const FakeTarget::Write& w) { EXPECT_NE(w.at, own.address); };
  EXPECT_FALSE(control::take_out(target, block, serializer)) << "the jump has to stay as a breakpoint";
  EXPECT_EQ(target.get<std::uint8_t>(own.address), 0xcc);
  serializer.reaches = true;
  const shared::ArmedText armed = shared::armed_text(block.points()[1]);
  ASSERT_TRUE(target.write(jump.address, armed.bytes, armed.length));
  target.on_write = [&](const FakeTarget::Write& w) {
    EXPECT_TRUE(w.at != own.address || target.get<std::uint8_t>(jump.address) == 0xb8);
  };
  EXPECT_TRUE(control::take_out(target, block, serializer));
  EXPECT_EQ(target.get<std::uint8_t>(own.address), 0x90);
}

TEST(Processes, ThreadsBelongToTheirProcess) {
  EXPECT_EQ(control::process_of_thread(::gettid()), ::getpid());
  EXPECT_EQ(control::process_of_thread(0x7ffffff0), 0);
}

}  // namespace
}  // namespace uprobe::test
