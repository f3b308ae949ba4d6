// SPDX-License-Identifier: MIT
#include "engine/session/targets.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "engine/attach/attach.h"
#include "engine/base/exhaustion.h"
#include "engine/base/limits.h"
#include "engine/base/procfs.h"
#include "engine/inject/load.h"
#include "engine/process/processes.h"
#include "engine/process/program_end.h"
#include "engine/resolve/programs.h"
#include "engine/service/loader_events.h"
#include "engine/target/attachable.h"
#include "engine/target/guardian.h"
#include "engine/target/process_stat.h"

namespace uprobe {
namespace {

// The /proc of another PID namespace has other processes under the ids of this tool's children: nothing there may be read or
// written.
bool proc_is_ours() {
  char link[32] = {};
  return ::readlink("/proc/self", link, sizeof link - 1) > 0 && std::strtol(link, nullptr, 10) == ::getpid();
}

bool is_alive(pid_t pid) {
  const auto stat = procfs::read(pid, "stat");
  const std::size_t name_end = stat ? stat->rfind(") ") : std::string::npos;
  return name_end != std::string::npos && (*stat)[name_end + 2] != 'Z' && (*stat)[name_end + 2] != 'X';
}

}  // namespace

Status Targets::open_agent() {
  if (!proc_is_ours())
    return Error{.code = Code::refused,
                 .text = "/proc is missing or belongs to another PID namespace",
                 .help = "mount one for this namespace (unshare --mount-proc)"};
  const std::string path = options_.agent_path.empty() ? find_agent() : options_.agent_path;
  if (path.empty())
    return Error{.code = Code::not_found,
                 .text = "libuprobe.so is neither next to uprobe-run nor where it was installed"};
  auto image = control::AgentImage::open(path);
  if (!image) return image.error();
  agent_.emplace(image.take());
  return ok();
}

// All tools take processes in ascending order, so that no two tools wait for each other.
void Targets::attach_to(const std::set<pid_t>& pids) {
  attaches_ = true;
  attached_.assign(pids.begin(), pids.end());
}

control::InternalPoints::Wishes Targets::wishes() const {
  return {.ends_too = !agent_ || is_daemonized(),
          .is_preloaded = !agent_,
          .insists_on_stubs = options_.returns == plan::ReturnMode::stub};
}

std::vector<pid_t> Targets::roots() const {
  if (!attaches_) return {child_};
  std::vector<pid_t> alive;
  std::copy_if(attached_.begin(), attached_.end(), std::back_inserter(alive), is_alive);
  return alive;
}

Status Targets::make_area() {
  const std::uint32_t mode = (agent_ ? 0 : shared::kModePreloaded) | (attaches_ ? shared::kModeAttached : 0) |
                             (is_daemonized() ? shared::kModeDaemonize : 0);
  RETURN_IF_ERROR(recording_.make_area(mode, attached_.empty() ? ::getpid() : attached_.front()));
  const auto needs = wishes();
  armer_.emplace(table_.planned(), control::ArmOptions{.ends_too = needs.ends_too,
                                                       .is_preloaded = needs.is_preloaded,
                                                       .tier = options_.tier,
                                                       .flows = &table_.flows(),
                                                       .area = &recording_.area(),
                                                       .insists_on_stubs = needs.insists_on_stubs});
  return recording_.make_reader();
}

// It has a thread of its own, because planning a large library may keep the others busy for long.
Status Targets::show_life() {
  auto& header = recording_.area().header();
  return catch_resource_exhaustion([&]() -> Status {
    heartbeat_ = std::make_unique<control::Heartbeat>(header.tool_heartbeat, &header.tool_life);
    return ok();
  });
}

void Targets::forget() {
  heartbeat_.reset();
  armer_.reset();
  recording_.forget();
}

Status Targets::plan_for(pid_t pid) {
  auto process = target::ProcessFiles::open(pid);
  if (!process) return process.error();
  target::RunningTarget target(process.take());
  return plan_for(target);
}

Status Targets::plan_for(target::Target& target) {
  plan::FileCache files;
  for (const Probe& probe : table_.probes()) files.know(probe.site.file);
  auto hook_note = control::add_library_hook(target, files, table_.planned());
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) messages_.notes.push_back(hook_note.take());
  return ok();
}

