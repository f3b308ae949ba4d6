// SPDX-License-Identifier: MIT
#include "engine/arm/future_jumps.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "arch/code/scan.h"
#include "engine/arm/barring.h"
#include "engine/arm/process_arming.h"
#include "engine/base/exhaustion.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/patch/patch.h"
#include "engine/patch/thread_look.h"
#include "engine/process/processes.h"
#include "engine/shared/future_jump.h"
#include "engine/target/attachable.h"
#include "engine/target/process_stat.h"

namespace uprobe::control {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestTurn = 30ms;  // requests of agents wait for so long
constexpr int kShare = 100;          // a thread is stopped for at most this part of the time
constexpr int kManyLooks = 100;      // after so many a thread seems to stay inside
constexpr std::chrono::nanoseconds kLongPause = 1s;
constexpr std::size_t kManyProcesses = 64;

// The instructions of a window after its first, as far as the jump overwrites them; nothing: the bytes are none.
std::optional<std::vector<Addr>> middle_of(const shared::Point& point, const shared::Undo& undo) {
  std::vector<Addr> middle;
  for (std::size_t at = 0; at < shared::kJumpBytes;) {
    if (at != 0) middle.push_back(Addr{point.address + at});
    if (at >= point.code_bytes) break;  // padding, which is never executed
    arch::Scanned insn;
    if (!arch::scan({undo.original + at, sizeof undo.original - at}, Addr{point.address + at}, insn))
      return std::nullopt;
    if (at == 0 && insn.length != point.insn_bytes) return std::nullopt;
    at += insn.length;
  }
  return middle;
}

// Whether a thread that is in the copy of another point, armed now or once, may come out in the middle of the window.
bool leads_inside(const Block& block, const shared::Point& point) {
  constexpr std::uint64_t kLongest = 2 * sizeof(shared::Undo::original);
  const std::uint64_t end = point.address + shared::kJumpBytes;
  const auto near = block.points_in(Addr{point.address - kLongest}, Addr{end});
  return std::ranges::any_of(near, [&](std::uint32_t i) {
    const shared::Point& other = block.points()[i];
    if (other.address == point.address) return false;
    const std::uint64_t begin = other.address - other.prefix_window, leads_to = other.address + other.code_bytes;
    const bool overlaps = begin < end && point.address < other.address + other.jump_bytes;
    return overlaps || other.address > point.address || (leads_to > point.address && leads_to < end);
  });
}

// Whether the kernel has executed an instruction under a uprobe there. One that is set on the tool's breakpoint does not change the
// text, and sends threads into the middle of the window.
bool has_kernel_uprobes(const std::vector<target::Mapping>& maps) {
  return std::ranges::any_of(maps, [](const target::Mapping& m) { return m.path == "[uprobes]"; });
}

// What tells against the jump for good; null: nothing.
const char* obstacle(const Block& block, std::uint32_t index, const std::vector<target::Mapping>& maps) {
  const shared::Point& point = block.points()[index];
  const Addr begin{point.address}, end = begin + shared::kJumpBytes;
  const target::Mapping* m = target::mapping_at(maps, begin);
  if (m == nullptr || !can_be_armed(*m) || m->end < end || m->begin.value - m->offset != point.file_bias)
    return "its code is not mapped as it was";
  if (const char* barred = reason_barred(block, *m, begin, end)) return barred;
  const bool has_middle = point.insn_bytes < shared::kJumpBytes;
  if (has_middle && has_kernel_uprobes(maps)) return "the kernel's uprobes are at work in the process";
  return leads_inside(block, point) ? "another probe is or was too near" : nullptr;
}

// Bit i: the byte i + 1 after `address` is one of a jump's.
std::uint16_t bits_after(std::uint64_t address, std::uint64_t jump) {
  std::uint16_t bits = 0;
  for (std::uint64_t byte = std::max(jump, address + 1); byte < jump + shared::kJumpBytes; ++byte)
    if (byte - address - 1 < shared::kMostFollowing)
      bits = static_cast<std::uint16_t>(bits | 1U << (byte - address - 1));
  return bits;
}

bool is_gone(pid_t pid, pid_t tid) {
  const auto status = procfs::read(pid, tid, "status");
  const std::string_view state = status ? procfs::field(*status, "State").value_or("") : "X";
  return state.starts_with('Z') || state.starts_with('X');
}

// The next of them after `latest`, in a circle.
std::vector<pid_t> in_turn(const std::set<pid_t>& threads, pid_t latest) {
  std::vector<pid_t> all(threads.begin(), threads.end());
  std::rotate(all.begin(), std::ranges::upper_bound(all, latest), all.end());
  return all;
}

}  // namespace

