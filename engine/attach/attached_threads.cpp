// SPDX-License-Identifier: MIT
#include "engine/attach/attached_threads.h"

#include <algorithm>
#include <iterator>

#include "engine/shared/process_block.h"

namespace uprobe::control {

constexpr std::uint64_t kStackBytes = 16384;

Status AgentCalls::ask(shared::AttachOrder& order) {
  if (!place_) {
    auto memory = memory_.map_scratch(kStackBytes + sizeof order);
    if (!memory) return memory.error();
    place_ = *memory + kStackBytes;
  }
  RETURN_IF_ERROR(process_.write(place_, &order, sizeof order));
  RETURN_IF_ERROR(process_.run(agent_.place(agent_.header.attach_entry), place_));
  return process_.read(place_, &order, sizeof order);
}

Status AgentCalls::ask_process(shared::AttachStep step) {
  shared::AttachOrder order{.step = static_cast<std::uint32_t>(step),
                            .has_control_block = 0,
                            .blocked = 0,
                            .stack_pointer = 0,
                            .state = 0,
                            .reserved = 0};
  return ask(order);
}

Status AgentCalls::ask_thread(const target::StoppedProcess::Thread& thread, shared::AttachOrder& order) {
  order.stack_pointer = arch::stack_pointer(thread.registers);
  RETURN_IF_ERROR(process_.send(thread.tid));
  return ask(order);
}

std::vector<shared::ThreadEntry> thread_entries(target::Target& process, Addr block, const shared::ProcessBlock& head) {
  std::vector<shared::ThreadEntry> entries(shared::kThreadEntries);
  if (!process.read(block + head.thread_offset, entries.data(), entries.size() * sizeof entries[0])) entries.clear();
  return entries;
}

shared::ThreadEntry entry_in(const std::vector<shared::ThreadEntry>& entries, std::uint64_t thread_pointer) {
  const std::uint32_t mask = shared::kThreadEntries - 1;
  std::uint32_t slot = shared::hash_slot(thread_pointer, 12);
  for (std::uint32_t i = 0; i <= mask && entries.size() > mask; ++i, slot = (slot + 1) & mask) {
    if (entries[slot].thread == thread_pointer) return entries[slot];
    if (entries[slot].thread == 0) break;
  }
  return {};
}

bool has_control_block(target::StoppedProcess& process, const target::StoppedProcess::Thread& thread,
                       std::int32_t tid_offset) {
  const Addr begin{arch::thread_pointer(thread.registers)};
  const auto is_there = [&](std::int32_t offset) {
    std::uint64_t word = 0;
    return process.read(begin + static_cast<std::uint64_t>(offset), &word, sizeof word);
  };
  if (!begin || !is_there(0)) return false;
  if (tid_offset != 0) return bool(is_there(tid_offset));
  return std::all_of(
      std::begin(shared::kControlBlocks), std::end(shared::kControlBlocks),
      [&](const shared::ControlBlockLayout& layout) { return is_there(layout.list) && is_there(layout.tid); });
}

}  // namespace uprobe::control
