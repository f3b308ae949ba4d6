// What the two worlds have in common, part 5: where things are in libuprobe.so.
//
// The library exports one symbol, `uprobe_agent`, a constant AgentHeader. Every place in it is a distance in bytes from
// the header itself, so the tool needs neither relocations nor a loader to use a mapped agent.
#pragma once

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
  i32 text, text_end;    // all of its code is in between
  i32 jump_entry;        // what trampolines call for hits that they do not record themselves (arch/x86/entry/jump.S)
  i32 visible_restorer;  // of handlers whose own carries no point; there, nothing is executable (preload/returns.cpp)
  i32 reserved[4];
};
static_assert(sizeof(AgentHeader) == 64);

// How the kernel is told about a signal handler (struct sigaction of the kernel's x86-64 ABI, uapi/asm/signal.h).
struct KernelSigaction {
  u64 handler;
  u64 flags;
  u64 restorer;
  u64 mask;
};
inline constexpr u64 kSaSiginfo = 4;
inline constexpr u64 kSaOnstack = 0x08000000;
inline constexpr u64 kSaRestart = 0x10000000;
inline constexpr u64 kSaNodefer = 0x40000000;
inline constexpr u64 kSaRestorer = 0x04000000;

// Our own handlers: nothing is masked in them, so leaving them needs no system call to restore a mask. A program without a
// handler of its own does not know of system calls that a signal has interrupted.
inline constexpr u64 kAgentSaFlags = kSaSiginfo | kSaOnstack | kSaNodefer | kSaRestart | kSaRestorer;

}  // namespace uprobe::shared