void FutureJumps::note(const Block& block, std::uint32_t point, const std::string& why) {
  for (const shared::Consumer& consumer : block.list_of(point)) state_.report.against[consumer.event] = why;
}

// Programs that end with future jumps leave their proofs here.
void FutureJumps::forget_ended() {
  if (processes_.size() < kManyProcesses) return;
  state_.awaited.forget_if([](pid_t pid) { return target::has_ended(pid); });
  std::erase_if(processes_, [](const auto& known) { return target::has_ended(known.first); });
}

Status FutureJumps::step(target::Target& target, Addr at, std::span<const std::uint32_t> points) {
  const pid_t pid = target.pid();
  if (points.empty()) return forget(pid), ok();
  auto block = state_.known.read(target, at);
  if (!block) return block.error();
  const auto tracer = procfs::tracer_of(pid);
  const bool is_traced = tracer != 0;  // or has ended
  const bool is_anothers = tracer.value_or(0) != 0 && tracer != ::getpid();
  const shared::ProcessBlock& head = block->head();
  if (is_traced || head.left != 0 || is_being_changed(head) || target::borrows_memory(pid)) {
    forget(pid);
    for (const std::uint32_t i : points)
      if (is_anothers && i < block->points().size()) note(*block, i, "another program traces the process");
    return ok();
  }
  forget_ended();
  Process& process = processes_[pid];
  if (std::exchange(process.stamp, block->stamp()) != block->stamp()) process = {.stamp = block->stamp(), .proofs = {}};
  return step(target, *block, process, points);
}

Status FutureJumps::step(target::Target& target, Block& block, Process& process,
                         std::span<const std::uint32_t> points) {
  const auto maps = target.maps();
  if (!maps) return maps.error();
  std::vector<std::uint32_t> possible, proved;
  for (const std::uint32_t i : points) {
    if (i >= block.points().size()) continue;
    const shared::Point& point = block.points()[i];
    std::uint8_t now[shared::kJumpBytes] = {};
    const bool is_future =
        target.read(Addr{point.address}, now, sizeof now) && shared::is_future_jump(point, block.undo()[i], now);
    auto middle = is_future ? middle_of(point, block.undo()[i]) : std::nullopt;
    if (!middle) continue;
    if (const char* why = obstacle(block, i, *maps)) {
      note(block, i, why);
      continue;
    }
    possible.push_back(i);
    process.proofs.try_emplace(Addr{point.address}, Proof{.middle = std::move(*middle), .open = {}});
  }
  // The breakpoint of another one may have been away for a moment.
  std::erase_if(process.proofs, [&](const auto& known) {
    const auto is_its = [&](std::uint32_t i) { return block.points()[i].address == known.first.value; };
    return std::ranges::none_of(possible, is_its);
  });
  begin(target, process);
  look(target, *maps, {Addr{block.head().agent_text}, Addr{block.head().agent_text_end}}, process);
  for (const std::uint32_t i : possible) {
    const Proof& proof = process.proofs[Addr{block.points()[i].address}];
    if (proof.is_begun && proof.open.empty())
      proved.push_back(i);
    else
      note(block, i,
           proof.is_begun ? "the program may be executing it (thread " + std::to_string(*proof.open.begin()) + ")"
                          : "the program may be executing it");
  }
  return proved.empty() ? ok() : write(target, block, process, proved);
}

