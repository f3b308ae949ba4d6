// SPDX-License-Identifier: MIT
#include "engine/service/domain_guard.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>

#include "engine/base/exhaustion.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/process/members.h"
#include "engine/proxy/proxy.h"
#include "engine/target/attachable.h"

namespace uprobe::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSwitchPace = 10ms;
constexpr std::chrono::milliseconds kLookPace = 60ms;  // together with the check itself and a stop less than 100
constexpr int kMostMoves = 64;                         // per process
constexpr Clock::duration kMostMoving = 2s;            // the same of time, in which others wait
constexpr std::size_t kMostNotes = 20, kMostTroubles = 4096;
constexpr auto kAgain = 20ms;
constexpr int kMostDoublings = 8;
constexpr std::uint64_t kMostBytes =
    1 << 30;  // of further parts, if all of them were full; two parts are always allowed

}  // namespace

DomainGuard::DomainGuard(trace::Area& area, const Credentials& first, const target::EarlierProcesses& earlier)
    : area_(area),
      domains_([&area]() -> Result<std::size_t> {
        const std::uint64_t part_bytes = area.span_bytes() / 2;  // rings are mapped twice
        if (area.live_count() > std::max<std::uint64_t>(2, kMostBytes / part_bytes))
          return Error{.code = Code::limit,
                       .text = "the buffers for so many different credentials would take too much memory"};
        return area.add_live();
      }),
      carrier_(area),
      watch_(
          [&area](pid_t pid) -> SessionWatch::Found {
            // A child that runs in its parent's memory (vfork) has the parent's part, so it is not checked as long as it does.
            const auto member = open_member(area, pid);
            if (!member) return {};
            if (target::borrows_memory(pid)) return {.is_for_now = true};
            return {.part = member->part};
          },
          [this](std::size_t part) { return domains_.domain_of(part); }, earlier) {
  static_cast<void>(part_of(first));
  thread_ = start_signal_masked_thread([this] { loop(); }, {SIGCHLD});
}

