// SPDX-License-Identifier: MIT
// What the threads of a held process and the agent have to tell each other. Internal to attach.cpp and give_back.cpp.
#pragma once

#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/mapped_memory.h"
#include "engine/shared/agent_header.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {

// Runs the agent's side in the threads of a process, on a stack that is there as long as this.
class AgentCalls {
 public:
  AgentCalls(target::StoppedProcess& process, const MappedAgent& agent)
      : process_(process), agent_(agent), memory_(process) {}

  // One thread of the process does it.
  Status ask_process(shared::AttachStep step);
  Status ask_thread(const target::StoppedProcess::Thread& thread, shared::AttachOrder& order);

 private:
  Status ask(shared::AttachOrder& order);

  target::StoppedProcess& process_;
  const MappedAgent& agent_;
  MappedMemory memory_;
  Addr place_;  // the order's; the stack ends behind it
};

// Whether what the agent reads of a thread's control block can be read. `tid_offset` as in the process block.
bool has_control_block(target::StoppedProcess& process, const target::StoppedProcess::Thread& thread,
                       std::int32_t tid_offset);

// What the agent knows of the thread with this fs base; all 0: nothing.
shared::ThreadEntry entry_of(target::StoppedProcess& process, Block& block, std::uint64_t fs_base);

}  // namespace uprobe::control
