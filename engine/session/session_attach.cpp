// SPDX-License-Identifier: MIT
// Attaching to running processes, alone or as a client of the tool that traces them.
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "engine/attach/attach.h"
#include "engine/attach/running_handlers.h"
#include "engine/base/exhaustion.h"
#include "engine/base/limits.h"
#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/session/session_state.h"
#include "engine/target/attachable.h"
#include "engine/target/guardian.h"
#include "engine/target/stopped_process.h"

namespace uprobe {
namespace {

using target::StoppedProcess;

Error about(pid_t pid, Error error) {
  if (error.err == EPERM || error.err == EACCES) return target::explain_refusal(pid, error.err);
  if (error.where.empty()) error.where = "process " + std::to_string(pid);
  return error;
}

Status check_free(pid_t pid) {
  RETURN_IF_ERROR(target::check_attachable(pid));
  const auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  return control::make_free(pid);
}

// Retries while another tool is at work in the process: one that is about to end, or one that begins.
class Turn {
 public:
  explicit Turn(const GivenUp& given_up) : given_up_(given_up) {}

  // Whether to retry; sleeps for a moment first.
  bool comes_after(const Error& error) {
    using namespace std::chrono_literals;
    constexpr int kMostBusy = 1000, kMostForbidden = 20;
    const int most = error.retry == Retry::soon ? kMostBusy : error.err == EPERM ? kMostForbidden : 0;
    if (++tries_ > most || given_up_()) return false;
    std::this_thread::sleep_for(10ms);
    return true;
  }
  Error failed(const Error& error) const {
    return given_up_() ? Error{.code = Code::killed, .text = "given up"} : error;
  }

 private:
  const GivenUp& given_up_;
  int tries_ = 0;
};

Status await_free(pid_t pid, const GivenUp& given_up) {
  for (Turn turn(given_up);;) {
    const Status free = check_free(pid);
    if (free || !turn.comes_after(free.error())) return free ? free : turn.failed(free.error());
  }
}

struct Held {
  std::unique_ptr<StoppedProcess> process;
  Result<control::FoundAgent> agent;
};

// Stops a process that has no session. Of several tools that begin at the same time one gets the first thread, and the others
// see that and retry.
Result<Held> hold_free(pid_t pid, const GivenUp& given_up) {
  for (Turn turn(given_up);;) {
    RETURN_IF_ERROR(await_free(pid, given_up));
    if (given_up()) return turn.failed({});
    auto process = StoppedProcess::hold(pid);
    if (process) {
      auto agent = control::find_agent(pid);
      if (!control::is_in_session(pid, agent)) return Held{process.take(), std::move(agent)};
    }
    const Error error =
        process
            ? Error{.code = Code::refused, .text = "another tool attaches to it at the same time", .retry = Retry::soon}
            : process.error();
    if (process) (*process)->let_go();
    if (!turn.comes_after(error)) return turn.failed(error);
  }
}

bool has_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

// Also removes the remote-call code of a tool that was killed before it had a session in the process.
Status clean(pid_t pid) {
  const GivenUp never = [] { return false; };
  auto held = hold_free(pid, never);
  return held ? held->process->send(held->process->threads().front().tid) : Status(held.error());
}

}  // namespace

// All processes stay stopped until all are armed, so that the session begins in each of them or in none.
Status Session::State::attach_all(const GivenUp& given_up) {
  for (const pid_t pid : attached) {
    auto files = target::ProcessFiles::open(pid);
    if (!files) return about(pid, files.error());
    target::RunningTarget running(files.take());
    armer->look_ahead(running);
  }
  std::vector<std::unique_ptr<StoppedProcess>> held;
  std::map<pid_t, Addr> blocks;
  const auto take = [&](pid_t pid) -> Status {
    auto free = hold_free(pid, given_up);
    if (!free) return free.error();
    held.push_back(std::move(free->process));
    auto block = control::attach_agent(*held.back(), free->agent, *agent, *area, table.planned().size());
    if (!block) return block.error();
    blocks[pid] = block->address();
    RETURN_IF_ERROR(armer->arm(*held.back(), *block));
    return control::lead_handlers_back(*held.back(), *block);
  };
  Status begun = ok();
  for (const pid_t pid : attached) {
    if (begun) begun = catch_resource_exhaustion([&] { return take(pid); });
    if (!begun && begun.error().where.empty()) begun = about(pid, begun.error());
  }
  if (begun) begun = catch_resource_exhaustion([&] { return begin(blocks); });
  std::vector<pid_t> taken;
  for (const auto& process : held) taken.push_back(process->pid());
  held.clear();
  if (begun) return ok();
  for (const pid_t pid : taken) static_cast<void>(control::give_back(pid));
  return begun;
}

// Attaches to the processes that the user gave by id.
Status Session::State::attach_first(const GivenUp& given_up) {
  for (const pid_t pid : attached) {
    if (Status free = await_free(pid, given_up); !free) return about(pid, free.error());
    processes.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!processes.back()) return about(pid, system_error("pidfd_open", errno));
    if (Status known = plan_for(pid); !known) return about(pid, known.error());
  }
  RETURN_IF_ERROR(make_area());
  RETURN_IF_ERROR(open_sockets());
  const Status begun = attach_all(given_up);
  if (!begun) close_sockets();
  return begun;
}

// No process has anything of the attempt. The internal points stay planned.
void Session::State::forget_attempt() {
  processes.clear();
  reader.reset();
  armer.reset();
  clock.reset();
  symbols.reset();
  code_maps.reset();
  area.reset();
}

