// SPDX-License-Identifier: MIT
// Ends a session in a process that goes on: give_back() (attach.h).
//
//   stop it; restore the text; let every thread leave the agent; restore masks, stacks, dispositions; unmap the area; release
//
// A thread may be waiting in a system call that the agent makes in its place. It is sent to the code that the agent runs when a
// signal arrives before the call: back to the program's own instruction, where the thread makes the call itself.
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/attach/attach.h"
#include "engine/attach/attached_threads.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/patch/disarm.h"
#include "engine/process/block_check.h"
#include "engine/process/processes.h"
#include "engine/shared/mailbox.h"
#include "engine/target/attachable.h"
#include "engine/target/seccomp.h"

namespace uprobe::control {
namespace {

using shared::AttachOrder;
using shared::AttachStep;
using target::StoppedProcess;
using Thread = StoppedProcess::Thread;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kMoment = 200us;
constexpr auto kMostWaited = 10s;  // an unanswered request to the tool takes a second

// Every thread is stopped, and continues by a return from the kernel, which serializes.
class StoppedThreads : public Serializer {
 public:
  Status serialize() override { return ok(); }
};

class GivingBack {
 public:
  GivingBack(StoppedProcess& process, const FoundAgent& found, Block& block, Clock::time_point deadline)
      : process_(process), agent_(found.agent), block_(block), deadline_(deadline) {}

  Status run() {
    Status out = take_text_back();
    if (!out) return out;  // the internal points stay, and with them the agent goes on managing masks
    if (!may_call()) return note_left_as_it_is();
    const Status given = give_all();
    // Even if the agent goes on passing signals: it no longer knows the program's masks.
    RETURN_IF_ERROR(note_left(shared::kLeft));
    return given ? leave_session() : given;
  }

 private:
  // A filter that came after the agent may kill the process for what there is to do.
  bool may_call() const {
    const auto is_filtered = [this](const Thread& t) { return process_.is_filtered(t.tid); };
    return (block_.head().flags & shared::kBlockFiltersKnown) != 0 || target::can_suspend_filters() ||
           std::ranges::none_of(process_.threads(), is_filtered);
  }
  // The agent goes on passing signals to the program.
  Status note_left_as_it_is() {
    process_.forbid_calls();
    RETURN_IF_ERROR(note_left(shared::kLeft));
    return Error{.code = Code::refused,
                 .text = "has put a seccomp filter in force: its code is its own again, but the agent stays in it"};
  }

  Status give_all() {
    RETURN_IF_ERROR(drain());
    AgentCalls calls(process_, agent_);
    // What a thread has blocked counts most, should there be no time for all.
    std::vector<Thread> threads(process_.threads());
    std::stable_partition(threads.begin(), threads.end(), [this](const Thread& t) { return blocks_ours(t); });
    for (const Thread& thread : threads) {
      if (is_late()) return Error{.code = Code::refused, .text = "it has too many threads"};
      RETURN_IF_ERROR(give(calls, thread));
    }
    RETURN_IF_ERROR(calls.ask_process(AttachStep::give_process));
    return open_restorer();
  }

  Status take_text_back() {
    StoppedThreads serializer;
    const Status out = take_out(process_, block_, serializer);
    const Status noted = note_left(shared::kLeaving);
    return out ? noted : out;
  }
  Status note_left(std::uint32_t left) {
    block_.head().left = left;
    return process_.write(block_.address() + offsetof(shared::ProcessBlock, left), &left, sizeof left);
  }

  // ---- threads in the agent