Status Targets::arm(target::Target& target, const std::function<Result<control::Block>()>& load) {
  RETURN_IF_ERROR(plan_for(target));
  RETURN_IF_ERROR(show_life());
  auto block = load();
  if (!block) return block.error();
  Status begun = catch_resource_exhaustion([&]() -> Status {
    RETURN_IF_ERROR(armer_->arm(target, *block));
    return begin({{target.pid(), block->address()}});
  });
  if (begun) return ok();
  static_cast<void>(control::disarm_waiting(target.pid(), block->address()));
  static_cast<void>(control::uninstall_handlers(target, *block));
  return begun;
}

Status Targets::begin(const std::map<pid_t, Addr>& first) {
  RETURN_IF_ERROR(find_any_armed());
  control::CodeMaps* const maps = recording_.code_maps();
  for (const auto& [pid, block] : first) {
    if (maps != nullptr) maps->note(pid);
    recording_.learn(control::tasks_of(pid));
  }
  mail_.emplace(recording_.area(), *armer_, table_.planned(), agent_ ? &*agent_ : nullptr, first, maps, earlier_,
                options_.notes_mappings, std::move(heartbeat_));
  recording_.begin();
  return ok();
}

// A session in which no point can be armed would never show anything.
Status Targets::find_any_armed() const {
  if (!report().armed_events.empty() || report().first_refusal.empty()) return ok();
  return Error{.code = Code::refused, .text = "nothing in the program can be probed: " + report().first_refusal};
}

// The program is stopped with all signals masked, so only SIGKILL can have ended it.
bool Targets::is_killed(const Error& error) const {
  constexpr auto kOnItsWayOut = std::chrono::milliseconds(20);
  return error.code == Code::killed || error.err == ESRCH || (pidfd_ && control::has_ended(pidfd_.get(), kOnItsWayOut));
}

// A program that is killed while the tool loads the agent has ended as it would have without the tool; run() reports that.
Status Targets::unless_killed(const Error& error) {
  if (!is_killed(error)) return error;
  const bool is_known = error.code == Code::killed && error.signal != 0;
  ended_early_ = Ending{.signalled = true, .code = is_known ? error.signal : SIGKILL};
  return ok();
}

// The program has run no instruction: it ends with the exit code that the tool would have had.
Status Targets::give_up(target::PtraceTarget& target, const Error& error) {
  if (!is_killed(error)) target.end(options_.waiting->give_up(error));
  return Error{.code = Code::killed, .text = error.text, .signal = SIGKILL};
}

// Between the fork and the stop of the child, or before a waiting process is told to become the program.
Status Targets::prepare_program() {
  if (options_.has_guardian)  // first, so that the program is the first child that other threads see
    target::start_guardian(is_daemonized() ? options_.waiting->pid : 0);
  if (options_.tier != plan::Tier::breakpoint)
    for (const control::FilePoints& file : table_.planned().files()) table_.flows().begin(file.file);
  raise_own_limits();  // the child has inherited the old ones
  return make_area();
}

// Starts the program and stops it before its first instruction.
Result<std::unique_ptr<target::PtraceTarget>> Targets::start(const std::string& program,
                                                             const std::vector<std::string>& argv) {
  if (!is_daemonized())
    return target::PtraceTarget::launch(program, argv, {.in_parent = [this] { return prepare_program(); }});
  RETURN_IF_ERROR(prepare_program());
  return target::PtraceTarget::launch_waiting(options_.waiting->pid, options_.waiting->line, program);
}

