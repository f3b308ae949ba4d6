// SPDX-License-Identifier: MIT
// Processes of several threads that hit as fast as they can, alarms whose handlers hit as well and leave by siglongjmp, and
// a reader that kills processes and checks every record: nothing torn, nothing twice, nothing unaccounted for.
//
// A stream is a thread's hits, or its handlers'. A stream's own account is one word, so that the accounting cannot tear where
// the hits do: attempts << 1 | one is under way.
#pragma once

#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "engine/trace/reader.h"
#include "tests/agent/recording.h"

namespace uprobe::test {

inline constexpr u32 kTortureFixed = 36;  // head, sequence, stream, locator
inline constexpr u32 kMostStreams = 8192;

struct TortureShared {
  std::atomic<u64> state[kMostStreams];
  std::atomic<u32> streams;
  std::atomic<u64> abandoned, jumps, signals;
  std::atomic<bool> stop;
};

inline u64 mixed(u64 sequence, u64 stream) { return (sequence ^ stream << 40) * 0x9e3779b97f4a7c15ull >> 20; }

// The string of a record: its length and letters follow from sequence and stream. One in 256 is long.
inline void torture_text(u64 sequence, u64 stream, char* text) {
  const u64 x = mixed(sequence, stream);
  const u64 length = x % 256 == 0 ? 2000 : x % 24;
  for (u64 i = 0; i < length; ++i) text[i] = static_cast<char>('a' + (x + i * 7) % 26);
  text[length] = 0;
}

// ax = sequence, bx = stream, di = text
inline std::vector<shared::Insn> torture_program() {
  using shared::Op;
  using shared::Reg;
  const auto reg = [](Reg r) { return shared::Insn{Op::load_register, static_cast<u8>(r), 0, 0, 0}; };
  return {{Op::begin, 0, 0, 0, 0}, reg(Reg::ax), {Op::store_value, 8, 0, 16, 0},
          {Op::begin, 0, 0, 0, 0}, reg(Reg::bx), {Op::store_value, 8, 0, 24, 0},
          {Op::begin, 0, 0, 0, 0}, reg(Reg::di), {Op::store_string, 4, 0, 32, 0},
          {Op::end, 0, 0, 0, 0}};
}

struct TortureThread {
  u32 first = 0;  // stream
  sigjmp_buf out;
  volatile bool armed = false;
  u64 random = 0;
};

class Torture {
 public:
  using HitFunction = void (*)(u64 sequence, u64 stream, const char* text);

