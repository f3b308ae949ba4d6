// What the threads of a held process and the agent have to tell each other. Internal to attach.cpp and give_back.cpp.
#pragma once

#include <vector>

#include "engine/control/agent_image.h"
#include "engine/control/block.h"
#include "engine/control/mapped_memory.h"
#include "engine/shared/agent_header.h"
#include "engine/target/held_process.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// Runs the agent's side in the threads of a process, on a stack that is there as long as this.
class AgentCalls {
 public:
  AgentCalls(target::HeldProcess& process, const MappedAgent& agent)
      : process_(process), agent_(agent), memory_(process) {}

  // One thread of the process does it.
  Status ask_process(shared::AttachStep step);
  // Of the session area, in the place of what is kept free for them; MapPieces in load.h. Comes before the other orders.
  Status map_pieces(Addr place, const std::vector<trace::MapStep>& pieces, int fd);
  Status ask_thread(const target::HeldProcess::Thread& thread, shared::AttachOrder& order);

 private:
  Status ask(shared::AttachOrder& order);
  Status make_room(std::size_t behind);

  target::HeldProcess& process_;
  const MappedAgent& agent_;
  MappedMemory memory_;
  Addr place_;  // the order's; the stack ends where it begins
};

// Whether what the agent reads of a thread's control block can be read. `tid_offset` as in the process block.
bool has_control_block(target::HeldProcess& process, const target::HeldProcess::Thread& thread,
                       std::int32_t tid_offset);

}  // namespace uprobe::control
