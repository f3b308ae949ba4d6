// SPDX-License-Identifier: MIT
// The agent's header: the places in libuprobe.so that the tool needs.
//
// The library exports one symbol, `uprobe_agent`, a constant AgentHeader. Every place in it is a distance in bytes from
// the header itself, so the tool needs neither relocations nor a loader to use a mapped agent.
#pragma once

#include "arch/shared/kernel.h"
#include "engine/shared/layout.h"

namespace uprobe::shared {

inline constexpr u64 kAgentMagic = 0x31746e6761727075;  // "upragnt1"

struct AgentHeader {
  u64 magic;
  u32 abi_version;
  u32 header_bytes;
  i32 block_slot;        // u64: the tool stores the address of the process block here before any signal can arrive
  i32 trap_entry;        // SIGTRAP handler
  i32 fault_entry;       // SIGSEGV and SIGBUS handler
  i32 restorer;          // sa_restorer: rt_sigreturn
  i32 text, text_end;    // all of its code lies between
  i32 jump_entry;        // what trampolines call for hits that they do not record themselves (jump.S of arch/entry)
  i32 visible_restorer;  // for handlers whose own restorer has no point; not executable (preload/returns.cpp)
  i32 attach_entry;      // void(AttachOrder*): takes over a running process, or gives it back (preload/attach.cpp)
  i32 open_call;  // where threads wait in a call that the agent makes for them: the address after its instruction
  i32 call_not_made;  // such a thread, moved there with the result kNotMade, makes the call again, at the program's own place
  i32 reserved;
};
static_assert(sizeof(AgentHeader) == 64);
inline constexpr i64 kNotMade = -4096;  // the kernel never returns it

// A step that the tool has a thread of a stopped process execute, all signals blocked. Threads are asked one by one, the
// process once.
enum class AttachStep : u32 {
  take_process,  // the dispositions become the agent's, which remembers the program's
  take_thread,  // the thread's virtual mask becomes `blocked`, of kOurSignals; it gets a stack for the agent's handlers
  give_thread,  // its alternate stack is the program's again; `blocked` returns its virtual mask
  give_process,  // the dispositions are the program's again
};
struct AttachOrder {
  u32 step;
  u32 has_control_block;  // 1: the fields that thread_id() reads are valid
  u64 blocked;
  u64 stack_pointer;  // the thread's own
  u32 state;          // kOrderGiven, ...; the thread writes it from then on
  u32 reserved;
};
static_assert(sizeof(AttachOrder) == 32);
// When the step is done the thread waits in the agent until the tool stops and moves it; if the tool does not come, it returns
// itself.
inline constexpr u32 kOrderGiven = 0, kOrderDone = 1, kOrderLeft = 2;
inline constexpr u64 kOrderSeconds = 5;

// The agent's own handlers mask nothing, so leaving them needs no system call to restore a mask. A program without a handler
// expects no system call to be interrupted: kSaRestart.
inline constexpr u64 kAgentSaFlags = kSaSiginfo | kSaOnstack | kSaNodefer | kSaRestart | kSaRestorer;

}  // namespace uprobe::shared
