#include "engine/control/attached_threads.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "engine/shared/process_block.h"

namespace uprobe::control {

constexpr std::uint64_t kStackBytes = 16384;

// `behind`: bytes behind the order.
Status AgentCalls::make_room(std::size_t behind) {
  if (place_) return ok();
  auto memory = memory_.map_scratch(kStackBytes + sizeof(shared::AttachOrder) + behind);
  if (!memory) return memory.error();
  place_ = *memory + kStackBytes;
  return ok();
}

Status AgentCalls::ask(shared::AttachOrder& order) {
  if (Status room = make_room(0); !room) return room;
  if (Status s = process_.write(place_, &order, sizeof order); !s) return s;
  if (Status s = process_.run(agent_.place(agent_.header.attach_entry), place_); !s) return s;
  return process_.read(place_, &order, sizeof order);
}

// In one go: each call by itself is two stops, and there are more of them than processors. What keeps the room free goes first; no
// other thread runs that could take it.
Status AgentCalls::map_pieces(Addr place, const std::vector<trace::MapStep>& pieces, int fd) {
  shared::AttachPieces list{static_cast<std::uint32_t>(fd), static_cast<std::uint32_t>(pieces.size()), -ENOSYS};
  std::vector<shared::AttachPiece> table;
  for (const trace::MapStep& piece : pieces)
    table.push_back({(place + piece.offset).value, piece.length, piece.file_offset});
  const std::size_t bytes = table.size() * sizeof table[0];
  if (Status room = make_room(sizeof list + bytes); !room) return room;
  const Addr at = place_ + sizeof(shared::AttachOrder);
  if (Status s = process_.write(at, &list, sizeof list); !s) return s;
  if (Status s = process_.write(at + sizeof list, table.data(), bytes); !s) return s;
  auto freed = process_.system_call(SYS_munmap, {place.value, pieces.back().offset + pieces.back().length, 0, 0, 0, 0});
  if (!freed) return freed.error();
  shared::AttachOrder order{.step = static_cast<std::uint32_t>(shared::AttachStep::map_pieces),
                            .has_control_block = 0,
                            .blocked = 0,
                            .pieces = at.value,
                            .state = shared::kOrderGiven,
                            .reserved = 0};
  if (Status s = ask(order); !s) return s;
  if (Status s = process_.read(at, &list, sizeof list); !s) return s;
  return list.failed == 0 ? ok() : Status(system_error("mmap in the target", static_cast<int>(-list.failed)));
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

Status AgentCalls::ask_thread(const target::HeldProcess::Thread& thread, shared::AttachOrder& order) {
  order.stack_pointer = thread.registers.rsp;
  if (Status sent = process_.send(thread.tid); !sent) return sent;
  return ask(order);
}

bool has_control_block(target::HeldProcess& process, const target::HeldProcess::Thread& thread,
                       std::int32_t tid_offset) {
  const Addr begin{thread.registers.fs_base};
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
