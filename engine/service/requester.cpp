// SPDX-License-Identifier: MIT
#include "engine/service/requester.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/process/processes.h"
#include "engine/shared/process_block.h"
#include "engine/target/process_list.h"

namespace uprobe::control {
namespace {

using target::ids_of_thread;
using target::thread_called;

// Whether a thread of the process has the id `id` in the namespace `depth` levels in, counted from the tool's.
bool has_thread_called(pid_t pid, pid_t id, std::size_t depth) {
  for (const pid_t tid : threads_of(pid)) {
    const std::vector<pid_t> ids = ids_of_thread(pid, tid);
    if (depth >= 1 && ids.size() >= depth && ids[depth - 1] == id) return true;
  }
  return false;
}

}  // namespace

namespace {

bool shares_slot(const trace::Area& area, pid_t pid, Addr at, const shared::MailSlot& slot) {
  auto member = open_member(area, pid);
  shared::MailSlot there{};
  return member && member->files.read(at, &there, sizeof there) && there.asked.word == slot.asked.word &&
         there.tid == slot.tid && there.kind == slot.kind && there.block == slot.block && there.path == slot.path;
}

}  // namespace

Result<Requester> find_requester(const trace::Area& area, const Member& process, Addr at,
                                 const shared::MailSlot& slot) {
  const pid_t pid = process.files.pid();
  const auto named = static_cast<pid_t>(slot.tid);
  // The thread id is needed only where the thread is to be seized.
  const auto kind = static_cast<shared::MailKind>(slot.kind);
  if (kind != shared::MailKind::exec_begins && kind != shared::MailKind::exec_failed) return Requester{pid, 0};
  const Requester requester{pid, thread_called(pid, named)};
  if (requester.tid != 0) return requester;
  std::vector<pid_t> others{process_of_thread(named)};
  if (others[0] == 0 || !shares_slot(area, others[0], at, slot)) {
    struct stat status {};
    if (::fstat(area.fd(), &status) != 0) return system_error("fstat", errno);
    others = processes_mapping(status.st_ino);
    std::erase_if(others, [&](pid_t other) { return !shares_slot(area, other, at, slot); });
  }
  for (const pid_t other : others)
    if (const pid_t tid = thread_called(other, named); tid != 0) return Requester{other, tid};
  return Error{.code = Code::damaged, .text = "a request that no traced process has sent"};
}

pid_t process_called(const trace::Area& area, const Requester& requester, pid_t id) {
  struct stat status {};
  const std::size_t depth = ids_of_thread(requester.pid, requester.pid).size();
  const pid_t same = process_of_thread(id);
  if (same != 0 && depth == ids_of_thread(::getpid(), ::getpid()).size()) return open_member(area, same) ? same : 0;
  if (::fstat(area.fd(), &status) != 0) return 0;
  for (const pid_t pid : processes_mapping(status.st_ino))
    if (has_thread_called(pid, id, depth) && open_member(area, pid)) return pid;
  return 0;
}

// Up to a page end at a time, because the path may end right before unmapped memory.
std::string path_at(const target::ProcessFiles& files, Addr address) {
  constexpr std::size_t kPage = 4096;
  std::string path(PATH_MAX, '\0');
  std::size_t bytes = 0;
  while (bytes < path.size()) {
    const std::uint64_t at = address.value + bytes;
    const std::size_t step = std::min<std::size_t>(kPage - at % kPage, path.size() - bytes);
    if (!files.read(Addr{at}, path.data() + bytes, step)) break;
    bytes += step;
    if (path.find('\0') < bytes) break;
  }
  path.resize(std::min(path.find('\0'), bytes));
  return path;
}

}  // namespace uprobe::control
