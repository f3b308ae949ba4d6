// SPDX-License-Identifier: MIT
// The page by which a preloaded agent gets its session.
//
// Loaded by ld.so, the agent starts the tool as a helper and shares one page with it, a memfd:
//
//   agent   fills the page, says `request`, starts the helper, works for it
//   helper  (command -> result)* -> done, slot.result = 0 (armed) or 1 (refused, the helper has said why)
//
// The page stays mapped in the process and in every fork of it, and nowhere else: the helper has ended when no process maps it
// (F_SEAL_WRITE can then be set on it). The exchange ends before the program has another thread or forks; after `done` neither
// side reads the page again, so a child may write anything to it. Later requests use the process's own mailbox.
#pragma once

#include "engine/shared/mailbox.h"

namespace uprobe::shared {

inline constexpr u64 kBootstrapMagic = 0x31746f6f62727075;  // "uprboot1"
inline constexpr u64 kBootstrapBytes = 4096;

struct Bootstrap {
  u64 magic;
  u32 abi_version;
  u32 pid;          // of the process, as its /proc names it
  u64 address;      // of this page in the process
  u64 agent;        // of the AgentHeader in the process
  u64 blocked;      // signal mask of the waiting thread, as the program will have it
  u32 heartbeat;    // moves while the helper lives
  u32 start_error;  // errno of starting the helper
  u32 wake;         // futex: bumped by the helper
  u32 bell;         // futex: bumped by the agent
  u8 reserved[72];
  MailSlot slot;
};
static_assert(sizeof(Bootstrap) == 256 && offsetof(Bootstrap, slot) == 128);

}  // namespace uprobe::shared
