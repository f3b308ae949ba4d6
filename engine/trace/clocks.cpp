// SPDX-License-Identifier: MIT
#include "engine/trace/clocks.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace uprobe::trace {

namespace {

constexpr std::array<std::string_view, kClocks> kNames = {"mono", "mono_raw", "boot", "tai", "global", "wall"};
constexpr std::size_t kEventPage = 4096, kEventRing = kEventPage;
constexpr int kClockTries = 10;

std::uint64_t clock_now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// What a clock shows at CLOCK_MONOTONIC `base`: the best of some readings, each between two of that clock. 0: it cannot be read.
template <class Read>
std::uint64_t beside(std::uint64_t base, const Read& read) {
  std::uint64_t best = 0, shortest = ~std::uint64_t{0};
  for (int i = 0; i < kClockTries; ++i) {
    const std::uint64_t before = clock_now(CLOCK_MONOTONIC), value = read(), took = clock_now(CLOCK_MONOTONIC) - before;
    if (value == 0) return 0;
    if (took >= shortest) continue;
    shortest = took;
    best = value - (before + took / 2 - base);
  }
  return best;
}

// An event that counts nothing; its ring gets a record each time when the thread is given a name.
int open_event() {
  perf_event_attr what{};
  what.size = sizeof what;
  what.type = PERF_TYPE_SOFTWARE;
  what.config = PERF_COUNT_SW_DUMMY;
  what.sample_type = PERF_SAMPLE_TIME;
  what.exclude_kernel = what.exclude_hv = 1;
  what.comm = what.sample_id_all = 1;
  return static_cast<int>(::syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

std::string_view name_of(ClockKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<ClockKind> clock_called(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<ClockKind>(found - kNames.begin()));
}

std::string clock_names() {
  std::string names;
  for (const std::string_view name : kNames) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

void ClockReader::open() {
  if (!wants_global_ || thread_ == ::gettid()) return;
  close();
  thread_ = ::gettid();
  event_ = open_event();
  if (event_ < 0) return;
  void* const page = ::mmap(nullptr, kEventPage + kEventRing, PROT_READ | PROT_WRITE, MAP_SHARED, event_, 0);
  if (page != MAP_FAILED) page_ = page;
}

void ClockReader::close() {
  if (page_ != nullptr) ::munmap(std::exchange(page_, nullptr), kEventPage + kEventRing);
  if (event_ >= 0) ::close(std::exchange(event_, -1));
}

// The record of the new name ends with its time. The name is the one that the thread has.
std::uint64_t ClockReader::global() const {
  char name[16] = {};
  if (page_ == nullptr || ::prctl(PR_GET_NAME, name) != 0 || ::prctl(PR_SET_NAME, name) != 0) return 0;
  auto* const head = static_cast<perf_event_mmap_page*>(page_);
  const std::uint64_t end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), begin = head->data_tail;
  std::uint64_t time = 0;
  // Records are whole words, so the last word is in one piece.
  if (end != begin)
    std::memcpy(&time, static_cast<const char*>(page_) + kEventPage + (end - sizeof time) % kEventRing, sizeof time);
  __atomic_store_n(&head->data_tail, end, __ATOMIC_RELEASE);
  return time;
}

ClockReading ClockReader::read() {
  open();
  const std::uint64_t base = clock_now(CLOCK_MONOTONIC);
  const auto read_clock = [&](clockid_t clock) { return beside(base, [clock] { return clock_now(clock); }); };
  return {{base, read_clock(CLOCK_MONOTONIC_RAW), read_clock(CLOCK_BOOTTIME), read_clock(CLOCK_TAI),
           page_ == nullptr ? 0 : beside(base, [this] { return global(); }), read_clock(CLOCK_REALTIME)}};
}

}  // namespace uprobe::trace
