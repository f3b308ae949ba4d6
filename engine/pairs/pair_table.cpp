// SPDX-License-Identifier: MIT
#include "engine/pairs/pair_table.h"

#include <algorithm>
#include <utility>

namespace uprobe::format {
namespace {

// An allocator makes few calls of its own family inside a call. After more than these the return of the outer one has been
// missed.
constexpr std::uint32_t kMostInner = 8;

}  // namespace

void PairTable::finish() {
  for (auto& [tid, thread] : threads_)
    if (const auto process = processes_.find(thread.pid); process != processes_.end()) leave(thread, process->second);
  threads_.clear();
}

// A number that another process has now is another thread.
PairTable::Thread& PairTable::thread_of(const PairStep& step) {
  if (threads_.size() >= kMostThreads && !threads_.contains(step.tid)) finish();
  Thread& thread = threads_[step.tid];
  if (step.pid != 0 && thread.pid != 0 && thread.pid != step.pid) thread = {};
  if (step.pid != 0) thread.pid = step.pid;
  if (thread.pid == 0) thread.pid = step.tid;
  return thread;
}

PairTable::Process* PairTable::process_of(std::uint32_t pid, std::string_view command) {
  const auto known = processes_.find(pid);
  if (known != processes_.end()) return &known->second;
  if (processes_.size() >= kMostProcesses) return nullptr;
  Process& process = processes_[pid];
  process.command = command;
  return &process;
}

void PairTable::hold(std::uint64_t key, const Held& held, Process& process) {
  const auto known = process.held.find(key);
  if (known != process.held.end()) return void(known->second = held);
  if (held_ >= kMostHeld) return void(++process.dropped);
  process.held.emplace(key, held);
  ++held_;
}

std::optional<Held> PairTable::take_out(std::uint64_t key, Process& process) {
  const auto known = process.held.find(key);
  if (known == process.held.end()) return std::nullopt;
  const Held held = known->second;
  process.held.erase(known);
  --held_;
  return held;
}

// The call under way is over, and has given nothing out.
void PairTable::leave(Thread& thread, Process& process) {
  if (thread.moved) hold(thread.moved_key, *thread.moved, process);
  thread.outer = 0;
  thread.moved.reset();
}

bool PairTable::is_nested(Thread& thread, std::uint32_t function, Process& process) {
  if (thread.outer == 0) return false;
  if (thread.outer != function && ++thread.inner_steps <= kMostInner) return true;
  if (thread.outer != function) leave(thread, process);
  return false;
}

void PairTable::begin(const PairStep& step, Thread& thread, Process& process) {
  if (is_nested(thread, step.function, process)) return;
  leave(thread, process);
  thread.outer = step.function, thread.inner_steps = 0;
  if (step.role != PairRole::moving || step.key == 0) return;
  thread.moved_key = step.key;
  thread.moved = take_out(step.key, process);
  if (!thread.moved) ++process.unknown;
}

// A realloc to no bytes that gives nothing out has freed the old block.
void PairTable::open(const PairStep& step, Thread& thread, Process& process,
                     const std::function<std::uint32_t(std::uint32_t)>& stack_of) {
  if (is_nested(thread, step.function, process)) return;
  const bool is_outer = thread.outer == step.function;
  const bool is_kept = step.has_failed && step.size != 0;
  if (is_outer && thread.moved && !is_kept) ++process.closed, thread.moved.reset();
  if (is_outer) leave(thread, process);
  if (step.has_failed) return;
  // An inner call of another function has given out the key. (The same function's is a call of its own: of a recursive lock.)
  const bool is_again = thread.just_opened == step.key && thread.just_opened_by != step.function;
  thread.just_opened = step.key, thread.just_opened_by = step.function;
  const bool was_held = process.held.contains(step.key);
  if (was_held && !is_again) ++process.missed;
  if (!was_held || !is_again) ++process.opened;
  hold(step.key, {.size = step.size, .ns = step.ns, .stack = stack_of(process.execs)}, process);
}

// A function that has closed its key may call another one of the family to do it (delete calls free).
void PairTable::close(const PairStep& step, Thread& thread, Process& process) {
  if (step.key == 0 && !has_times_) return;
  const std::optional<Held> held = take_out(step.key, process);
  const bool is_part = thread.just_closed_by != 0 && thread.just_closed_by != step.function;
  const bool is_inner = is_nested(thread, step.function, process) || is_part;
  if (!held && is_inner) return;
  if (!held) return void(++process.unknown);
  thread.just_closed_by = step.function;
  ++process.closed;
  if (!has_times_) return;
  if (!process.times.contains(step.key) && keys_ >= kMostKeys) return void(++process.dropped);
  const auto [times, is_new] = process.times.try_emplace(step.key);
  keys_ += is_new ? 1 : 0;
  const std::uint64_t time = step.ns > held->ns ? step.ns - held->ns : 0;
  ++times->second.count, times->second.total_ns += time;
  times->second.longest_ns = std::max(times->second.longest_ns, time);
}

void PairTable::give_up(Process& process) {
  held_ -= process.held.size();
  process.held.clear();
  process.replacing_tid = 0;
  ++process.execs;
}

// A thread that is not the first one comes back from execve with the number of the first one.
void PairTable::take(const PairStep& step, std::string_view command,
                     const std::function<std::uint32_t(std::uint32_t)>& stack_of) {
  Thread& thread = thread_of(step);
  Process* const process = process_of(thread.pid, command);
  if (process == nullptr || step.role == PairRole::none) return;
  if (step.role == PairRole::exec) return void(process->replacing_tid = step.tid);
  if (step.role == PairRole::exec_back) return void(process->replacing_tid = 0);
  const bool is_other_program = step.tid == thread.pid && command != process->command;
  if (process->replacing_tid != 0 && (step.tid == process->replacing_tid || is_other_program)) {
    give_up(*process);
    process->command = command;
    thread = {.pid = thread.pid};
  }
  if (step.role == PairRole::closing) return thread.just_opened.reset(), close(step, thread, *process);
  thread.just_closed_by = 0;
  if (step.role == PairRole::opening) return open(step, thread, *process, stack_of);
  thread.just_opened.reset();
  step.role == PairRole::throwing ? leave(thread, *process) : begin(step, thread, *process);
}

}  // namespace uprobe::format