  Torture(OneEvent& session, HitFunction hit) : session_(session) {
    hit_ = hit;
    void* memory = ::mmap(nullptr, sizeof(TortureShared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) TortureShared{};
  }
  ~Torture() { ::munmap(shared_, sizeof(TortureShared)); }

  void run(double seconds);
  void expect_all_accounted_for();

 private:
  static constexpr int kProcesses = 3, kThreads = 4;
  static void one_hit(u32 stream);
  static void on_alarm(int);
  static void thread_main(u32 number);
  static void process_main();
  static pid_t start_process();
  void judge(const trace::EventRecord& record);
  trace::ReaderOptions options() const {
    trace::ReaderOptions options;
    options.stall_after = options.section_stall_after = std::chrono::hours(1);  // however busy the machine is
    options.reclaim_after = std::chrono::milliseconds(1);
    return options;
  }

  static inline HitFunction hit_ = nullptr;
  static inline TortureShared* shared_ = nullptr;
  static inline thread_local TortureThread thread_;
  OneEvent& session_;
  trace::Clock clock_ = trace::Clock::start();
  trace::TaskNames names_{"/nonexistent"};
  trace::Reader reader_{session_.area(), clock_, names_, options()};
  std::vector<std::vector<bool>> seen_{kMostStreams};
  u64 records_ = 0, torn_ = 0, twice_ = 0, kills_ = 0;
};

inline void Torture::one_hit(u32 stream) {
  const u64 sequence = shared_->state[stream].load(std::memory_order_relaxed) / 2;
  char text[2048];
  torture_text(sequence, stream, text);
  shared_->state[stream].store((sequence + 1) << 1 | 1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  hit_(sequence, stream, text);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  shared_->state[stream].store((sequence + 1) << 1, std::memory_order_relaxed);
}

inline void Torture::on_alarm(int) {
  ++shared_->signals;
  TortureThread& thread = thread_;
  if (!thread.armed) return;
  for (int i = 0; i < 3; ++i) one_hit(thread.first + 1);
  thread.random = thread.random * 6364136223846793005ull + 1442695040888963407ull;
  if (thread.random >> 60 != 0) return;
  ++shared_->jumps;
  thread.armed = false;
  siglongjmp(thread.out, 1);
}

inline void Torture::thread_main(u32 number) {
  TortureThread& thread = thread_;
  thread.first = shared_->streams.fetch_add(2);
  if (thread.first + 2 > kMostStreams) return;
  thread.random = thread.first * 7919ull;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGALRM;
  event._sigev_un._tid = ::gettid();
  timer_t timer{};
  ::timer_create(CLOCK_MONOTONIC, &event, &timer);
  const long nanoseconds = 100'000 + 300'000 * number;
  const itimerspec pace{{0, nanoseconds}, {0, nanoseconds}};
  ::timer_settime(timer, 0, &pace, nullptr);
  if (sigsetjmp(thread.out, 1) != 0) {
    auto& state = shared_->state[thread_.first];
    if ((state & 1) != 0) ++shared_->abandoned, state &= ~u64{1};
  }
  thread_.armed = true;
  while (!shared_->stop.load(std::memory_order_relaxed)) one_hit(thread_.first);
  thread_.armed = false;
  ::timer_delete(timer);
}

inline void Torture::process_main() {
  struct sigaction action {};
  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::thread> threads;
  for (u32 i = 0; i < kThreads; ++i) threads.emplace_back(thread_main, i);
  for (std::thread& thread : threads) thread.join();
  ::_exit(0);
}

inline pid_t Torture::start_process() {
  const pid_t pid = ::fork();
  if (pid == 0) process_main();
  return pid;
}

inline void Torture::judge(const trace::EventRecord& record) {
  u64 sequence = 0, stream = 0;
  u32 locator = 0;
  std::memcpy(&sequence, record.payload.data() + 16, 8);
  std::memcpy(&stream, record.payload.data() + 24, 8);
  std::memcpy(&locator, record.payload.data() + 32, 4);
  ++records_;
  if (stream >= kMostStreams || sequence > u64{1} << 40) {
    ++torn_;
    return;
  }
  char text[2048];
  torture_text(sequence, stream, text);
  const std::size_t bytes = std::strlen(text) + 1;
  const bool whole = locator == (bytes << 16 | kTortureFixed) && record.payload.size() == kTortureFixed + bytes &&
                     std::memcmp(record.payload.data() + kTortureFixed, text, bytes) == 0;
  if (!whole) ++torn_;
  auto& seen = seen_[stream];
  if (seen.size() <= sequence) seen.resize(sequence * 2 + 1024);
  if (seen[sequence]) ++twice_;
  seen[sequence] = true;
}

inline void Torture::run(double seconds) {
  const trace::Sink sink = [this](const trace::EventRecord& record) { judge(record); };
  pid_t processes[kProcesses];
  for (pid_t& process : processes) process = start_process();
  std::mt19937_64 random(1);
  const auto begin = std::chrono::steady_clock::now();
  auto next_kill = begin;
  while (std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds)) {
    reader_.poll(sink);
    if (std::chrono::steady_clock::now() < next_kill || shared_->streams > kMostStreams - 64) continue;
    next_kill = std::chrono::steady_clock::now() + std::chrono::milliseconds(10 + random() % 60);
    pid_t& process = processes[random() % kProcesses];
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    ++kills_;
    process = start_process();
  }
  shared_->stop = true;
  for (const pid_t process : processes) ::waitpid(process, nullptr, 0);
  reader_.finish(sink);
}

inline void Torture::expect_all_accounted_for() {
  u64 attempts = 0, abandoned = shared_->abandoned;
  for (const auto& state : shared_->state) attempts += state / 2, abandoned += state & 1;
  const shared::EventCounts& event = session_.counts();
  const u64 lost = event.lost_full + event.lost_busy;
  std::printf("%llu hits: %llu recorded, %llu lost, %llu abandoned; %llu signals, %llu jumps, %llu kills\n",
              static_cast<unsigned long long>(attempts), static_cast<unsigned long long>(records_),
              static_cast<unsigned long long>(lost), static_cast<unsigned long long>(abandoned),
              static_cast<unsigned long long>(shared_->signals), static_cast<unsigned long long>(shared_->jumps),
              static_cast<unsigned long long>(kills_));
  EXPECT_GT(records_, 0U);
  EXPECT_GT(shared_->jumps, 0U);
  EXPECT_EQ(torn_, 0U);
  EXPECT_EQ(twice_, 0U);
  EXPECT_EQ(event.lost_too_big, 0U);
  EXPECT_LE(records_ + lost, attempts);
  EXPECT_GE(records_ + lost + abandoned, attempts);
  const trace::ReaderCounts& counts = reader_.counts();
  EXPECT_EQ(counts.damaged + counts.missing + counts.bad_stamps, 0U);
  EXPECT_EQ(counts.order_breaks, 0U);
}

// A longer time by UPROBE_TORTURE_SECONDS.
inline double torture_seconds() {
  const char* wanted = std::getenv("UPROBE_TORTURE_SECONDS");
  return wanted != nullptr ? std::atof(wanted) : 3;
}

}  // namespace uprobe::test