  bool is_copy(std::uint64_t ip) const {
    return std::any_of(block_.points().begin(), block_.points().end(),
                       [ip](const shared::Point& p) { return ip >= p.copy && ip - p.copy < p.copy_bytes; });
  }
  bool is_in_trampoline(std::uint64_t ip) const {
    const shared::ProcessBlock& h = block_.head();
    const bool in_island = std::any_of(h.islands, h.islands + h.island_count,
                                       [ip](const shared::Island& i) { return ip - i.base < i.bytes; });
    return in_island && !is_copy(ip);
  }
  bool is_in_agent(std::uint64_t ip) const {
    const shared::ProcessBlock& h = block_.head();
    return ip - h.agent_text < h.agent_text_end - h.agent_text;
  }
  bool is_late() const { return Clock::now() >= deadline_; }
  shared::ThreadEntry entry_of(const Thread& thread) const {
    return entry_in(entries_, arch::thread_pointer(thread.registers));
  }
  // Whether a breakpoint or fault of the thread is still pending.
  bool has_own_signal(const Thread& thread) const {
    constexpr std::uint64_t kFaults = shared::kOurSignals | 1ull << (SIGILL - 1) | 1ull << (SIGFPE - 1);
    const auto status = procfs::read(process_.pid(), thread.tid, "status");
    const std::string pending(status ? procfs::field(*status, "SigPnd").value_or("") : "");
    return (std::strtoull(pending.c_str(), nullptr, 16) & kFaults & ~thread.mask) != 0;
  }
  bool is_busy(const Thread& thread) {
    const std::uint64_t ip = arch::instruction_pointer(thread.registers);
    const shared::ThreadEntry entry = entry_of(thread);
    return process_.is_in_remote_call(thread) || is_in_agent(ip) || is_in_trampoline(ip) || entry.steps != 0 ||
           entry.pending != 0 || has_own_signal(thread);
  }
  static bool is_interrupted(const Thread& thread) {
    const auto result = arch::result(thread.registers);
    return result <= -512 && result >= -516;
  }
  bool waits_in_call(const Thread& thread) const {
    return arch::instruction_pointer(thread.registers) == agent_.place(agent_.header.open_call).value &&
           is_interrupted(thread);
  }
  // Whether it waits for a killed tool after it has executed that tool's order (preload/attach.cpp).
  bool waits_to_be_moved(const Thread& thread) const {
    return is_in_agent(arch::instruction_pointer(thread.registers)) && !waits_in_call(thread) &&
           is_interrupted(thread) && arch::call_number(thread.registers) == SYS_ppoll;
  }
  Status end_wait(const Thread& thread) {
    arch::ThreadRegisters registers = thread.registers;
    arch::set_result(registers, 0);
    arch::forget_call(registers);
    return process_.set_registers(thread.tid, registers);
  }
  Status call_it_off(const Thread& thread) {
    arch::ThreadRegisters registers = thread.registers;
    arch::set_instruction_pointer(registers, agent_.place(agent_.header.call_not_made).value);
    arch::set_result(registers, shared::kNotMade);
    arch::forget_call(registers);
    return process_.set_registers(thread.tid, registers);
  }

  // Lets a thread leave the agent, and no further: after that, the agent would not see how the program changes the thread's
  // mask.
  Status let_out(const Thread& thread) {
    const shared::ProcessBlock& h = block_.head();
    const auto is_ours = [&](std::uint64_t ip) {
      const bool in_island = std::any_of(h.islands, h.islands + h.island_count,
                                         [ip](const shared::Island& i) { return ip - i.base < i.bytes; });
      return in_island || is_in_agent(ip) || process_.is_remote_call(ip);
    };
    if (is_ours(arch::instruction_pointer(thread.registers)) || has_own_signal(thread))
      return process_.let_out(thread.tid, kMoment, is_ours);
    return process_.let_run(thread.tid, kMoment);
  }

  // Whether the thread has sent a request, which no tool will answer.
  bool waits_for_tool(const Thread& thread) const {
    return is_in_agent(arch::instruction_pointer(thread.registers)) && is_interrupted(thread) &&
           arch::call_number(thread.registers) == SYS_futex;
  }
  // Whether a trigger's delay holds it, which ends early then (preload/actions.cpp). Once interrupted, the call goes on as another.
  bool sleeps(const Thread& thread) const {
    const auto number = arch::call_number(thread.registers);
    return is_in_agent(arch::instruction_pointer(thread.registers)) && is_interrupted(thread) &&
           !waits_in_call(thread) && (number == SYS_nanosleep || number == SYS_restart_syscall);
  }
  // Ends the waits of all requesters with an answer: for any last word of a slot, the next one is `done`.
  void answer_waiters() {
    const Addr box{block_.head().sessions[0].area - shared::kMailboxBytes};
    for (std::uint64_t i = 0; i < shared::kMailSlots; ++i) {
      const Addr at = box + offsetof(shared::Mailbox, slots) + i * sizeof(shared::MailSlot);
      shared::MailSlot slot{};
      if (!process_.read(at, &slot, sizeof slot)) return;
      const shared::MailState state = shared::state_of(slot.asked.word);
      if (state != shared::MailState::request && state != shared::MailState::result) continue;
      const std::uint32_t next = shared::number_after(shared::number_of(slot.asked.word), 1);
      const std::uint32_t done = shared::turn(next, shared::MailState::done);
      const shared::Turn answered{done, done};
      static_cast<void>(process_.write(at + offsetof(shared::MailSlot, answered), &answered, sizeof answered));
    }
  }

  Status drain() {
    std::size_t first = 0;  // those before it are at rest: none of them has run since it was looked at
    while (!is_late()) {
      entries_ = thread_entries(process_, block_.address(), block_.head());
      const auto& threads = process_.threads();
      while (first < threads.size() && !is_busy(threads[first]) && !is_late()) ++first;
      if (first == threads.size()) return ok();
      const Thread thread = threads[first];
      if (thread.in_group_stop) return Error{.code = Code::refused, .text = "it was stopped in the middle of a hit"};
      if (waits_in_call(thread)) RETURN_IF_ERROR(call_it_off(thread));
      const bool waits = waits_for_tool(thread);
      if (waits) answer_waiters();
      if (waits || waits_to_be_moved(thread) || sleeps(thread)) RETURN_IF_ERROR(end_wait(thread));
      RETURN_IF_ERROR(let_out(thread));
    }
    return Error{.code = Code::refused, .text = "a thread does not leave its hit"};
  }

