// SPDX-License-Identifier: MIT
// The thread of the tool that answers the agents: a library was mapped, so there may be something to arm; a program is about
// to be replaced by execve, so that the new one has to be loaded. That the output is to be flushed is handed on to the
// thread that reads the rings.
//
// Requests stand in the mailboxes of the processes. What the live parts say of them are hints: which thread has rung, or that one
// has. Where these lead nowhere all processes of the session are looked at, not more often than a small part of the time allows.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/arm/armer.h"
#include "engine/arm/foreign_breakpoints.h"
#include "engine/arm/live_changes.h"
#include "engine/base/notes.h"
#include "engine/mailbox/conversation.h"
#include "engine/mailbox/futex.h"
#include "engine/mailbox/heartbeat.h"
#include "engine/process/agent_image.h"
#include "engine/process/task_number.h"
#include "engine/service/exec_follower.h"
#include "engine/service/known_blocks.h"
#include "engine/service/requester.h"
#include "engine/symbolize/code_maps.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class DomainGuard;

class MailService {
 public:
  // All outlive the service; `armer` and `probes` are its thread's while it runs, but for alone().
  // `first` are the first programs, and their process blocks. No `agent`: programs are not followed through execve. No `maps`:
  // nobody asks what lies where.
  MailService(trace::Area& area, Armer& armer, ProbeSet& probes, const AgentImage* agent,
              const std::map<pid_t, Addr>& first, CodeMaps* maps);
  ~MailService();

  // What others do with the armer, the probes and their flows: the service rests meanwhile.
  template <class Work>
  auto alone(const Work& work) {
    ++waiting_;
    const std::lock_guard lock(work_lock_);
    --waiting_;
    return work();
  }
  // In alone(): a process that runs already comes into the session as by attach_agent; what fails leaves it as it was. When all of
  // its threads are stopped `is_wanted` is asked whether it is the one that was meant; EBUSY if not. The calling thread holds the
  // process, and some failures leave that to its end: it ends after this.
  Status take_in(pid_t pid, const std::function<bool()>& is_wanted);
  LiveChanges changes() const { return {area_, armer_, probes_, blocks_.all()}; }

  // No further answers: requests that come now run into their deadline. Joins the thread.
  void stop();

  // A round of printing, which threads wait for: everything recorded before begin_flush() is in the output when end_flush() is
  // called. False: none waits. The descriptor is readable while some do.
  bool begin_flush();
  void end_flush();
  int flush_wanted() const { return flush_event_.get(); }

  // Processes that asked or were loaded since the last call, and their names: a short-lived one may be gone when its records
  // are read.
  std::vector<SeenTask> take_names();

  // Whether a process is in an execve whose program is still to be loaded.
  bool is_following() const { return is_following_; }

  // After stop(): what is worth a line.
  Notes notes() const;

 private:
  // A request as it was when it was looked at: what the process does to it later changes nothing.
  struct Request {
    Request(trace::Area& area, std::shared_ptr<const Member> asks, Addr slot_at, std::uint32_t called)
        : process(std::move(asks)), at(slot_at), line(process->files, at, area, process->part, called), thread(line) {}

    std::shared_ptr<const Member> process;
    Addr at;  // of its slot
    shared::MailSlot slot{};
    PrivateLine line;
    Conversation thread;
    bool is_put_off = false;  // answered later, by another
  };

  std::set<Addr> blocks_in_use() const;
  void loop();
  std::vector<FutexSeen> bells() const;
  void serve_all(bool was_rung);
  void take_hints();
  void take_flush_requests();
  void look_at_all();
  void refuse(std::uint32_t called);
  bool look_for(std::uint32_t called, std::set<pid_t>& seen);
  bool look_at(pid_t pid);
  void answer(const std::shared_ptr<const Member>& process, Addr at);
  Status serve(const std::shared_ptr<Request>& request);
  Status serve_exec(const std::shared_ptr<Request>& request, const Requester& requester);
  Status let_go(Request& request, pid_t pid);
  Status let_go_of_other(const Request& request, const Requester& requester);
  void note_left(pid_t pid);
  void note_failure(const std::string& why);
  Status load(target::PtraceTarget& target);
  Status prepare_for(pid_t pid);
  void note_name(pid_t pid);
  void note_names(std::vector<SeenTask> tasks);
  void note_caller(const Request& request, const Requester& requester);

  trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const AgentImage* agent_;
  CodeMaps* maps_;
  plan::FileCache files_;
  KnownBlocks blocks_;
  ExecFollower exec_;
  ForeignBreakpoints foreign_breakpoints_;
  Notes failures_;                     // why requests could not be served
  Notes left_;                         // processes that another tracer has
  std::set<std::uint32_t> strangers_;  // who have rung and are in no process that was found
  std::uint64_t served_ = 0;           // looks that found requests
  unsigned nameless_ = 0;
  bool has_missed_ = false;  // a thread has rung, and it is not known which
  std::chrono::steady_clock::time_point next_look_{};
  std::map<std::size_t, std::uint32_t> flush_requests_;  // by live part, as last seen
  std::atomic<std::uint32_t> flush_round_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> is_following_{false};
  std::mutex work_lock_;
  std::atomic<int> waiting_{0};  // for it
  std::mutex names_lock_;
  std::vector<SeenTask> names_;
  Fd flush_event_;
  std::unique_ptr<DomainGuard> guard_;
  std::optional<Heartbeat> heartbeat_;
  std::thread thread_;
};

}  // namespace uprobe::control
