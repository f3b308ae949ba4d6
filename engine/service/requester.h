// SPDX-License-Identifier: MIT
// Who asks through a mailbox: a process that is known to have it, and a thread that it calls by an id of its own PID namespace.
#pragma once

#include "engine/process/members.h"
#include "engine/shared/mailbox.h"

namespace uprobe::control {

struct Requester {
  pid_t pid = 0, tid = 0;  // in our namespace; tid 0: not found, and not needed
};

// The thread that has put `slot` where the process has it at `at`. Several processes may share the memory (vfork): then it may be
// another one. Code::damaged when there is none, where one is needed.
Result<Requester> find_requester(const trace::Area& area, const Member& process, Addr at, const shared::MailSlot& slot);

// The process of the session with the thread that the requester calls `id`; 0 if there is none.
pid_t process_called(const trace::Area& area, const Requester& requester, pid_t id);

}  // namespace uprobe::control