void DomainGuard::stop() {
  {
    const std::lock_guard lock(stop_lock_);
    stop_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// False: it is to stop, which a program that is short-lived would wait for.
bool DomainGuard::rests(std::chrono::milliseconds pace) {
  std::unique_lock lock(stop_lock_);
  return !ends_.wait_for(lock, pace, [this] { return stop_; });
}

void DomainGuard::loop() {
  const auto pace = area_.has_switches() ? kSwitchPace : kLookPace;
  auto next_look = Clock::now();
  proxy::limit_patience(50ms);  // others wait for the look to end
  proxy::insist();
  do {
    static_cast<void>(catch_resource_exhaustion([&] {
      carrier_.step(domains_);
      if (Clock::now() >= next_look) look_at_all(), next_look = Clock::now() + kLookPace;
      return ok();
    }));
  } while (rests(pace));
}

// A part in which triggers may change programs is marked before a process has it.
Result<std::size_t> DomainGuard::part_of(const Credentials& credentials) {
  auto part = domains_.part_for(credentials);
  if (part && is_own_user(credentials))
    std::atomic_ref(area_.live(*part).header().changes_allowed).store(1, std::memory_order_relaxed);
  return part;
}

Result<std::size_t> DomainGuard::part_for(pid_t pid) {
  const auto credentials = credentials_of(pid);
  if (!credentials) return credentials.error();
  return part_of(*credentials);
}

void DomainGuard::has_come(pid_t pid) {
  const std::lock_guard lock(lock_);
  troubles_.erase(pid), failing_.erase(pid);
  watch_.forget(pid);
}

// A process that does not stop takes some tenths of a second. Those that have been tried least come first, and there is a next look soon.
void DomainGuard::look_at_all() {
  const auto until = Clock::now() + kLookPace;
  for (const pid_t pid : find_strays()) {
    look_at(pid);
    if (Clock::now() >= until) break;
  }
}

std::vector<pid_t> DomainGuard::find_strays() {
  const std::lock_guard lock(lock_);
  std::vector<std::pair<int, pid_t>> found;
  for (const SessionWatch::Stray& stray : watch_.step()) {
    const auto trouble = troubles_.find(stray.pid);
    const bool is_known = trouble != troubles_.end();
    if (!is_known || trouble->second.next <= Clock::now())
      found.emplace_back(is_known ? trouble->second.tries + trouble->second.moves : 0, stray.pid);
  }
  std::ranges::stable_sort(found, {}, &std::pair<int, pid_t>::first);
  std::vector<pid_t> pids;
  pids.reserve(found.size());
  for (const auto& [tries, pid] : found) pids.push_back(pid);
  return pids;
}

// Its credentials are read here: what was read before another thread has moved it may be wrong by now.
void DomainGuard::look_at(pid_t pid) {
  std::unique_lock lock(lock_);
  moved_.wait(lock, [&] { return !moving_.contains(pid); });
  const auto stray = watch_.look_at(pid);
  if (!stray) return;
  if (troubles_.size() > kMostTroubles) troubles_.clear();
  const Trouble trouble = troubles_[pid];
  if (Clock::now() < trouble.next) return;
  const auto part = part_of(stray->credentials);
  const bool is_restless = trouble.moves == kMostMoves || trouble.spent > kMostMoving;
  moving_.insert(pid);
  lock.unlock();
  // Without a part to move to, its part is taken away.
  const auto begun = Clock::now();
  auto failure = move(pid, part && !is_restless ? std::optional(*part) : std::nullopt);
  lock.lock();
  troubles_[pid].spent = trouble.spent + (Clock::now() - begun);
  moving_.erase(pid);
  moved_.notify_all();
  if (failure && failure->is_cut_off && !part) failure->error = part.error();
  if (failure && failure->is_cut_off && is_restless) failure->error.text = "it changed them too often";
  note(pid, failure);
}

void DomainGuard::note(pid_t pid, const std::optional<MoveFailure>& failure) {
  Trouble& trouble = troubles_[pid];
  failing_.erase(pid);
  if (!failure) {
    trouble = {.moves = trouble.moves + 1, .spent = trouble.spent};
    return watch_.forget(pid);
  }
  if (!failure->is_cut_off) {
    // A stop disturbs the process: one that failed is repeated ever more rarely.
    trouble.next = Clock::now() + kAgain * (1 << std::min(trouble.tries++, kMostDoublings));
    return fail(pid, failure->error);
  }
  if (notes_.size() < kMostNotes)
    notes_.insert(procfs::called(pid) +
                  " has changed its credentials and is no longer recorded: " + failure->error.text);
  watch_.forget(pid);
}

// On a thread of its own: after a failed stop the kernel releases some threads only when their tracer thread ends.
std::optional<MoveFailure> DomainGuard::move(pid_t pid, std::optional<std::size_t> part) {
  std::optional<MoveFailure> failure;
  start_signal_masked_thread(
      [&] {
        proxy::limit_patience(50ms);
        proxy::insist();
        const Status made = catch_resource_exhaustion([&] { return failure = move_to_part(pid, area_, part), ok(); });
        if (!made) failure = MoveFailure{.error = made.error()};
      },
      {SIGCHLD})
      .join();
  return failure;
}

// The move is tried again.
void DomainGuard::fail(pid_t pid, const Error& error) {
  if (error.code == Code::not_found || failing_.size() == kMostNotes) return;
  failing_[pid] = procfs::called(pid) +
                  " has changed its credentials and still shares buffers with processes of the old ones: " + error.text;
}

std::vector<std::string> DomainGuard::notes() const {
  const std::lock_guard lock(lock_);
  std::vector<std::string> all(notes_.begin(), notes_.end());
  for (const auto& [pid, note] : failing_) all.push_back(note);
  return all;
}

}  // namespace uprobe::control
