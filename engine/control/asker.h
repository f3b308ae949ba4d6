// Who asks through a mail slot. The slot lies in memory that every traced program can write, and a thread id in it counts in
// the asker's own PID namespace: neither is taken at its word.
#pragma once

#include "engine/target/target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

struct Asker {
  pid_t pid = 0, tid = 0;  // in our namespace; tid 0: not found, and not needed
};

// The process that maps the session's memfd and whose block, at the address in the slot, holds the slot's token; its thread
// with the slot's id. Code::damaged when there is none.
Result<Asker> find_asker(const trace::Area& area, const shared::MailSlot& slot, std::uint32_t index);

// The process with the thread that the asker calls `id`, of this session or another; 0 if it cannot be found.
pid_t process_called(const trace::Area& area, const Asker& asker, pid_t id);

}  // namespace uprobe::control
