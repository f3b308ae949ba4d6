#include "engine/control/asker.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

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

// The last number of the line "NSpid:\tOUTER\t...\tINNER".
pid_t innermost_id(const std::string& status) {
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return 0;
  const std::string line = status.substr(at + 1, status.find('\n', at + 1) - at - 1);
  const std::size_t last = line.find_last_of("\t ");
  return last == std::string::npos ? 0 : static_cast<pid_t>(std::strtol(line.c_str() + last, nullptr, 10));
}

// The thread of the process that calls itself `inner`.
pid_t thread_called(pid_t pid, pid_t inner) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir(folder.c_str()), ::closedir);
  if (!tasks) return 0;
  while (const dirent* entry = ::readdir(tasks.get())) {
    const auto tid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (tid == 0) continue;
    const auto status = read_file(folder + "/" + entry->d_name + "/status");
    if (status && innermost_id(*status) == inner) return tid;
  }
  return 0;
}

}  // namespace

Result<Asker> find_asker(const trace::Area& area, const shared::MailSlot& slot, std::uint32_t index) {
  const Addr block{slot.block};
  const std::uint64_t token = slot.token;
  const auto named = static_cast<pid_t>(slot.tid);
  // A thread id is only needed where the thread is to be seized. Several processes may share the block's memory (vfork).
  const bool any_thread = slot.kind == static_cast<std::uint32_t>(shared::MailKind::libraries_changed) ||
                          slot.kind == static_cast<std::uint32_t>(shared::MailKind::code_mapped);
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

}  // namespace uprobe::control
