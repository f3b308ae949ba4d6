// SPDX-License-Identifier: MIT
#include "engine/service/part_mover.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/inject/descriptor_room.h"
#include "engine/inject/load.h"
#include "engine/inject/locked_memory_room.h"
#include "engine/inject/seccomp.h"
#include "engine/process/mapped_memory.h"
#include "engine/process/members.h"
#include "engine/process/processes.h"
#include "engine/target/attachable.h"
#include "engine/target/process_list.h"
#include "engine/target/seccomp.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {
namespace {

using target::StoppedProcess;
using Thread = StoppedProcess::Thread;
using namespace std::chrono_literals;

constexpr auto kPatience = 100ms;
constexpr auto kMoment = 500us;
constexpr auto kMostTime =
    400ms;  // a record takes microseconds, but on a busy machine a thread waits for its processor

// The session's code in a process: the agent, and what is in its islands.
class SessionCode {
 public:
  SessionCode(const shared::ProcessBlock& head, const std::vector<shared::Point>& points)
      : head_(head), points_(points) {}

  bool contains(std::uint64_t ip) const { return is_in_agent(ip) || is_in_island(ip); }
  // Whether a record may be in progress at `ip`: not in a displaced copy, which runs before or after the recording.
  bool may_record_at(std::uint64_t ip) const { return is_in_agent(ip) || (is_in_island(ip) && !is_copy(ip)); }

 private:
  bool is_in_agent(std::uint64_t ip) const { return ip - head_.agent_text < head_.agent_text_end - head_.agent_text; }
  bool is_in_island(std::uint64_t ip) const {
    const auto count = std::min(head_.island_count, shared::kMaxIslands);
    return std::any_of(head_.islands, head_.islands + count,
                       [ip](const shared::Island& i) { return ip - i.base < i.bytes; });
  }
  bool is_copy(std::uint64_t ip) const {
    return std::ranges::any_of(points_,
                               [ip](const shared::Point& p) { return ip >= p.copy && ip - p.copy < p.copy_bytes; });
  }

  const shared::ProcessBlock& head_;
  const std::vector<shared::Point>& points_;
};

// Whether the thread waits in the kernel for something from outside. No hit makes such a call between claiming a ring and
// publishing.
bool waits_in_call(const Thread& thread) {
  const auto result = arch::result(thread.registers);
  return result <= -512 && result >= -516;
}

// A thread's id in its innermost PID namespace, which it uses itself.
std::uint32_t own_id(pid_t pid, pid_t tid) {
  const auto ids = target::ids_of_thread(pid, tid);
  return static_cast<std::uint32_t>(ids.empty() ? tid : ids.back());
}

// What threads still do to the part that goes away. A record in a CPU ring is built in an rseq section, which restarts in the
// new part when the thread goes on (StoppedProcess restarts it if it diverts the thread first). A claimed ring belongs to its
// thread until the record is published, and a histogram entry or a sum until the thread has added to it.
class Records {
 public:
  Records(StoppedProcess& process, const trace::Area& area, const trace::LiveArea& live, const SessionCode& code,
          shared::TaskWords words)
      : process_(process), area_(area), live_(live), code_(code), words_(words) {}

  // Lets threads run, one after the other, until none of them is in the middle of a record. False: one of them stays there.
  bool finish() {
    const auto deadline = std::chrono::steady_clock::now() + kMostTime;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto& threads = process_.threads();
      const auto busy = std::ranges::find_if(threads, [this](const Thread& t) { return is_busy(t); });
      if (busy == threads.end()) return true;
      if (busy->in_group_stop) return false;
      const auto is_ours = [this](std::uint64_t ip) { return code_.contains(ip) || process_.is_remote_call(ip); };
      if (!process_.let_out(busy->tid, kMoment, is_ours)) return false;
    }
    return false;
  }

 private:
  bool is_busy(const Thread& thread) {
    const bool may_record = code_.may_record_at(arch::instruction_pointer(thread.registers)) && !waits_in_call(thread);
    return may_record && (area_.histogram_count() != 0 || area_.has_sums() || owns_ring(thread));
  }
  bool owns_ring(const Thread& thread) {
    const std::uint32_t id = shared::owner_of(words_, own_id(process_.pid(), thread.tid));
    for (std::uint32_t i = 0; i < area_.ring_count(); ++i)
      if (!area_.is_cpu_ring(i) && std::atomic_ref(live_.ring(i).owner).load(std::memory_order_relaxed) == id)
        return true;
    return false;
  }