// The breakpoints are there. After this every processor has seen them, and the threads that may be inside are those that there are.
void FutureJumps::begin(target::Target& target, Process& process) {
  std::vector<Proof*> fresh;
  for (auto& [address, proof] : process.proofs) {
    if (proof.middle.empty()) proof.is_begun = true;
    if (!proof.is_begun) fresh.push_back(&proof);
  }
  if (fresh.empty() || !ProcessSerializer(target.pid()).serialize()) return;
  const std::vector<pid_t> threads = all_threads_of(target.pid());
  for (Proof* proof : fresh) {
    proof->is_begun = !threads.empty();
    proof->open = {threads.begin(), threads.end()};
  }
}

// On a thread of its own: the kernel lets go of a program's thread that did not stop in time when its tracer's thread ends.
void FutureJumps::look(target::Target& target, const std::vector<target::Mapping>& maps, const CodeRange& agent,
                       Process& process) {
  std::set<pid_t> open;
  for (const auto& [address, proof] : process.proofs) open.insert(proof.open.begin(), proof.open.end());
  const auto begun = Clock::now();
  if (open.empty() || begun < process.next_look) return;
  const pid_t pid = target.pid();
  std::chrono::nanoseconds longest{0};
  const auto look_at = [&](pid_t tid) {
    const ThreadLook seen = look_at_thread(target, maps, agent, tid);
    longest = std::max(longest, seen.stopped);
    const bool has_gone = is_gone(pid, tid);
    if (!has_gone && (!seen.kept || target::may_lend_memory(pid, tid))) return;
    for (auto& [address, proof] : process.proofs) {
      const auto is_kept = [&](Addr insn) { return seen.kept->has_in(insn, insn + 1); };
      if (has_gone || std::ranges::none_of(proof.middle, is_kept)) proof.open.erase(tid);
    }
  };
  const auto look_at_all = [&] {
    for (const pid_t tid : in_turn(open, process.latest)) {
      if (Clock::now() - begun > kLongestTurn) break;
      look_at(process.latest = tid);
    }
    return ok();
  };
  static_cast<void>(catch_resource_exhaustion([&] {
    start_signal_masked_thread([&] { static_cast<void>(catch_resource_exhaustion(look_at_all)); }, {SIGCHLD}).join();
    return ok();
  }));
  const auto ended = Clock::now();
  const std::chrono::nanoseconds pause = ++process.looks > kManyLooks ? kLongPause : 0ms;
  process.next_look = ended + std::max(pause, kShare * longest);
  time_ += ended - begun;
}

// Points before a jump learn first that bytes after them change.
Status FutureJumps::write(target::Target& target, Block& block, Process& process,
                          std::span<const std::uint32_t> points) {
  RETURN_IF_ERROR(state_.known.renew(target, block));
  process.stamp = block.stamp();
  std::vector<Patch> patches;
  patches.reserve(points.size());
  for (const std::uint32_t i : points) {
    const shared::Point& point = block.points()[i];
    const Addr jump{point.address};
    for (const std::uint32_t before : block.points_in(jump - shared::kMostFollowing, jump))
      RETURN_IF_ERROR(block.add_varying(target, before, bits_after(block.points()[before].address, point.address)));
    Patch patch = patch_back(point, block.undo()[i]);
    std::swap(patch.before, patch.after);
    patch.before[0] = shared::kBreakpoint;
    patches.push_back(patch);
  }
  ProcessSerializer serializer(target.pid());
  const std::vector<Patched> outcomes = patch_running(target, patches, serializer);
  ArmReport& report = state_.report;
  for (std::size_t n = 0; n < points.size(); ++n) {
    if (outcomes[n] != Patched::done) {
      // Of a process that has ended what told against the jump so far stays true.
      if (!target::has_ended(target.pid())) note(block, points[n], "its code could not be changed");
      continue;
    }
    process.proofs.erase(Addr{block.points()[points[n]].address});
    state_.awaited.set(target.pid(), Addr{block.points()[points[n]].address}, false);
    for (const shared::Consumer& consumer : block.list_of(points[n])) {
      report.jumps.add(consumer.event);
      if (report.breakpoints.has(consumer.event)) report.against[consumer.event] = "at first, a jump later";
    }
  }
  state_.known.keep(std::move(block));
  return ok();
}

}  // namespace uprobe::control
