// SPDX-License-Identifier: MIT
// The processes of a session, as the kernel reports them: those that map the session's plan and, where it belongs, a live part.
#pragma once

#include "engine/base/fd.h"
#include "engine/shared/mailbox.h"
#include "engine/target/target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

struct Member {
  Fd handle;  // a pidfd, opened before anything else was read
  target::ProcessFiles files;
  Addr area;         // where the plan is mapped
  std::size_t part;  // the live part that it maps

  Addr mailbox() const { return Addr{area.value - shared::kMailboxBytes}; }
  // Whether this is still the process that was looked at, and not a later one with the same id.
  bool lives() const;
};

// Code::not_found: it does not map the session. The kernel's error where the process may not be inspected.
Result<Member> open_member(const trace::Area& area, pid_t pid);

}  // namespace uprobe::control
