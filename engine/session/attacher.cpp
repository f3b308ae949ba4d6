// SPDX-License-Identifier: MIT
#include "engine/session/attacher.h"

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
#include "engine/process/credentials.h"
#include "engine/session/session.h"
#include "engine/target/attachable.h"
#include "engine/target/guardian.h"
#include "engine/target/process_stat.h"
#include "engine/target/stopped_process.h"

namespace uprobe {
namespace {

using target::StoppedProcess;

// Its files say so a moment after its memory has gone.
bool ends(pid_t pid) {
  constexpr int kMostMoments = 20;
  for (int moments = 0; !target::has_ended(pid); ++moments) {
    if (moments == kMostMoments) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Whatever the end of the process made to fail.
bool is_of_end(pid_t pid, const Error& error) {
  if (error.code == Code::not_found || (!error.where.empty() && error.err != ESRCH)) return false;
  return error.code == Code::killed || error.err == ESRCH || target::has_ended(pid) ||
         (error.retry == Retry::soon && ends(pid));
}

Error ended(pid_t pid) {
  return Error{.code = Code::killed, .text = "process " + std::to_string(pid) + " ended", .err = ESRCH};
}

Error about(pid_t pid, Error error) {
  if (is_of_end(pid, error)) return ended(pid);
  if (error.err == EPERM || error.err == EACCES) return target::explain_refusal(pid, error.err);
  if (error.where.empty()) error.where = "process " + std::to_string(pid);
  return error;
}

Status check_free(pid_t pid, bool trusts_filters) {
  RETURN_IF_ERROR(target::check_attachable(pid, trusts_filters));
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
    constexpr int kMostForbidden = 20;
    constexpr auto kPatience = 10s;
    const bool is_busy = error.retry == Retry::soon && Clock::now() - begun_ < kPatience;
    const bool may_pass = is_busy || (error.err == EPERM && tries_++ < kMostForbidden);
    if (!may_pass || given_up_()) return false;
    std::this_thread::sleep_for(10ms);
    return true;
  }
  Error failed(const Error& error) const {
    return given_up_() ? Error{.code = Code::killed, .text = "given up"} : error;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const GivenUp& given_up_;
  const Clock::time_point begun_ = Clock::now();
  int tries_ = 0;  // that were forbidden
};

Status await_free(pid_t pid, bool trusts_filters, const GivenUp& given_up) {
  for (Turn turn(given_up);;) {
    const Status free = check_free(pid, trusts_filters);
    if (free || !turn.comes_after(free.error())) return free ? free : turn.failed(free.error());
  }
}

struct Held {
  std::unique_ptr<StoppedProcess> process;
  Result<control::FoundAgent> agent;
};

// Stops a process that has no session. Of several tools that begin at the same time one gets the first thread, and the others
// see that and retry.
Result<Held> hold_free(pid_t pid, bool trusts_filters, const GivenUp& given_up) {
  for (Turn turn(given_up);;) {
    RETURN_IF_ERROR(await_free(pid, trusts_filters, given_up));
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

// Also removes the remote-call code of a tool that was killed before it had a session in the process. No call is made for that, whatever
// filters the process has, and none as it is let go where they are not known.
Status clean(pid_t pid) {
  const GivenUp never = [] { return false; };
  auto held = hold_free(pid, true, never);
  if (!held) return held.error();
  Status cleaned = held->process->send(held->process->threads().front().tid);
  static_cast<void>(control::judge_filters(*held->process, false));
  return cleaned;
}

}  // namespace

Status Attacher::prepare(const Selection& whom) {
  whom_ = whom;
  if (options_.has_guardian) target::start_guardian();
  targets_.attach_to({whom.pids.begin(), whom.pids.end()});
  for (const pid_t pid : whom.pids)
    if (target::stat_of(pid)) there_.insert(pid);
  auto finder = control::ProcessFinder::open({whom.names, whom.objects});
  if (!finder) return finder.error();
  finder_.emplace(finder.take());
  raise_own_limits();
  return targets_.open_agent();
}

Status Attacher::look_ahead() {
  for (const pid_t pid : targets_.attached()) {
    auto files = target::ProcessFiles::open(pid);
    if (!files) return about(pid, files.error());
    target::RunningTarget running(files.take());
    targets_.armer().look_ahead(running);
  }
  return ok();
}

// The processes that are held, and their blocks.
struct Attacher::Taken {
  std::vector<std::unique_ptr<StoppedProcess>> held;
  std::map<pid_t, Addr> blocks;
};

// Probes that change the program are for processes of the tool's own user, whatever others it may trace.
Status Attacher::may_change(pid_t pid) const {
  if (std::ranges::none_of(table_.probes(), &Probe::changes_program)) return ok();
  const auto credentials = control::credentials_of(pid);
  if (!credentials) return credentials.error();
  if (control::is_own_user(*credentials)) return ok();
  return Error{.code = Code::refused,
               .text = "is another user's process, which --allow-change does not cover",
               .help = "call uprobe-run as the process's own user"};
}

Status Attacher::take(pid_t pid, const GivenUp& given_up, Taken& taken) {
  RETURN_IF_ERROR(may_change(pid));
  auto free = hold_free(pid, whom_.trusts_filters, given_up);
  if (!free) return free.error();
  taken.held.push_back(std::move(free->process));
  StoppedProcess& process = *taken.held.back();
  const control::BlockNeeds needs = table_.planned().block_needs();
  const auto filters = control::judge_filters(process, whom_.trusts_filters);
  if (!filters) return filters.error();
  if (std::string note = control::describe(pid, *filters); !note.empty()) messages_.notes.push_back(std::move(note));
  auto block = control::attach_agent(process, free->agent, *filters, targets_.agent(), recording_.area(), needs);
  if (!block) return block.error();
  taken.blocks[pid] = block->address();
  RETURN_IF_ERROR(targets_.armer().arm(process, *block));
  return control::lead_handlers_back(process, *block);
}

Status Attacher::take_all(const GivenUp& given_up, Taken& taken) {
  RETURN_IF_ERROR(targets_.show_life());
  for (const pid_t pid : targets_.attached()) {
    const Status begun = catch_resource_exhaustion([&] { return take(pid, given_up, taken); });
    if (!begun) return begun.error().where.empty() ? about(pid, begun.error()) : begun.error();
  }
  return catch_resource_exhaustion([&] { return targets_.begin(taken.blocks); });
}

// All processes stay stopped until all are armed, so that the session begins in each of them or in none.
Status Attacher::attach_all(const GivenUp& given_up) {
  RETURN_IF_ERROR(look_ahead());
  Taken taken;
  Status begun = take_all(given_up, taken);
  std::vector<pid_t> pids;
  for (const auto& process : taken.held) pids.push_back(process->pid());
  taken.held.clear();
  control::MailService* const mail = begun ? &targets_.mail() : nullptr;
  if (mail != nullptr) return mail->alone([mail] { mail->look_at_generated_code(); }), ok();
  for (const pid_t pid : pids) static_cast<void>(control::give_back(pid));
  for (const pid_t pid : targets_.attached())
    if (target::has_ended(pid)) return ended(pid);
  return begun;
}

// Attaches to the processes that the user gave by id.
Status Attacher::attach_first(const GivenUp& given_up) {
  for (const pid_t pid : targets_.attached()) {
    if (Status free = await_free(pid, whom_.trusts_filters, given_up); !free) return about(pid, free.error());
    Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!handle) return about(pid, system_error("pidfd_open", errno));
    ends_.add(pid, std::move(handle));
    if (Status known = targets_.plan_for(pid); !known) return about(pid, known.error());
  }
  RETURN_IF_ERROR(targets_.make_area());
  RETURN_IF_ERROR(sockets_.open());
  Status begun = attach_all(given_up);
  if (!begun) sockets_.close();
  return begun;
}

// No process has anything of the attempt. The internal points stay planned.
void Attacher::forget_attempt() {
  ends_.forget();
  targets_.forget();
}

// After an attempt that has failed: whether some processes have ended, and there are others to try it with. (An id that no process has
// had is the user's mistake.)
bool Attacher::goes_on_without_ended() {
  const auto was_there = [this](pid_t pid) { return there_.contains(pid) && target::has_ended(pid); };
  const std::vector<pid_t> all = targets_.attached();
  const auto gone = std::ranges::count_if(all, was_there);
  if (gone == 0 || gone == std::ssize(all)) return false;
  for (const pid_t pid : all)
    if (was_there(pid)) {
      whom_.tell(ended(pid).text);
      targets_.leave_out(pid);
    }
  forget_attempt();
  return true;
}

namespace {

// Why a tool that traces the process has no socket here: it is in another namespace.
std::optional<Error> reason_out_of_reach(pid_t owner) {
  const auto kinds = procfs::foreign_namespaces(owner);
  if (kinds.empty()) return std::nullopt;
  const std::string number = std::to_string(control::known_as(owner));
  return Error{.code = Code::refused,
               .text = "is traced by uprobe-run, process " + number +
                       ", which cannot be joined from here: it is in another " + std::string(kinds.front()) +
                       " namespace",
               .help = "end that one, or run this one there (nsenter -t " + number + " -a)"};
}

// A client has no rings.
Error without_rings(Error occupied) {
  occupied.help = "the rings are that tool's: it can be started with --export-rings";
  return occupied;
}

}  // namespace

// An owner tool that is about to leave releases the process, and then this session attaches itself; one that is just starting
// will admit this session. Both are Retry::anew.
Status Attacher::join_owner(const Error& occupied, const GivenUp& given_up) {
  pid_t owner = 0;
  for (const pid_t pid : targets_.attached())
    if (owner == 0) owner = control::owner_of(pid);
  const Error again{.code = Code::refused, .text = occupied.text, .where = occupied.where, .retry = Retry::anew};
  if (owner == 0) return again;
  Status joined = client_tool_.join(owner, whom_.tell, given_up);
  if (joined) return joined;
  if (joined.error().code != Code::not_found) return about(targets_.attached().front(), joined.error());
  if (const auto elsewhere = reason_out_of_reach(owner)) return about(targets_.attached().front(), *elsewhere);
  return is_tracer(owner) ? again : occupied;
}

// Attaches by id, in a session of its own or as a client.
Status Attacher::attach_or_join(const GivenUp& given_up) {
  using namespace std::chrono_literals;
  constexpr auto kPatience = 10s;
  for (const auto begun = std::chrono::steady_clock::now();;) {
    Status first = attach_first(given_up);
    if (!first && goes_on_without_ended()) continue;
    if (first) ends_.tell_ends(whom_.tell);
    if (first || first.error().retry != Retry::join || searches() || !options_.has_socket) return first;
    if (!options_.ring_socket.empty()) return without_rings(first.error());
    forget_attempt();
    Status joined = join_owner(first.error(), given_up);
    if (joined || joined.error().retry != Retry::anew || std::chrono::steady_clock::now() - begun > kPatience)
      return joined;
    if (given_up()) return Error{.code = Code::killed, .text = "given up"};
    std::this_thread::sleep_for(5ms);
  }
}

namespace {

Error none_found(const Selection& whom, std::size_t found) {
  std::string what;
  for (const std::string& name : whom.names) what += (what.empty() ? "is called '" : " or is called '") + name + "'";
  for (const std::string& object : whom.objects) what += (what.empty() ? "maps " : " or maps ") + object;
  if (found != 0) return Error{.code = Code::refused, .text = "no process that " + what + " could be attached"};
  return Error{.code = Code::not_found,
               .text = "no process " + what,
               .help = "--wait waits for one, --dry-run shows the probes without a process"};
}

}  // namespace

Status Attacher::find_others(const GivenUp& given_up) {
  if (!searches()) return ok();
  return catch_resource_exhaustion([&] { return search(given_up); });
}

// The session runs already: processes that are found join it.
Status Attacher::search(const GivenUp& given_up) {
  const auto area = recording_.inode();
  if (!area) return area.error();
  late_attacher_.emplace(std::move(*finder_), *area, targets_.mail(), whom_.trusts_filters, whom_.tell);
  late_attacher_->take_present(given_up);
  for (auto& [pid, handle] : late_attacher_->take_handles()) ends_.add(pid, std::move(handle));
  if (whom_.waits) {
    ends_.expect_more();
    return late_attacher_->watch(), ok();
  }
  if (late_attacher_->taken() != 0 || !targets_.attached().empty())
    return targets_.mail().alone([this] { return targets_.find_any_armed(); });
  if (given_up()) return Error{.code = Code::killed, .text = "given up"};
  return none_found(whom_, late_attacher_->found());
}

void Attacher::end_search() {
  if (!late_attacher_) return;
  late_attacher_->stop();
  for (std::string& note : late_attacher_->notes()) messages_.notes.push_back(std::move(note));
  late_attacher_.reset();
}

Status release(const Selection& whom) {
  Status all = ok();
  for (const int pid : whom.pids) {
    const Status freed = clean(pid);
    const bool is_anothers = !freed && freed.error().retry == Retry::join;  // taken by another tool since
    if (all && !freed && !is_anothers && !target::has_ended(pid)) all = about(pid, freed.error());
  }
  if (whom.names.empty() && whom.objects.empty()) return all;
  const Status others = control::free_all_of(::getpid());
  return all ? others : all;
}

}  // namespace uprobe
