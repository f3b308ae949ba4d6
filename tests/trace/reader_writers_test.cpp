// SPDX-License-Identifier: MIT
// The reader against real writers that run at the same time: threads, and processes that are killed at any instruction. In all
// cases each writer's records arrive complete, once, unchanged, and all of them in the order of time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engine/trace/reader.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using trace::Clock;
using trace::Reader;
using trace::TaskNames;

constexpr std::uint32_t kRings = 4;
constexpr std::uint32_t kMostWriters = 128;

// Shared with the writers: how many records each has published. A killed one may have published one more than its count.
struct Progress {
  std::atomic<std::uint64_t> published[kMostWriters];
  std::atomic<bool> stop;
};

Progress* shared_progress() {
  void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Progress{};
}

std::uint64_t word(std::uint64_t writer, std::uint64_t sequence, std::uint64_t index) {
  return (writer << 48 ^ sequence << 8 ^ index) * 0x9e3779b97f4a7c15ull;
}

// Between 1 and 40 words that follow from writer and sequence; the first is the sequence itself.
std::vector<std::uint8_t> make_numbered(std::uint32_t writer, std::uint64_t sequence) {
  std::uint64_t words[40] = {sequence};
  const std::size_t count = 1 + sequence * 7 % 40;
  for (std::size_t i = 1; i < count; ++i) words[i] = word(writer, sequence, i);
  return make_payload(0, writer, {reinterpret_cast<const std::uint8_t*>(words), count * 8});
}

void write_until(Area& area, Progress& progress, std::uint32_t writer, std::uint64_t count) {
  const auto tid = static_cast<std::uint32_t>(::gettid());
  for (std::uint64_t sequence = 0; sequence < count && !progress.stop.load(std::memory_order_relaxed);) {
    const std::vector<std::uint8_t> payload = make_numbered(writer, sequence);
    bool published = false;
    for (std::uint32_t i = 0; i < kRings && !published; ++i) {
      RingWriter ring(area, static_cast<std::uint32_t>((sequence + writer + i) % kRings));
      if (!ring.claim(tid)) continue;
      const std::uint64_t now = Clock::now();
      ring.stamp(now);
      published = ring.build(now, payload);
      if (published) ring.commit();
      ring.give_back();
    }
    if (!published) {
      std::this_thread::yield();
      continue;
    }
    progress.published[writer].store(++sequence, std::memory_order_release);
  }
}

// Checks each record as it arrives.
class Judge {
 public:
  trace::Sink sink() {
    return [this](const trace::EventRecord& record) { take(record); };
  }
  void take(const trace::EventRecord& record) {
    ++total_;
    if (record.ns < last_ns_) ++out_of_order_;
    last_ns_ = record.ns;
    const std::uint64_t sequence = argument_of(record);
    const std::vector<std::uint8_t> expected = make_numbered(record.tid, sequence);
    if (!std::equal(expected.begin(), expected.end(), record.payload.begin(), record.payload.end())) ++torn_;
    if (record.tid < kMostWriters) sequences_[record.tid].push_back(sequence);
  }
  std::uint64_t total() const { return total_; }

  void expect_all_right(const Progress& progress, const Reader& reader) {
    EXPECT_EQ(torn_, 0u);
    EXPECT_EQ(out_of_order_, 0u);
    EXPECT_EQ(reader.counts().damaged + reader.counts().missing + reader.counts().order_breaks, 0u);
    for (std::uint32_t writer = 0; writer < kMostWriters; ++writer) {
      std::vector<std::uint64_t>& got = sequences_[writer];
      std::sort(got.begin(), got.end());
      const std::uint64_t published = progress.published[writer];
      EXPECT_TRUE(got.size() == published || got.size() == published + 1)
          << "writer " << writer << ": " << got.size() << " of " << published;
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i) << "writer " << writer;
    }
  }

 private:
  std::uint64_t total_ = 0, torn_ = 0, out_of_order_ = 0, last_ns_ = 0;
  std::vector<std::uint64_t> sequences_[kMostWriters];
};

