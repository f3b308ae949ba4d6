// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arch/code/finishing_code.h"
#include "engine/base/procfs.h"
#include "engine/target/stopped_process.h"
#include "engine/target/thread_change.h"

namespace uprobe::test {
namespace {

using target::MemoryPiece;
using target::StoppedProcess;

constexpr std::size_t kBytes = 16384;

std::uint8_t* map(int protection, int flags) {
  void* const at = ::mmap(nullptr, kBytes, protection, flags | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(at);
}

// A child with three threads ends with 7 when `word` is set.
pid_t start(volatile std::uint8_t* word, bool locks) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (locks) ::mlock(const_cast<std::uint8_t*>(word), 1);
  const auto wait = [word] {
    while (*word == 0) ::usleep(1000);
  };
  std::thread one(wait), other(wait);
  wait();
  one.join();
  other.join();
  ::_exit(7);
}

int end_of(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string maps_of(pid_t pid) {
  auto text = procfs::read(pid, "maps");
  return text ? text.take() : "";
}

class AllOrNone : public testing::Test {
 protected:
  void hold(bool locks = false) {
    text_ = map(PROT_READ | PROT_EXEC, MAP_PRIVATE);
    word_ = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    child_ = start(word_, locks);
    while (target::threads_of(child_).size() < 3) ::usleep(1000);
    auto held = StoppedProcess::hold(child_);
    ASSERT_TRUE(held) << held.error().text;
    held_ = held.take();
  }
  void TearDown() override {
    held_.reset();
    *word_ = 1;
    EXPECT_EQ(end_of(child_), 7);
    ::munmap(text_, kBytes);
    ::munmap(word_, kBytes);
  }
  Addr at(std::size_t offset) const { return Addr{reinterpret_cast<std::uint64_t>(text_) + offset}; }
  std::uint8_t seen(std::size_t offset) {
    std::uint8_t byte = 0xff;
    EXPECT_TRUE(held_->read(at(offset), &byte, 1));
    return byte;
  }

  std::uint8_t* text_ = nullptr;
  std::uint8_t* word_ = nullptr;
  pid_t child_ = 0;
  std::unique_ptr<StoppedProcess> held_;
};

TEST_F(AllOrNone, WritesAndLeavesTheProcessAsItWas) {
  hold();
  const std::string before = maps_of(child_);
  const auto places = held_->places();
  const std::array<std::uint8_t, 2> sevens{7, 7};
  const std::array<MemoryPiece, 2> pieces{MemoryPiece{at(1), {sevens.data(), 1}}, MemoryPiece{at(4096), sevens}};
  const Status written = target::write_all_or_none(*held_, pieces);
  ASSERT_TRUE(written) << written.error().text;
  EXPECT_EQ((std::array{seen(0), seen(1), seen(4096), seen(4097), seen(4098)}),
            (std::array<std::uint8_t, 5>{0, 7, 7, 7, 0}));
  EXPECT_EQ(maps_of(child_), before);
  const auto now = held_->places();
  ASSERT_EQ(now.size(), 3U);
  for (std::size_t i = 0; i < now.size(); ++i)
    EXPECT_EQ(std::pair(now[i].ip, now[i].sp), std::pair(places[i].ip, places[i].sp));
}

TEST_F(AllOrNone, LocksNothingMore) {
  hold(true);
  const std::array<std::uint8_t, 1> seven{7};
  const std::array<MemoryPiece, 2> pieces{MemoryPiece{at(1), seven}, MemoryPiece{at(4096), seven}};
  const Status refused = target::write_all_or_none(*held_, pieces);
  EXPECT_EQ(refused ? Code::usage : refused.error().code, Code::refused);
  EXPECT_EQ(seen(1), 0);
  EXPECT_TRUE(held_->write_all(pieces));
  EXPECT_EQ(std::pair(seen(1), seen(4096)), (std::pair<std::uint8_t, std::uint8_t>(7, 7)));
}

TEST_F(AllOrNone, WritesNothingWhereThereIsNoMemory) {
  hold();
  const std::array<std::uint8_t, 1> seven{7};
  const std::array<MemoryPiece, 2> pieces{MemoryPiece{at(1), seven}, MemoryPiece{Addr{16}, seven}};
  EXPECT_FALSE(target::write_all_or_none(*held_, pieces));
  EXPECT_EQ(seen(1), 0);
}

// As if the tool had been killed: every thread makes the writes, and the last one closes the text.
TEST_F(AllOrNone, ThreadsThatAreLeftAloneWriteToTheEnd) {
  struct List {
    arch::UnfinishedWrites head;
    arch::ListedMapping mapping;
    std::array<arch::ListedByte, 2> bytes;
  };
  std::uint8_t* const open = map(PROT_READ | PROT_WRITE, MAP_SHARED);
  auto* const list = reinterpret_cast<List*>(map(PROT_READ | PROT_WRITE, MAP_SHARED));
  std::uint8_t* const code = map(PROT_READ | PROT_EXEC, MAP_PRIVATE);
  const auto number = [](const void* of) { return reinterpret_cast<std::uint64_t>(of); };
  *list = {.head = {.bytes = 2,
                    .threads = 3,
                    .mappings = 1,
                    .reserved = 0,
                    .mapping_list = number(&list->mapping),
                    .byte_list = number(list->bytes.data())},
           .mapping = {number(open), kBytes, PROT_READ},
           .bytes = {{{number(open + 5), 8}, {number(open + 4096), 9}}}};
  hold();
  std::uint64_t next = number(code);
  for (const StoppedProcess::Thread& thread : std::vector<StoppedProcess::Thread>(held_->threads())) {
    const auto bytes = arch::make_finishing_code(number(list), target::way_home(thread.registers, thread.mask));
    ASSERT_TRUE(held_->write(Addr{next}, bytes.data(), bytes.size()));
    arch::ThreadRegisters r = thread.registers;
    arch::set_instruction_pointer(r, next);
    arch::forget_call(r);
    ASSERT_TRUE(held_->set_registers(thread.tid, r));
    ASSERT_TRUE(held_->set_mask(thread.tid, ~std::uint64_t{0}));
    next += bytes.size();
  }
  held_.reset();
  while (__atomic_load_n(&list->head.threads, __ATOMIC_SEQ_CST) != 0) ::usleep(100);
  EXPECT_EQ(std::pair(open[5], open[4096]), (std::pair<std::uint8_t, std::uint8_t>(8, 9)));
  char line[64];
  std::snprintf(line, sizeof line, "%lx-%lx r--s", number(open), number(open) + kBytes);
  while (maps_of(child_).find(line) == std::string::npos) ::usleep(100);
}

}  // namespace
}  // namespace uprobe::test
