#include "engine/control/asker.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "engine/control/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {
namespace {

bool has_token(pid_t pid, Addr block, std::uint32_t index, std::uint64_t token) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return false;
  std::uint64_t magic = 0, found = 0;
  const Addr place = block + offsetof(shared::ProcessBlock, mail_tokens) + index * sizeof token;
  return files->read(block, &magic, sizeof magic) && magic == shared::kBlockMagic &&
         files->read(place, &found, sizeof found) && found == token && token != 0;
}

// What a thread is called in each PID namespace that it is in, from ours inwards: "NSpid:\tOUTER\t...\tINNER".
std::vector<pid_t> ids_of(pid_t pid, pid_t tid) {
  std::vector<pid_t> ids;
  const auto status = read_file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status");
  const std::size_t at = status ? status->find("\nNSpid:") : std::string::npos;
  if (at == std::string::npos) return ids;
  std::istringstream line(status->substr(at + 7, status->find('\n', at + 1) - at - 7));
  for (pid_t id = 0; line >> id;) ids.push_back(id);
  return ids;
}

// The thread of the process that calls itself `inner`.
pid_t thread_called(pid_t pid, pid_t inner) {
  for (const pid_t tid : threads_of(pid)) {
    const std::vector<pid_t> ids = ids_of(pid, tid);
    if (!ids.empty() && ids.back() == inner) return tid;
  }
  return 0;
}

// Whether a thread of the process is called `id` in the namespace that is `depth` levels in, ours being the first.
bool has_thread_called(pid_t pid, pid_t id, std::size_t depth) {
  for (const pid_t tid : threads_of(pid)) {
    const std::vector<pid_t> ids = ids_of(pid, tid);
    if (depth >= 1 && ids.size() >= depth && ids[depth - 1] == id) return true;
  }
  return false;
}

}  // namespace

Result<Asker> find_asker(const trace::Area& area, const shared::MailSlot& slot, std::uint32_t index) {
  const Addr block{slot.block};
  const std::uint64_t token = slot.token;
  const auto named = static_cast<pid_t>(slot.tid);
  // A thread id is only needed where the thread is to be seized. Several processes may share the block's memory (vfork).
  const auto kind = static_cast<shared::MailKind>(slot.kind);
  const bool any_thread = kind != shared::MailKind::exec_begins && kind != shared::MailKind::exec_failed;
  const auto asks = [&](pid_t pid, pid_t& tid) {
    if (pid == 0 || !has_token(pid, block, index, token)) return false;
    tid = thread_called(pid, named);
    return any_thread || tid != 0;
  };
  Asker asker{process_of_thread(named), 0};
  if (asks(asker.pid, asker.tid)) return asker;
  struct stat status {};
  if (::fstat(area.fd(), &status) != 0) return system_error("fstat", errno);
  for (const pid_t pid : processes_mapping(status.st_ino))
    if (asks(pid, asker.tid)) return Asker{pid, asker.tid};
  return Error{.code = Code::damaged, .text = "a request that no traced process has made"};
}

pid_t process_called(const trace::Area& area, const Asker& asker, pid_t id) {
  struct stat status {};
  const std::size_t depth = ids_of(asker.pid, asker.pid).size();
  const pid_t same = process_of_thread(id);
  if (same != 0 && depth == ids_of(::getpid(), ::getpid()).size()) return same;
  if (::fstat(area.fd(), &status) != 0) return 0;
  for (const pid_t pid : processes_mapping(status.st_ino))
    if (has_thread_called(pid, id, depth)) return pid;
  return 0;
}

}  // namespace uprobe::control