trace::ReaderOptions real_time_options() {
  trace::ReaderOptions options;
  options.reclaim_after = std::chrono::milliseconds(1);
  options.stall_after = std::chrono::hours(1);  // however busy the machine is
  return options;
}

TEST(ReaderAndWriters, ThreadsLoseNothing) {
  constexpr std::uint64_t kEach = 30'000;
  constexpr std::uint32_t kWriters = 4;
  Area area = make_area(kRings, 16384, {make_program(24)});
  Progress* progress = shared_progress();
  Clock clock = Clock::start();
  TaskNames names("/nonexistent");
  Reader reader(area, clock, names, real_time_options());
  Judge judge;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kWriters; ++i) threads.emplace_back([&, i] { write_until(area, *progress, i, kEach); });
  while (judge.total() < kWriters * kEach * 9 / 10) reader.poll(judge.sink());
  // The rest fits into the rings only as they are read.
  const auto all_published = [&] {
    for (std::uint32_t i = 0; i < kWriters; ++i)
      if (progress->published[i] != kEach) return false;
    return true;
  };
  while (!all_published()) reader.poll(judge.sink());
  for (std::thread& thread : threads) thread.join();
  reader.finish(judge.sink());
  EXPECT_EQ(judge.total(), kWriters * kEach);
  judge.expect_all_right(*progress, reader);
  ::munmap(progress, sizeof *progress);
}

class Child {
 public:
  Child(Area& area, Progress& progress, std::uint32_t writer) : pid_(::fork()) {
    if (pid_ != 0) return;
    std::thread second([&] { write_until(area, progress, writer + 1, ~0ull); });
    write_until(area, progress, writer, ~0ull);
    second.join();
    ::_exit(0);
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  void wait() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

// Thirty processes of two threads are killed at any instruction.
TEST(ReaderAndWriters, KilledProcessesLeaveNoTrace) {
  Area area = make_area(kRings, 16384, {make_program(24)});
  Progress* progress = shared_progress();
  Clock clock = Clock::start();
  TaskNames names("/nonexistent");
  Reader reader(area, clock, names, real_time_options());
  Judge judge;
  std::vector<Child> children;
  std::uint32_t writer = 0;
  for (; writer < 6; writer += 2) children.emplace_back(area, *progress, writer);
  for (int killed = 0; killed < 30; ++killed) {
    const std::uint64_t wanted = judge.total() + 3000;
    while (judge.total() < wanted) reader.poll(judge.sink());
    children.front().kill();
    children.front().wait();
    children.erase(children.begin());
    children.emplace_back(area, *progress, writer);
    writer += 2;
  }
  progress->stop = true;
  for (const Child& child : children) child.wait();
  reader.finish(judge.sink());
  EXPECT_GE(judge.total(), 90'000u);
  judge.expect_all_right(*progress, reader);
  ::munmap(progress, sizeof *progress);
}

// A process dies while it has claimed every ring: they come back, and no half record is ever seen.
TEST(ReaderAndWriters, RingsOfADeadProcessComeBack) {
  Area area = make_area(kRings, 16384, {make_program(24)});
  Progress* progress = shared_progress();
  Clock clock = Clock::start();
  TaskNames names("/nonexistent");
  Reader reader(area, clock, names, real_time_options());
  Judge judge;
  const pid_t child = ::fork();
  if (child == 0) {
    for (std::uint32_t i = 0; i < kRings; ++i) {
      RingWriter ring(area, i);
      ring.claim(static_cast<std::uint32_t>(::gettid()));
      ring.stamp(Clock::now());
      ring.build(Clock::now(), make_numbered(9, 0), 0, 3);
    }
    ::kill(::getpid(), SIGKILL);
  }
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // a zombie counts as dead
  while (reader.counts().reclaimed_rings < kRings) reader.poll(judge.sink());
  ::waitpid(child, nullptr, 0);
  write_until(area, *progress, 0, 100);
  reader.finish(judge.sink());
  EXPECT_EQ(judge.total(), 100u);
  EXPECT_EQ(reader.counts().reclaimed_rings, kRings);
  judge.expect_all_right(*progress, reader);
  ::munmap(progress, sizeof *progress);
}

}  // namespace
}  // namespace uprobe::test