  StoppedProcess& process_;
  const trace::Area& area_;
  const trace::LiveArea& live_;
  const SessionCode& code_;
  const shared::TaskWords words_;
};

// A process of the session with all of its threads stopped.
class StoppedMember {
 public:
  static Result<StoppedMember> stop(pid_t pid, const trace::Area& area) {
    // Its filter would decide about the system calls that the tool makes in it. A filter that is new is seen after the stop.
    const Error filtered{.code = Code::refused,
                         .text = "it has a seccomp filter, which may forbid the system calls that the move needs"};
    const auto is_forbidden = [pid] { return !target::can_suspend_filters() && may_be_killed_for_calls(pid); };
    if (is_forbidden()) return filtered;
    auto process = StoppedProcess::hold(pid, kPatience);
    if (!process) return process.error();
    if (is_forbidden()) {
      (*process)->forbid_calls();
      return filtered;
    }
    // All facts from here on are those of the stopped process.
    auto member = open_member(area, pid);
    if (!member) return member.error();
    RETURN_IF_ERROR(target::check_lending(pid));
    return StoppedMember(process.take(), member.take());
  }

  // Lets threads finish their records. False: one of them does not.
  bool finish(const trace::Area& area) {
    const auto found = find_agent(process_->pid());
    if (!found) return false;
    auto block = Block::read(*process_, found->block);
    if (!block) return false;
    const SessionCode code(block->head(), block->points());
    const shared::TaskWords words{block->head().process_word, block->head().thread_word};
    return Records(*process_, area, area.live(member_.part), code, words).finish();
  }
  Status give(const trace::Area& area, std::size_t part) {
    const DescriptorRoom room(process_->pid());
    RETURN_IF_ERROR(forget_bank());
    return replace_part(*process_, member_.area, area, part);
  }
  void let_go() { process_->let_go(); }
  void make_room(std::optional<LockedMemoryRoom>& room) {
    room.emplace(*process_, member_.mailbox() + offsetof(shared::Mailbox, reserved));
  }
  // Its calls are summed up in a bank of the other part.
  Status forget_bank() {
    const std::uint32_t none = 0;
    return process_->write(member_.mailbox() + offsetof(shared::Mailbox, sum_bank), &none, sizeof none);
  }
  Status cut_off(const trace::Area& area) { return cover_part(*process_, member_.area, area); }

 private:
  StoppedMember(std::unique_ptr<StoppedProcess> process, Member member)
      : process_(std::move(process)), member_(std::move(member)) {}

  std::unique_ptr<StoppedProcess> process_;
  Member member_;
};

}  // namespace

// The order makes a failure safe: mapping private memory first means that a thread that writes there writes to its own process.
// So a part that cannot be mapped leaves the process without a part, and never with the part of another domain.
std::optional<MoveFailure> move_to_part(pid_t pid, const trace::Area& area, std::optional<std::size_t> part) {
  auto stopped = StoppedMember::stop(pid, area);
  if (!stopped) return MoveFailure{.error = stopped.error()};
  const bool is_at_rest = stopped->finish(area);
  std::optional<LockedMemoryRoom> room;
  Status taken = stopped->cut_off(area);
  if (!taken) {
    stopped->make_room(room);
    taken = stopped->cut_off(area);
  }
  if (!taken) return MoveFailure{.error = taken.error()};
  Status given = Error{.code = Code::refused, .text = "a thread does not leave its hit"};
  if (is_at_rest && part) given = stopped->give(area, *part);
  if (is_at_rest && given) return std::nullopt;
  if (!given) static_cast<void>(stopped->cut_off(area));  // it may be mapped in part
  room.reset();
  stopped->let_go();
  if (const auto block = find_block(pid)) static_cast<void>(disarm_running(pid, *block));
  return MoveFailure{
      .error = given ? Error{.code = Code::limit, .text = "there is no memory for its records"} : given.error(),
      .is_cut_off = true};
}

}  // namespace uprobe::control