Status Targets::make_ready(target::PtraceTarget& target, const std::function<Status()>& is_ready) {
  child_ = target.pid();
  // Where SIGCHLD is ignored (the child has inherited that by now) a child that ends leaves no status. The program is stopped,
  // so it cannot end before this.
  ::signal(SIGCHLD, SIG_DFL);
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
  if (!pidfd_) return system_error("pidfd_open", errno);
  RETURN_IF_ERROR(is_ready());
  const auto load = [&] {
    return control::load_agent(target, *agent_, recording_.area(), table_.planned().block_needs());
  };
  RETURN_IF_ERROR(arm(target, load));
  return target.release();
}

// All processes of the session will be the program, and what comes of it.
Status Targets::launch(const std::string& program, const std::vector<std::string>& argv,
                       const std::function<Status()>& is_ready) {
  earlier_ = target::EarlierProcesses::now();
  if (is_daemonized()) earlier_.leave_out(options_.waiting->pid);
  auto target = start(program, argv);
  if (!target) return is_daemonized() ? Status(target.error()) : unless_killed(target.error());
  const Status ready = make_ready(**target, is_ready);
  if (ready) return ok();
  return is_daemonized() ? give_up(**target, ready.error()) : unless_killed(ready.error());
}

std::vector<control::SeenTask> Targets::learn_names() {
  std::vector<control::SeenTask> seen;
  if (mail_) recording_.learn(seen = mail_->take_names());
  return seen;
}

void Targets::let_go_of_all(bool waits_at_end) {
  const auto area = recording_.inode();
  if (!area) return;
  std::set<pid_t> seen{::getpid()};
  if (waits_at_end && control::waits_at_its_end(child_)) seen.insert(child_);
  // Children that are forked during a look are found by the next look.
  constexpr int kMostLooks = 100;
  bool found_new = true;
  for (int looks = 0; found_new && looks < kMostLooks; ++looks) {
    found_new = false;
    auto pids = control::processes_mapping(*area, earlier_);
    std::stable_partition(pids.begin(), pids.end(), std::not_fn(target::has_thread_that_cannot_stop));
    for (const pid_t pid : pids) {
      if (seen.count(pid) != 0 || target::borrows_memory(pid)) continue;  // restored together with its parent
      seen.insert(pid);
      found_new = true;
      if (!control::is_tool_of(pid, *area)) let_go_.insert(pid);
      let_go_in_time(pid);
    }
  }
}

// Any number of processes may have threads that cannot be stopped. The tool waits for some of them, and not for all.
void Targets::let_go_in_time(pid_t pid) {
  constexpr std::chrono::seconds kMostWaited{2};
  const bool does_not_stop = target::has_thread_that_cannot_stop(pid);
  if (!does_not_stop || waited_ < kMostWaited) {
    const auto begun = std::chrono::steady_clock::now();
    let_go_of(pid);
    if (does_not_stop) waited_ += std::chrono::steady_clock::now() - begun;
    return;
  }
  if (attaches_) note_kept(pid, "a thread does not stop: it waits in the kernel");
  if (const auto block = control::find_block(pid))
    static_cast<void>(control::disarm_running(pid, *block, control::Stop::no));
}

void Targets::note_kept(pid_t pid, const std::string& why) {
  messages_.notes.push_back("process " + std::to_string(pid) + " keeps handlers of the tool, without probes: " + why);
}

// Gives an attached process back as it was; from other processes it only removes the probes, as a rule.
void Targets::let_go_of(pid_t pid) {
  if (attaches_ || control::has_blocked_signals(pid)) {
    const Status given = control::give_back(pid);
    if (given || !control::has_session(pid)) return;  // it may have ended, or have called execve
    if (attaches_) note_kept(pid, given.error().text);
  }
  if (const auto block = control::find_block(pid)) static_cast<void>(control::disarm_running(pid, *block));
}

void Targets::tell_of_survivors() {
  const auto goes_on = [](pid_t pid) { return !target::has_ended(pid); };
  const auto count = std::ranges::count_if(let_go_, goes_on);
  if (count == 0) return;
  const std::string who = count == 1 ? "1 traced process goes" : std::to_string(count) + " traced processes go";
  messages_.notes.push_back(who + " on untraced; --until=last stays until the last has ended");
}

void Targets::kill_program() {
  if (pidfd_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

}  // namespace uprobe
