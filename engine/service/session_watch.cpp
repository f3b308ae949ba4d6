// SPDX-License-Identifier: MIT
#include "engine/service/session_watch.h"

#include "engine/base/fd.h"

namespace uprobe::control {

// The last field of /proc/loadavg is the id that the kernel gave last in the reader's PID namespace; threads and processes of
// nested namespaces have ids there, too. Where the file cannot be read, new processes are always assumed.
bool SessionWatch::may_have_new_ones() {
  const auto load = read_file("/proc/loadavg");
  const std::size_t at = load ? load->rfind(' ') : std::string::npos;
  if (at == std::string::npos) return true;
  const std::string newest = load->substr(at + 1);
  if (newest == last_started_) return false;
  last_started_ = newest;
  return true;
}

void SessionWatch::find_new_ones() {
  const auto processes = target::list_processes();
  if (processes.empty()) return;
  ++round_;
  for (const auto& [pid, entry] : processes) {
    if (earlier_.has({pid, entry})) continue;
    Known& known = known_[pid];
    known.round = round_;
    if (known.entry == entry) continue;
    known.entry = entry;
    known.found = find_part_(pid);
  }
  std::erase_if(known_, [this](const auto& one) { return one.second.round != round_; });
}

std::optional<SessionWatch::Stray> SessionWatch::look_at(pid_t pid) {
  auto credentials = credentials_of(pid);
  if (!credentials) return std::nullopt;
  const auto part = find_part_(pid).part;
  if (!part || is_same_domain(*credentials, domain_of_(*part))) return std::nullopt;
  return Stray{.pid = pid, .part = *part, .credentials = credentials.take()};
}

std::vector<SessionWatch::Stray> SessionWatch::step() {
  if (may_have_new_ones()) find_new_ones();
  std::vector<Stray> strays;
  for (auto& [pid, known] : known_) {
    if (known.found.is_for_now) known.found = find_part_(pid);
    if (!known.found.part) continue;
    auto credentials = credentials_of(pid);
    if (!credentials || is_same_domain(*credentials, domain_of_(*known.found.part))) continue;
    // It may have called execve, and be no longer in the session.
    known.found = find_part_(pid);
    if (const auto part = known.found.part; part && !is_same_domain(*credentials, domain_of_(*part)))
      strays.push_back({.pid = pid, .part = *part, .credentials = credentials.take()});
  }
  return strays;
}

std::vector<pid_t> SessionWatch::members() const {
  std::vector<pid_t> members;
  for (const auto& [pid, known] : known_)
    if (known.found.part) members.push_back(pid);
  return members;
}

}  // namespace uprobe::control
