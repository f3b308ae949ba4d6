// SPDX-License-Identifier: MIT
// The thread of the tool that answers the agents: a process has mapped a library, so there may be points to arm; or a program
// is about to be replaced by execve, so that the agent has to be loaded into the new one. A request to flush the output goes on
// to the thread that reads the rings.
//
// Requests are in the mailboxes of the processes. The live parts hold only hints: the id of the thread that has rung, or just
// that one has rung. Where the hints lead nowhere the service looks at all processes of the session, within a small share of
// the time.
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
#include "engine/generated/generated_code.h"
#include "engine/mailbox/conversation.h"
#include "engine/mailbox/futex.h"
#include "engine/mailbox/heartbeat.h"
#include "engine/process/agent_image.h"
#include "engine/process/task_number.h"
#include "engine/service/exec_follower.h"
#include "engine/service/known_blocks.h"
#include "engine/service/requester.h"
#include "engine/service/seen_tasks.h"
#include "engine/service/turns.h"
#include "engine/service/unheard.h"
#include "engine/symbolize/code_maps.h"
#include "engine/symbolize/mapping_log.h"
#include "engine/target/process_list.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class DomainGuard;

class MailService {
 public:
  // All arguments must outlive the service. While it runs, `armer` and `probes` belong to its thread, except in alone().
  // `first`: the first programs and their process blocks. No `agent`: programs are not followed through execve. No `maps`:
  // the session does not ask which file an address belongs to. `earlier`: processes that are never in the session.
  // `notes_mappings`: there is to be a log of what the processes map. `heartbeat`: the area's, which ends with the service.
  MailService(trace::Area& area, Armer& armer, ProbeSet& probes, const AgentImage* agent,
              const std::map<pid_t, Addr>& first, CodeMaps* maps, const target::EarlierProcesses& earlier,
              bool notes_mappings, std::unique_ptr<Heartbeat> heartbeat);
  ~MailService();

  // Runs `work`, which may use the armer, the probes and their flows: the service pauses for it.
  template <class Work>
  auto alone(const Work& work) {
    ++waiting_;
    const std::lock_guard lock(work_lock_);
    --waiting_;
    return work();
  }
  // Before take_in(), and not in alone(): looks into the files of the process, for which no other process waits.
  void search_ahead(pid_t pid);
  // In alone(): takes a running process into the session, as attach_agent does; on failure the process is as it was. When all
  // of its threads are stopped, `is_wanted` is asked whether it is the intended process; Retry::soon if not. `trusts_filters`: as
  // for judge_filters(). The calling thread traces the process, and after some failures the kernel releases the process only when
  // that thread ends: end it after this call.
  Status take_in(pid_t pid, bool trusts_filters, const std::function<bool()>& is_wanted);
  // In alone(): gives the functions that definitions want of generated code their breakpoints now, not with the next look.
  void look_at_generated_code() { generated_.look_now(); }
  LiveChanges changes() const { return {area_, armer_, probes_, blocks_.all()}; }

  // Answers no further requests: later ones run into their deadline. Joins the thread.
  void stop();

  // A flush round, for which threads wait: everything recorded before begin_flush() has to be in the output when end_flush() is
  // called. False: no thread waits. The descriptor is readable while some wait.
  bool begin_flush();
  void end_flush();
  int flush_wanted() const { return flush_event_.get(); }

  // Names of the processes that asked, or were loaded, since the last call: a short-lived process may be gone when its records
  // are read.
  std::vector<SeenTask> take_names() { return seen_.take_names(); }
  // Likewise the programs that were loaded.
  std::vector<SeenExec> take_execs() { return seen_.take_execs(); }

  // What the processes map, from the first ones on. Null: it is not wanted.
  MappingLog* mappings() { return mappings_ ? &*mappings_ : nullptr; }

  // Whether a process is in an execve whose new program is not loaded yet.
  bool is_following() const { return is_following_; }

  // After stop(): what the user should be told.
  Notes notes() const;

