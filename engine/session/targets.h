// SPDX-License-Identifier: MIT
// The processes of a session, and the machinery that works on them: agent, armer and mail service. One process begins the
// session (it is launched, or has loaded the agent itself), or several running ones do (attacher.h); the mail service then
// follows them and their children.
//
// Threads: the one that prepares the session calls all of it up to begin(). From then on any thread may use the mail service
// (MailService::alone() for the armer); let_go_of_all() and what follows belong to the thread that ends the session.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/arm/armer.h"
#include "engine/base/fd.h"
#include "engine/process/agent_image.h"
#include "engine/service/mail_service.h"
#include "engine/session/event_table.h"
#include "engine/session/recording.h"
#include "engine/target/process_list.h"
#include "engine/target/ptrace_target.h"

namespace uprobe {

// As in Summary.
struct Messages {
  std::vector<std::string> notes, details;
};

class Targets {
 public:
  // All must outlive it.
  Targets(const SessionOptions& options, EventTable& table, Recording& recording, Messages& messages)
      : options_(options), table_(table), recording_(recording), messages_(messages) {}
  Targets(const Targets&) = delete;
  Targets& operator=(const Targets&) = delete;

  Status open_agent();
  // The session is one of running processes.
  void attach_to(const std::set<pid_t>& pids);
  // One of them has ended, and the session is to be that of the others.
  void leave_out(pid_t pid) { std::erase(attached_, pid); }
  const control::AgentImage& agent() const { return *agent_; }

  bool attaches() const { return attaches_; }
  const std::vector<pid_t>& attached() const { return attached_; }
  // The program that was launched; 0: none.
  pid_t child() const { return child_; }
  int pidfd() const { return pidfd_.get(); }
  // The program was a waiting process, so its parent is another process.
  bool is_daemonized() const { return options_.waiting.has_value(); }
  // After the program is released this process still waits for it, and ends as it ends.
  bool awaits_program() const { return !attaches_ && !is_daemonized(); }
  // What the agent needs of a process, which depends on how the session begins.
  control::InternalPoints::Wishes wishes() const;
  // The processes with which, or for which, the session was started, as far as they still exist.
  std::vector<pid_t> roots() const;

  // Makes area, armer and reader; no process has any of them yet. forget() undoes that.
  Status make_area();
  void forget();
  // From here on the agent finds out if the tool is killed: before anything comes into a process that has to be undone then.
  Status show_life();
  // Plans the internal points that a process needs. Does not touch the process.
  Status plan_for(pid_t pid);
  Status plan_for(target::Target& target);
  // Starts the program and arms it, or leaves it as it would have been without the tool. `is_ready`: called when the program
  // is stopped and nothing is armed yet.
  Status launch(const std::string& program, const std::vector<std::string>& argv,
                const std::function<Status()>& is_ready);
  // The program was killed while it was launched.
  const std::optional<Ending>& ended_early() const { return ended_early_; }
  // Arms the session's first process. `load` gets the agent to work there. After a failure nothing stays armed.
  Status arm(target::Target& target, const std::function<Result<control::Block>()>& load);
  control::Armer& armer() { return *armer_; }
  // The first processes are armed. `first`: these and their process blocks.
  Status begin(const std::map<pid_t, Addr>& first);
  Status find_any_armed() const;

  bool has_mail() const { return mail_.has_value(); }
  control::MailService& mail() { return *mail_; }
  const control::ArmReport& report() const { return armer_->report(); }

  // The mail service sees processes while they live. Returns what it has seen.
  std::vector<control::SeenTask> learn_names();
  // Takes the session out of every process that has it. `waits_at_end`: the program waits at its end and runs no more.
  void let_go_of_all(bool waits_at_end);
  // Notes how many processes go on without the probes that let_go_of_all() has removed.
  void tell_of_survivors();
  void kill_program();

 private:
  Result<std::unique_ptr<target::PtraceTarget>> start(const std::string& program, const std::vector<std::string>& argv);
  Status prepare_program();
  Status make_ready(target::PtraceTarget& target, const std::function<Status()>& is_ready);
  bool is_killed(const Error& error) const;
  Status unless_killed(const Error& error);
  Status give_up(target::PtraceTarget& target, const Error& error);
  void let_go_of(pid_t pid);
  void let_go_in_time(pid_t pid);
  void note_kept(pid_t pid, const std::string& why);

  const SessionOptions& options_;
  EventTable& table_;
  Recording& recording_;
  Messages& messages_;
  std::optional<control::AgentImage> agent_;
  std::optional<control::Armer> armer_;
  target::EarlierProcesses earlier_;               // before `mail_`, which uses it
  std::unique_ptr<control::Heartbeat> heartbeat_;  // until `mail_` has it
  std::optional<control::MailService> mail_;
  bool attaches_ = false;
  std::vector<pid_t> attached_;  // as given by id, in ascending order
  pid_t child_ = 0;
  Fd pidfd_;
  std::optional<Ending> ended_early_;
  std::set<pid_t> let_go_;                        // by let_go_of_all()
  std::chrono::steady_clock::duration waited_{};  // there, for threads that do not stop
};

}  // namespace uprobe
