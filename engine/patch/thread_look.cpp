// SPDX-License-Identifier: MIT
#include "engine/patch/thread_look.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "engine/base/procfs.h"
#include "engine/proxy/memory.h"
#include "engine/target/process_stat.h"
#include "engine/target/seccomp.h"
#include "engine/target/stopped_process.h"

namespace uprobe::control {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kTurnPatience = 20ms;  // for a thread that waits for its turn on a processor

// How often a thread has left its processor.
std::optional<long> switches_of(pid_t pid, pid_t tid) {
  const auto status = procfs::read(pid, tid, "status");
  if (!status || !procfs::field(*status, "voluntary_ctxt_switches")) return std::nullopt;
  return procfs::number(*status, "voluntary_ctxt_switches") + procfs::number(*status, "nonvoluntary_ctxt_switches");
}

// "NUMBER ARGUMENTS... SP IP", or "-1 SP IP" outside of system calls; "running" of a thread that does not sleep.
std::optional<target::ThreadPlace> place_in_sleep(const std::string& syscall) {
  std::istringstream words(syscall);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  if (all.size() != 3 && all.size() != 9) return std::nullopt;
  const auto number = [](const std::string& word) { return std::strtoull(word.c_str(), nullptr, 16); };
  return target::ThreadPlace{number(all[all.size() - 1]), number(all[all.size() - 2])};
}

std::optional<LiveCodeAddresses> look_asleep(target::Target& process, const std::vector<target::Mapping>& maps,
                                             pid_t tid) {
  const pid_t pid = process.pid();
  const auto before = switches_of(pid, tid);
  const auto syscall = proxy::read_of(pid, procfs::path(pid, tid, "syscall"));
  const auto place = before && syscall ? place_in_sleep(*syscall) : std::nullopt;
  if (!place) return std::nullopt;
  LiveCodeAddresses kept = LiveCodeAddresses::of_thread(process, maps, *place, [] {});
  const auto again = proxy::read_of(pid, procfs::path(pid, tid, "syscall"));
  const bool has_slept = again && *again == *syscall && switches_of(pid, tid) == before;
  return has_slept ? std::optional(std::move(kept)) : std::nullopt;
}

ThreadLook look_stopped(target::Target& process, const std::vector<target::Mapping>& maps, const CodeRange& agent,
                        pid_t tid) {
  ThreadLook look;
  if (target::is_filtered(process.pid(), tid) && !target::can_suspend_filters()) return look;
  auto held = target::StoppedProcess::hold_thread(process.pid(), tid, kTurnPatience);
  if (!held || (*held)->places().size() != 1) return look;
  const auto begun = Clock::now();
  const target::ThreadPlace place = (*held)->places().front();
  if (Addr{place.ip} < agent.begin || agent.end <= Addr{place.ip})
    look.kept = LiveCodeAddresses::of_thread(**held, maps, place, [&] { (*held)->let_go(); });
  (*held)->let_go();
  look.stopped = Clock::now() - begun;
  return look;
}

}  // namespace

ThreadLook look_at_thread(target::Target& process, const std::vector<target::Mapping>& maps, const CodeRange& agent,
                          pid_t tid) {
  constexpr int kMostTries = 3;  // it may have gone to sleep, or woken, during the look
  for (int tries = 0; tries < kMostTries; ++tries)
    if (auto kept = look_asleep(process, maps, tid)) return {.kept = std::move(kept), .stopped = {}};
  return look_stopped(process, maps, agent, tid);
}

// A list of a folder that changes as it is read may lack some: two equal ones that are as long as the kernel says lack none.
std::vector<pid_t> all_threads_of(pid_t pid) {
  constexpr int kMostLooks = 10;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    std::vector<pid_t> first = target::threads_of(pid);
    const auto status = procfs::read(pid, "status");
    const auto count = status ? static_cast<std::size_t>(procfs::number(*status, "Threads")) : 0;
    std::vector<pid_t> second = target::threads_of(pid);
    std::ranges::sort(first);
    std::ranges::sort(second);
    if (first != second || first.size() != count) continue;
    std::erase_if(first, [pid](pid_t tid) { return target::is_kernels(pid, tid); });
    return first;
  }
  return {};
}

}  // namespace uprobe::control