namespace {

// Why a tool that traces the process has no socket here: it is in another namespace.
std::optional<Error> reason_out_of_reach(pid_t owner) {
  for (const std::string name : {"mnt", "pid", "user"}) {
    std::error_code unread;
    const auto its = std::filesystem::read_symlink(procfs::path(owner, "ns/") + name, unread);
    const auto ours = std::filesystem::read_symlink("/proc/self/ns/" + name, unread);
    if (unread || its == ours) continue;
    const std::string number = std::to_string(control::known_as(owner));
    return Error{.code = Code::refused,
                 .text = "is traced by uprobe-run, process " + number +
                         ", which cannot be joined from here: it is in another " +
                         (name == "mnt"   ? "mount"
                          : name == "pid" ? "PID"
                                          : "user") +
                         " namespace",
                 .help = "end that one, or run this one there (nsenter -t " + number + " -a)"};
  }
  return std::nullopt;
}

}  // namespace

// An owner tool that is about to leave releases the process, and then this session attaches itself; one that is just starting
// will admit this session. Both are Retry::anew.
Status Session::State::join_owner(const Error& occupied, const GivenUp& given_up) {
  pid_t owner = 0;
  for (const pid_t pid : attached)
    if (owner == 0) owner = control::owner_of(pid);
  const Error again{.code = Code::refused, .text = occupied.text, .where = occupied.where, .retry = Retry::anew};
  if (owner == 0) return again;
  const Status joined = become_client(owner, given_up);
  if (joined) return joined;
  if (joined.error().code != Code::not_found) return about(attached.front(), joined.error());
  if (const auto elsewhere = reason_out_of_reach(owner)) return about(attached.front(), *elsewhere);
  return is_tracer(owner) ? again : occupied;
}

// Attaches by id, in a session of its own or as a client.
Status Session::State::attach_or_join(const GivenUp& given_up) {
  using namespace std::chrono_literals;
  constexpr auto kPatience = 10s;
  for (const auto begun = std::chrono::steady_clock::now();;) {
    const Status first = attach_first(given_up);
    if (first || first.error().retry != Retry::join || searches || !options.has_socket) return first;
    forget_attempt();
    const Status joined = join_owner(first.error(), given_up);
    if (joined || joined.error().retry != Retry::anew || std::chrono::steady_clock::now() - begun > kPatience)
      return joined;
    if (given_up()) return Error{.code = Code::killed, .text = "given up"};
    std::this_thread::sleep_for(5ms);
  }
}

namespace {

Error nobody_found(const Selection& whom, std::size_t found) {
  std::string what;
  for (const std::string& name : whom.names) what += (what.empty() ? "is called '" : " or is called '") + name + "'";
  for (const std::string& object : whom.objects) what += (what.empty() ? "maps " : " or maps ") + object;
  if (found != 0) return Error{.code = Code::refused, .text = "no process that " + what + " could be attached"};
  return Error{.code = Code::not_found,
               .text = "no process " + what,
               .help = "--wait waits for one, --dry-run shows the probes without a process"};
}

}  // namespace

// The session runs already: processes that are found join it.
Status Session::State::find_others(const Selection& whom, control::ProcessFinder finder, const GivenUp& given_up) {
  struct stat area_file {};
  if (::fstat(area->fd(), &area_file) != 0) return system_error("fstat of the session area", errno);
  late_attacher.emplace(std::move(finder), area_file.st_ino, *mail, whom.tell);
  late_attacher->take_present(given_up);
  for (Fd& handle : late_attacher->take_handles()) processes.push_back(std::move(handle));
  waits = whom.waits;
  if (waits) return late_attacher->watch(), ok();
  if (late_attacher->taken() != 0 || !attached.empty()) return mail->alone([this] { return find_any_armed(); });
  if (given_up()) return Error{.code = Code::killed, .text = "given up"};
  return nobody_found(whom, late_attacher->found());
}

void Session::State::end_search() {
  if (!late_attacher) return;
  late_attacher->stop();
  for (std::string& note : late_attacher->notes()) notes.push_back(std::move(note));
  late_attacher.reset();
}

Status Session::attach(const Selection& whom, const GivenUp& given_up) {
  State& s = *state_;
  if (s.options.has_guardian) target::start_guardian();
  s.attaches = true;
  s.tell = whom.tell;
  s.searches = !whom.names.empty() || !whom.objects.empty();
  auto finder = control::ProcessFinder::open({whom.names, whom.objects});
  if (!finder) return finder.error();
  raise_own_limits();
  RETURN_IF_ERROR(s.open_agent());
  // All tools take processes in ascending order, so that no two tools wait for each other.
  const std::set<pid_t> wanted(whom.pids.begin(), whom.pids.end());
  s.attached.assign(wanted.begin(), wanted.end());
  if (Status begun = s.attach_or_join(given_up); !begun || s.connection) return begun;
  if (s.searches)
    if (Status found = catch_resource_exhaustion([&] { return s.find_others(whom, finder.take(), given_up); });
        !found) {
      s.stop_tracing();
      return found;
    }
  return s.serve();
}

Status release(const Selection& whom) {
  Status all = ok();
  for (const int pid : whom.pids) {
    const Status freed = clean(pid);
    const bool is_anothers = !freed && freed.error().retry == Retry::join;  // taken by another tool since
    if (all && !freed && !is_anothers && !has_gone(pid)) all = about(pid, freed.error());
  }
  if (whom.names.empty() && whom.objects.empty()) return all;
  const Status others = control::free_all_of(::getpid());
  return all ? others : all;
}

}  // namespace uprobe