  // ---- the program's own state

  bool blocks_ours(const Thread& thread) const {
    const shared::ThreadEntry entry = entry_of(thread);
    const std::uint64_t believed = entry.thread != 0 ? entry.blocked : block_.head().start_blocked;
    return (believed & shared::kOurSignals) != 0;
  }
  Status give(AgentCalls& calls, const Thread& thread) {
    if (entry_of(thread).own_stack == 0 && !blocks_ours(thread)) return ok();
    AttachOrder order{.step = static_cast<std::uint32_t>(AttachStep::give_thread),
                      .has_control_block = has_control_block(process_, thread, block_.head().tid_offset) ? 1U : 0U,
                      .blocked = 0,
                      .stack_pointer = 0,
                      .state = shared::kOrderGiven,
                      .reserved = 0};
    RETURN_IF_ERROR(calls.ask_thread(thread, order));
    RETURN_IF_ERROR(process_.bring_home());
    return process_.set_mask(thread.tid, thread.mask | order.blocked);
  }

  // Makes the page of the restorer executable: handlers that are running may still return to it, when the agent no longer
  // handles its fault. Its bytes are right.
  Status open_restorer() {
    std::uint32_t flags = 0;
    RETURN_IF_ERROR(process_.read(block_.address() + offsetof(shared::ProcessBlock, flags), &flags, sizeof flags));
    if ((flags & shared::kBlockLedBack) == 0) return ok();
    const std::uint64_t page = agent_.place(agent_.header.visible_restorer).value & ~std::uint64_t{4095};
    auto done = process_.system_call(SYS_mprotect, {page, 4096, PROT_READ | PROT_EXEC, 0, 0, 0});
    return done ? ok() : Status(done.error());
  }

  Status leave_session() {
    const Addr area{block_.head().sessions[0].area};
    const auto maps = process_.maps();
    if (!maps) return maps.error();
    const AreaRange range = area_range(*maps, area);
    if (range.begin != range.end) {
      auto done = process_.system_call(SYS_munmap, {range.begin.value, range.end - range.begin, 0, 0, 0, 0});
      if (!done) return done.error();
    }
    block_.head().sessions[0].area = 0;
    return block_.write_head(process_);
  }

  StoppedProcess& process_;
  const MappedAgent& agent_;
  Block& block_;
  const Clock::time_point deadline_;
  std::vector<shared::ThreadEntry> entries_;
};

bool is_at(StoppedProcess& process, const FoundAgent& found) {
  shared::AgentHeader header{};
  Addr block;
  const bool is_read = process.read(found.agent.at, &header, sizeof header) &&
                       process.read(found.agent.place(header.block_slot), &block, sizeof block);
  return is_read && std::memcmp(&header, &found.agent.header, sizeof header) == 0 && block == found.block &&
         is_block(process, block);
}

}  // namespace

bool has_blocked_signals(pid_t pid) {
  auto files = target::ProcessFiles::open(pid);
  const auto at = find_block(pid);
  if (!files || !at) return false;
  target::RunningTarget target(files.take());
  shared::ProcessBlock head{};
  if (!target.read(*at, &head, sizeof head) || !check_head(head)) return false;
  const std::vector<shared::ThreadEntry> entries = thread_entries(target, *at, head);
  const auto blocks_ours = [](const shared::ThreadEntry& e) {
    return e.thread != 0 && (e.blocked & shared::kOurSignals) != 0;
  };
  return (head.start_blocked & shared::kOurSignals) != 0 || std::ranges::any_of(entries, blocks_ours);
}

// Finds the agent while the process runs. If the process has called execve since then, it has another agent, or none.
Status give_back(pid_t pid, std::chrono::milliseconds patience) {
  auto found = find_agent(pid);
  auto process = StoppedProcess::hold(pid, patience);
  if (!process) return process.error();
  if (!found || !is_at(**process, *found)) found = find_agent(pid);
  if (!found) return found.error();
  auto block = Block::read(**process, found->block);
  if (!block) return block.error();
  // Refuses a parent that waits, stopped, for its child of vfork.
  RETURN_IF_ERROR(target::check_lending(pid));
  return GivingBack(**process, *found, *block, Clock::now() + std::min<Clock::duration>(5 * patience, kMostWaited))
      .run();
}

Status give_back_apart(pid_t pid, std::chrono::milliseconds patience) {
  Status given = ok();
  start_signal_masked_thread([&] { given = give_back(pid, patience); }, {SIGCHLD}).join();
  return given;
}

}  // namespace uprobe::control
