// SPDX-License-Identifier: MIT
// Which processes belong to a session, by the kernel's word alone: those that map its plan, and a live part of it where that belongs.
#pragma once

#include "engine/base/fd.h"
#include "engine/shared/mailbox.h"
#include "engine/target/target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

struct Member {
  Fd handle;  // a pidfd, from before the first look
  target::ProcessFiles files;
  Addr area;         // where the plan is mapped
  std::size_t part;  // the live part that it maps

  Addr mailbox() const { return Addr{area.value - shared::kMailboxBytes}; }
  // The process that was looked at is still there: none has come after it by the same number.
  bool lives() const;
};

// Code::not_found: it does not map the session. An error of the kernel's where it may not be looked at.
Result<Member> open_member(const trace::Area& area, pid_t pid);

}  // namespace uprobe::control