 private:
  using Clock = std::chrono::steady_clock;
  // For large files, which another thread looks into (search/file_search.h).
  struct FileWait {
    FileSearch::Jobs jobs;
    unsigned rounds = 0;
    Clock::time_point until{};
  };
  // A copy of a request, so that what the process does to it later changes nothing.
  struct Request {
    Request(trace::Area& area, std::shared_ptr<const Member> asks, Addr slot_at, std::uint32_t called)
        : process(std::move(asks)), at(slot_at), line(process->files, at, area, process->part, called), thread(line) {}

    // Whether it has been put off for so long.
    bool is_over(Clock::duration patience) {
      const auto now = Clock::now();
      if (give_up_at == Clock::time_point{}) give_up_at = now + patience;
      return now > give_up_at;
    }

    std::shared_ptr<const Member> process;
    Addr at;  // of its slot
    shared::MailSlot slot{};
    PrivateLine line;
    Conversation thread;
    FileWait files;
    bool is_put_off = false;         // the exec follower answers it later, or take_put_off()
    Clock::time_point give_up_at{};  // 0: it has not been tried
    std::string why;                 // it could not be served so far
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
  bool look_at(pid_t pid, bool is_its_turn = false);
  void answer(const std::shared_ptr<const Member>& process, Addr at);
  void serve_and_finish(const std::shared_ptr<Request>& request);
  void take_put_off();
  bool is_ready(const Request& request) const;
  bool is_behind(std::size_t part) const;
  void answer_one_behind();
  bool has_to_wait(FileWait& wait, target::Target& target);
  bool is_late(const FileWait& wait) const;
  bool is_ready(pid_t pid);
  Status serve(const std::shared_ptr<Request>& request);
  Status serve_exec(const std::shared_ptr<Request>& request, const Requester& requester);
  Status let_go(Request& request, pid_t pid);
  Status let_go_of_parent(pid_t pid);
  Status refuse_tracer(const Request& request, pid_t pid, const std::string& what, const std::string& why);
  Status put_off(const std::shared_ptr<Request>& asked);
  Status let_go_of_other(const std::shared_ptr<Request>& asked, const Requester& requester);
  void note_left(pid_t pid);
  void note_silence(pid_t pid, const Error& error);
  void look_at_unheard();
  void note_failure(const std::string& why);
  Status load(target::PtraceTarget& target, const Credentials& credentials);
  Status prepare_for(pid_t pid);
  void note_mappings(pid_t pid, bool is_new = false);
  void note_name(pid_t pid);
  void note_name(pid_t pid, const Result<std::string>& status);  // `status`: the text of its status file
  void note_caller(const Request& request, const Requester& requester);

  trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const AgentImage* agent_;
  CodeMaps* maps_;
  std::optional<MappingLog> mappings_;
  const target::EarlierProcesses& earlier_;
  plan::FileCache files_;
  KnownBlocks blocks_;
  std::vector<std::shared_ptr<Request>> put_off_;  // until files have been looked into
  std::map<pid_t, FileWait> exec_files_;           // the same for programs at the end of execve
  Turns turns_;
  std::map<pid_t, std::size_t> behind_;  // processes with requests that stand behind others, and their parts
  ExecFollower exec_;
  ForeignBreakpoints foreign_breakpoints_;
  GeneratedCode generated_;
  Notes failures_;                     // why requests could not be served
  Notes filtered_;                     // processes under seccomp filters that keep the agent quiet, or log its calls
  Notes left_;                         // processes that another tracer has
  std::set<std::uint32_t> strangers_;  // ids that have rung and belong to no process that was found
  std::uint64_t served_ = 0;           // looks that found requests
  unsigned nameless_ = 0;
  bool has_missed_ = false;  // a thread has rung, and its id is not known
  Clock::time_point next_look_{};
  Unheard unheard_;
  std::map<std::size_t, std::uint32_t> flush_requests_;  // by live part, as last seen
  std::atomic<std::uint32_t> flush_round_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> is_following_{false};
  std::mutex work_lock_;
  std::atomic<int> waiting_{0};  // for it
  SeenTasks seen_;
  Fd flush_event_;
  std::unique_ptr<DomainGuard> guard_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::thread thread_;
};

}  // namespace uprobe::control
