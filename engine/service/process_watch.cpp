// SPDX-License-Identifier: MIT
#include "engine/service/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/recording/raw_records.h"
#include "engine/target/process_stat.h"
#include "engine/trace/task_names.h"

namespace uprobe {
namespace {

using format::ProcessEvent;
using std::chrono::steady_clock;

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr std::size_t kMostExecs = 64;  // of a process whose start has not been told

Fd open_process(std::uint32_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

// How a child has ended, which stays to be reaped.
void add_ending(pid_t child, ProcessEvent& event) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != child)
    return;
  (info.si_code == CLD_EXITED ? event.exit : event.signal) = info.si_status;
}

}  // namespace

ProcessWatch::ProcessWatch(Needs needs) : needs_(std::move(needs)) {}

bool ProcessWatch::knows(std::uint32_t pid, std::uint64_t ns) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return false;
  if (found->second.gone == 0 || ns <= found->second.gone) return true;
  end(found);
  return false;
}

// Of a process that was made by another one of the session: that has no other parent as long as it is there.
std::uint32_t ProcessWatch::parent_of(std::uint32_t pid) const {
  const auto status = procfs::read(static_cast<pid_t>(pid), "status");
  const auto parent = status ? static_cast<std::uint32_t>(procfs::number(*status, "PPid")) : 0;
  return processes_.contains(parent) ? parent : 0;
}

// Null: it is one too many.
ProcessWatch::Process* ProcessWatch::begin(std::uint32_t pid, const First& first, Process process) {
  if (processes_.size() >= needs_.most) {
    is_overfull_ = true;
    return nullptr;
  }
  process.start = ProcessEvent{.kind = ProcessEvent::Kind::start,
                               .pid = pid,
                               .ns = first.ns,
                               .parent = process.handle ? parent_of(pid) : 0,
                               .comm = first.comm};
  process.comm = first.comm;
  gone_ += process.gone != 0 ? 1 : 0;
  ++untold_;
  return &processes_.emplace(pid, std::move(process)).first->second;
}

// Its parent's is told before.
void ProcessWatch::tell_start(Process& process) {
  if (!process.start) return;
  --untold_;
  const ProcessEvent start = *std::exchange(process.start, std::nullopt);
  if (const auto parent = processes_.find(start.parent); parent != processes_.end()) tell_start(parent->second);
  needs_.tell(start);
  for (const ProcessEvent& exec : std::exchange(process.execs, {})) needs_.tell(exec);
}

// Of a process with that record.
void ProcessWatch::tell_start(Process& process, const First& first) {
  if (!process.start) return;
  if (first.ns < process.start->ns) process.start->ns = first.ns, process.start->comm = first.comm;
  tell_start(process);
}

void ProcessWatch::tell_starts(bool of_all) {
  if (untold_ == 0) return;
  for (auto& [pid, process] : processes_)
    if (process.start && (of_all || needs_.has_handed_on(process.start->ns))) tell_start(process);
}

void ProcessWatch::begin_unproved(std::uint32_t pid, const First& first) {
  Fd handle = processes_.size() < needs_.most ? needs_.open_member(static_cast<pid_t>(pid)) : Fd();
  const bool is_there = handle || !target::has_ended(static_cast<pid_t>(pid));
  const std::uint64_t gone = is_there ? 0 : trace::TaskNames::now_ns();
  Process* const process = begin(pid, first, {.handle = std::move(handle), .comm = {}, .gone = gone, .start = {}});
  if (process != nullptr) tell_start(*process);
}

void ProcessWatch::add_member(pid_t pid, std::uint64_t ns, std::string_view comm) {
  const auto number = static_cast<std::uint32_t>(pid);
  if (number == 0) return;
  Fd handle = open_process(number);
  if (!knows(number, ns)) {
    const bool is_there = handle || !target::has_ended(pid);
    const std::uint64_t gone = is_there ? 0 : trace::TaskNames::now_ns();
    begin(number, {ns, std::string(comm)}, {.handle = std::move(handle), .comm = {}, .gone = gone, .start = {}});
    return;
  }
  Process& process = processes_.at(number);
  process.comm = comm;
  if (process.gone == 0 && !process.handle) process.handle = std::move(handle);
}

