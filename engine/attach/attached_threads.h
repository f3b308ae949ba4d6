// SPDX-License-Identifier: MIT
// Exchanges facts between the threads of a stopped process and the agent. Internal to attach.cpp and give_back.cpp.
#pragma once

#include <vector>

#include "engine/process/agent_image.h"
#include "engine/process/block.h"
#include "engine/process/mapped_memory.h"
#include "engine/shared/agent_header.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {

// Runs the agent's side in threads of the process, on a stack that lives as long as this object.
class AgentCalls {
 public:
  AgentCalls(target::StoppedProcess& process, const MappedAgent& agent)
      : process_(process), agent_(agent), memory_(process) {}

  // Executed by one thread of the process.
  Status ask_process(shared::AttachStep step);
  Status ask_thread(const target::StoppedProcess::Thread& thread, shared::AttachOrder& order);

 private:
  Status ask(shared::AttachOrder& order);

  target::StoppedProcess& process_;
  const MappedAgent& agent_;
  MappedMemory memory_;
  Addr place_;  // of the order; the stack ends after it
};

// Whether the part of a thread's control block that the agent needs can be read. `tid_offset`: as in the process block.
bool has_control_block(target::StoppedProcess& process, const target::StoppedProcess::Thread& thread,
                       std::int32_t tid_offset);

// The agent's entries in the block at this address, as they are now; empty where they cannot be read. entry_in: that for the thread with this thread pointer; all
// 0: there is none.
std::vector<shared::ThreadEntry> thread_entries(target::Target& process, Addr block, const shared::ProcessBlock& head);
shared::ThreadEntry entry_in(const std::vector<shared::ThreadEntry>& entries, std::uint64_t thread_pointer);

}  // namespace uprobe::control
