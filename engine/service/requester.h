// SPDX-License-Identifier: MIT
// The sender of a request: a process that is known to have the mailbox, and a thread, which the request names by its id in the
// process's own PID namespace.
#pragma once

#include <string>

#include "engine/process/members.h"
#include "engine/shared/mailbox.h"

namespace uprobe::control {

struct Requester {
  pid_t pid = 0, tid = 0;  // in the tool's namespace; tid 0: not found, and not needed
};

// The thread that has put `slot` at `at` in the process's memory. Several processes may share that memory (vfork), so the
// sender may belong to another one. Code::damaged where a thread is needed and none is found.
Result<Requester> find_requester(const trace::Area& area, const Member& process, Addr at, const shared::MailSlot& slot);

// The process of the session with the thread that the requester knows as `id`; 0 if there is none.
pid_t process_called(const trace::Area& area, const Requester& requester, pid_t id);

// The path that a request names, as far as it can be read: PATH_MAX characters at most.
std::string path_at(const target::ProcessFiles& files, Addr address);

}  // namespace uprobe::control