void ProcessWatch::learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs) {
  const auto is_first_thread = [](const control::SeenTask& task) { return task.number == task.process; };
  for (const control::SeenTask& task : tasks)
    if (is_first_thread(task) || !processes_.contains(task.process))
      add_member(static_cast<pid_t>(task.process), task.ns, task.name);
  for (const control::SeenExec& exec : execs) {
    add_member(exec.pid, exec.ns, exec.comm);
    const auto pid = static_cast<std::uint32_t>(exec.pid);
    const auto known = processes_.find(pid);
    if (known == processes_.end()) continue;
    ProcessEvent event{.kind = ProcessEvent::Kind::exec, .pid = pid, .ns = exec.ns, .comm = exec.comm, .exe = exec.exe};
    if (known->second.start && known->second.execs.size() < kMostExecs)
      known->second.execs.push_back(std::move(event));
    else
      needs_.tell(event);
  }
}

void ProcessWatch::see(std::uint32_t pid, std::uint64_t ns, std::string_view comm) {
  if (pid == latest_ || pid == 0) return;
  if (!knows(pid, ns)) begin_unproved(pid, {ns, std::string(comm)});
  const auto known = processes_.find(pid);
  if (known == processes_.end()) return;
  tell_start(known->second, {ns, std::string(comm)});
  if (known->second.gone == 0) latest_ = pid;
}

void ProcessWatch::see_run(const trace::RecordRun& run) {
  const auto first = recording::first_record(run.records);
  if (run.pid == latest_ || run.pid == 0 || !first) return;
  const std::uint64_t ns = first->head.tsc;
  if (knows(run.pid, ns) && !processes_.at(run.pid).start) return;
  if (of_runs_.size() >= needs_.most && !of_runs_.contains(run.pid)) return static_cast<void>(is_overfull_ = true);
  First& known = of_runs_.try_emplace(run.pid, First{ns, std::string(run.comm)}).first->second;
  if (ns < known.ns) known = {ns, std::string(run.comm)};
}

void ProcessWatch::begin_those_of_runs() {
  for (const auto& [pid, first] : std::exchange(of_runs_, {})) {
    if (knows(pid, first.ns))
      tell_start(processes_.at(pid), first);
    else
      begin_unproved(pid, first);
  }
}

void ProcessWatch::step() {
  begin_those_of_runs();
  tell_starts(false);
  if (gone_ != 0) tell_ends(false);
  const auto now = steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  find_gone();
}

void ProcessWatch::look(bool is_last) {
  begin_those_of_runs();
  tell_starts(is_last);
  find_gone();
  tell_ends(is_last);
}

// A process without a handle is asked for by its id alone.
void ProcessWatch::find_gone() {
  std::vector<pollfd> handles;
  handles.reserve(processes_.size());
  for (const auto& [pid, process] : processes_) {
    const bool is_watched = process.handle && process.gone == 0;
    handles.push_back({.fd = is_watched ? process.handle.get() : -1, .events = POLLIN, .revents = 0});
  }
  ::poll(handles.data(), handles.size(), 0);
  latest_ = 0;
  auto handle = handles.cbegin();
  for (auto& [pid, process] : processes_) {
    const bool is_gone = process.handle ? handle->revents != 0 : target::has_ended(static_cast<pid_t>(pid));
    ++handle;
    if (process.gone != 0 || !is_gone) continue;
    process.gone = trace::TaskNames::now_ns();
    ++gone_;
  }
}

void ProcessWatch::tell_ends(bool of_all) {
  for (auto entry = processes_.begin(); entry != processes_.end();) {
    const std::uint64_t gone = entry->second.gone;
    entry = gone != 0 && (of_all || needs_.has_handed_on(gone)) ? end(entry) : std::next(entry);
  }
}

ProcessWatch::Entry ProcessWatch::end(Entry entry) {
  tell_start(entry->second);
  ProcessEvent event{
      .kind = ProcessEvent::Kind::end, .pid = entry->first, .ns = entry->second.gone, .comm = entry->second.comm};
  if (needs_.own_child != 0 && static_cast<pid_t>(event.pid) == needs_.own_child) add_ending(needs_.own_child, event);
  needs_.tell(event);
  --gone_;
  return processes_.erase(entry);
}

}  // namespace uprobe
