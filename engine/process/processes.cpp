// SPDX-License-Identifier: MIT
#include "engine/process/processes.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>

#include "engine/base/procfs.h"
#include "engine/process/block.h"
#include "engine/proxy/memory.h"
#include "engine/proxy/proxy.h"
#include "engine/shared/mailbox.h"

namespace uprobe::control {

namespace {

constexpr const char* kSessionName = "memfd:uprobe-session";

}  // namespace

bool is_session_area(const target::Mapping& m) { return m.path.find(kSessionName) != std::string::npos; }

AreaRange area_range(const std::vector<target::Mapping>& maps, Addr area) {
  const auto first = std::ranges::find(maps, area, &target::Mapping::begin);
  if (first == maps.end() || !is_session_area(*first)) return {area, area};
  AreaRange range{area, area};
  for (auto m = first; m != maps.end() && m->begin == range.end && is_session_area(*m); ++m) range.end = m->end;
  const bool has_mailbox = first != maps.begin() && (first - 1)->end == area && (first - 1)->path.empty() &&
                           (first - 1)->end - (first - 1)->begin == shared::kMailboxBytes;
  if (has_mailbox) range.begin = (first - 1)->begin;
  return range;
}

bool is_tool_of(pid_t pid, ino_t memfd) {
  const std::string folder = procfs::path(pid, "fd/");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    std::array<char, 64> link{};
    const std::string path = folder + entry->d_name;
    const ssize_t size = ::readlink(path.c_str(), link.data(), link.size());
    if (size <= 0 ||
        std::string_view(link.data(), static_cast<std::size_t>(size)).find(kSessionName) == std::string::npos)
      continue;
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && status.st_ino == memfd) return true;
  }
  return false;
}

namespace {

// The mappings of a process; empty: none, or not readable. The first thread may have ended: then the other threads have the
// memory.
std::string maps_of(pid_t pid) {
  const std::string own = procfs::path(pid);
  auto text = proxy::read_of(pid, own + "/maps");
  if (!text) return {};
  if (!text->empty()) return text.take();
  const std::vector<pid_t> threads = target::threads_of(pid);
  for (std::size_t i = 1; i < threads.size(); ++i)
    if (auto other = proxy::read_of(pid, own + "/task/" + std::to_string(threads[i]) + "/maps");
        other && !other->empty())
      return other.take();
  return {};
}

bool shows_session(const std::string& maps) { return maps.find(kSessionName) != std::string::npos; }

}  // namespace

bool is_being_changed(const shared::ProcessBlock& block) {
  return block.changer != 0 && !threads_of(static_cast<pid_t>(block.changer)).empty();
}

bool has_session(pid_t pid) { return shows_session(maps_of(pid)); }

namespace {

// The first area of a session in a process for which `is_wanted` is true. The kernel is asked for shared mappings alone where it can be: any
// process of the machine may make the text of its mappings as long as it likes.
template <class IsWanted>
std::optional<target::Mapping> area_in(pid_t pid, const IsWanted& is_wanted) {
  const auto is_it = [&](const target::Mapping& m) { return is_wanted(m) && is_session_area(m); };
  auto maps = target::asked_shared_files(pid);
  const bool is_asked = maps.has_value();
  if (!is_asked) {
    const std::string text = maps_of(pid);
    maps = shows_session(text) ? target::parse_maps(text) : std::vector<target::Mapping>();
  }
  for (target::Mapping& m : *maps) {
    if (!is_wanted(m)) continue;
    if (is_asked)
      if (auto named = target::asked_mapping(pid, m.begin)) m = std::move(*named);
    if (is_it(m)) return m;
  }
  return std::nullopt;
}

}  // namespace

std::vector<pid_t> processes_mapping(ino_t memfd, const target::EarlierProcesses& earlier) {
  std::vector<pid_t> found;
  for (const auto& process : target::list_processes()) {
    if (earlier.has(process) || proxy::is_own(process.pid)) continue;
    if (area_in(process.pid, [memfd](const target::Mapping& m) { return m.inode == memfd; }))
      found.push_back(process.pid);
  }
  return found;
}

std::vector<InSession> processes_in_sessions() {
  std::vector<InSession> found;
  for (const auto& process : target::list_processes())
    if (!proxy::is_own(process.pid))
      if (const auto area = area_in(process.pid, [](const target::Mapping&) { return true; }))
        found.push_back({process.pid, area->inode, area->begin});
  return found;
}

pid_t process_of_thread(pid_t tid) {
  const auto status = procfs::read(tid, "status");
  return status ? static_cast<pid_t>(procfs::number(*status, "Tgid")) : 0;
}

namespace {

// The address of the agent's header in one of its mappings.
std::optional<Addr> agent_header_in(const target::ProcessFiles& files, const target::Mapping& m) {
  constexpr std::uint64_t kMostRead = 1 << 20;
  std::vector<std::uint64_t> words(std::min(m.end - m.begin, kMostRead) / sizeof(std::uint64_t));
  if (!files.read(m.begin, words.data(), words.size() * sizeof words[0])) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), shared::kAgentMagic);
  if (found == words.end()) return std::nullopt;
  return m.begin + static_cast<std::uint64_t>(found - words.begin()) * sizeof words[0];
}

}  // namespace

Result<FoundAgent> find_agent(pid_t pid) {
  constexpr int kMostLooks = 64;  // a process may map many files with the agent's name
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  const auto maps = files->maps();
  if (!maps) return maps.error();
  int looks = 0;
  for (const target::Mapping& m : *maps) {
    if (!m.readable || m.shared || m.path.find("libuprobe.so") == std::string::npos) continue;
    if (++looks > kMostLooks) break;
    const auto at = agent_header_in(*files, m);
    FoundAgent found{};
    if (!at || !files->read(*at, &found.agent.header, sizeof found.agent.header)) continue;
    if (Status ours = check_agent(found.agent.header, m.path); !ours) {
      Error error = ours.error();
      error.code = Code::refused;
      return error;
    }
    found.agent.at = *at;
    found.agent.base = found.agent.place(found.agent.header.text);
    if (files->read(found.agent.place(found.agent.header.block_slot), &found.block, sizeof found.block) && found.block)
      return found;
  }
  return Error{.code = Code::not_found, .text = "there is no agent in the process"};
}

Result<Addr> find_block(pid_t pid) {
  const auto found = find_agent(pid);
  return found ? Result<Addr>(found->block) : found.error();
}

bool gains_privileges(const std::string& path) {
  return ::geteuid() != 0 && proxy::gives_privileges({}, path).value_or(true);
}

}  // namespace uprobe::control
