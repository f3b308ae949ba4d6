// SPDX-License-Identifier: MIT
#include "engine/service/part_mover.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/inject/descriptor_room.h"
#include "engine/inject/load.h"
#include "engine/inject/seccomp.h"
#include "engine/process/mapped_memory.h"
#include "engine/process/members.h"
#include "engine/process/processes.h"
#include "engine/target/attachable.h"
#include "engine/target/process_list.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {
namespace {

using target::StoppedProcess;
using Thread = StoppedProcess::Thread;
using namespace std::chrono_literals;

constexpr auto kPatience = 100ms;
constexpr auto kMoment = 500us;
constexpr auto kMostTime = 400ms;  // a record takes microseconds; on a busy machine a thread waits for its processor

// Code of the session in a process: the agent's own, and what is in its islands.
class SessionCode {
 public:
  SessionCode(const shared::ProcessBlock& head, const std::vector<shared::Point>& points)
      : head_(head), points_(points) {}

  bool contains(std::uint64_t ip) const { return is_in_agent(ip) || is_in_island(ip); }
  // Where a record may be under way: not in the copies of instructions, which run before or after it.
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

// Waits in the kernel for something that comes from outside. No hit makes such a call between claiming a ring and publishing.
bool waits_in_call(const Thread& thread) {
  const auto result = static_cast<std::int64_t>(thread.registers.rax);
  return result <= -512 && result >= -516;
}

// A thread's own id is that of its innermost PID namespace.
std::uint32_t own_id(pid_t pid, pid_t tid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status");
  const auto ids = status ? target::namespace_ids(*status) : std::vector<pid_t>();
  return static_cast<std::uint32_t>(ids.empty() ? tid : ids.back());
}

// What threads do to the part that goes away. A record in a ring of a CPU is built in an rseq section, which begins anew in the new
// part when the thread goes on (StoppedProcess sees to that where it sends the thread elsewhere first). A claimed ring is its thread's
// until the record is there, and what was found in a histogram until it is added to.
class Records {
 public:
  Records(StoppedProcess& process, const trace::Area& area, const trace::LiveArea& live, const SessionCode& code,
          shared::TaskWords words)
      : process_(process), area_(area), live_(live), code_(code), words_(words) {}

  // Lets threads go on, one after the other, until none of them is in the middle of a record. False: one stays there.
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
    const bool may_record = code_.may_record_at(thread.registers.rip) && !waits_in_call(thread);
    return may_record && (area_.histogram_count() != 0 || owns_ring(thread));
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

// A process that has the session, all of its threads stopped.
class StoppedMember {
 public:
  static Result<StoppedMember> stop(pid_t pid, const trace::Area& area) {
    // Its filter would decide about the calls that are made in it. One that has come meanwhile is seen when it is stopped.
    const Error filtered{.code = Code::refused,
                         .text = "it has a seccomp filter, which may forbid what has to be done in it"};
    if (may_be_killed_for_calls(pid)) return filtered;
    auto process = StoppedProcess::hold(pid, kPatience);
    if (!process) return process.error();
    if (may_be_killed_for_calls(pid)) return filtered;
    // All that is found out from here on is of the process that is stopped.
    auto member = open_member(area, pid);
    if (!member) return member.error();
    if (Status alone = target::check_lending(pid); !alone) return alone.error();
    return StoppedMember(process.take(), member.take());
  }

  // Lets what is being recorded be recorded. False: a thread stays there.
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
    return replace_part(*process_, member_.area, area, part);
  }
  void let_go() { process_->let_go(); }
  Status cut_off(const trace::Area& area) { return cover_part(*process_, member_.area, area); }

 private:
  StoppedMember(std::unique_ptr<StoppedProcess> process, Member member)
      : process_(std::move(process)), member_(std::move(member)) {}

  std::unique_ptr<StoppedProcess> process_;
  Member member_;
};

}  // namespace

// What is mapped first cannot be wrong: a thread that writes there writes to memory of the process's own. So a part that cannot be
// mapped leaves the process without one, and never with that of another domain.
std::optional<MoveFailure> move_to_part(pid_t pid, const trace::Area& area, std::optional<std::size_t> part) {
  auto stopped = StoppedMember::stop(pid, area);
  if (!stopped) return MoveFailure{.error = stopped.error()};
  const bool is_at_rest = stopped->finish(area);
  if (Status taken = stopped->cut_off(area); !taken) return MoveFailure{.error = taken.error()};
  Status given = Error{.code = Code::refused, .text = "a thread does not come back from its hit"};
  if (is_at_rest && part) given = stopped->give(area, *part);
  if (is_at_rest && given) return std::nullopt;
  if (!given) static_cast<void>(stopped->cut_off(area));  // some of it may be there
  stopped->let_go();
  if (const auto block = find_block(pid)) static_cast<void>(disarm_running(pid, *block));
  return MoveFailure{
      .error = given ? Error{.code = Code::limit, .text = "there is no memory for its records"} : given.error(),
      .is_cut_off = true};
}

}  // namespace uprobe::control
