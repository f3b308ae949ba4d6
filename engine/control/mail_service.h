// The thread of the tool that answers the agents: a library was mapped, so there may be something to arm; a program is about
// to be replaced by execve, so that the new one has to be loaded. Requests to flush the output are handed on to the
// thread that reads the rings.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/control/agent_image.h"
#include "engine/control/armer.h"
#include "engine/control/asker.h"
#include "engine/control/beside.h"
#include "engine/control/code_maps.h"
#include "engine/control/exec_follower.h"
#include "engine/control/live.h"
#include "engine/control/pulse.h"
#include "engine/trace/area.h"

namespace uprobe::control {

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
  LiveChanges changes() const { return {area_, armer_, probes_, blocks_}; }

  // No further answers: requests that come now run into their deadline. Joins the thread.
  void stop();

  // The askers that wait until everything recorded before is in the output; each is to be answered by flushed(). The
  // descriptor is readable while there are some.
  std::vector<shared::MailSlot*> take_flushes();
  void flushed(shared::MailSlot& slot);
  int flush_wanted() const { return flush_event_.get(); }

  // Processes that asked or were loaded since the last call, and their names: a short-lived one may be gone when its records
  // are read.
  std::vector<std::pair<pid_t, std::string>> take_names();

  // After stop(): where the process blocks of this session are, for taking the probes out; what is worth a line.
  const std::set<Addr>& blocks() const { return blocks_; }
  std::vector<std::string> notes() const;

 private:
  void loop();
  void serve_all();
  void answer(shared::MailSlot& slot);
  void finish(shared::MailSlot& slot);
  void forget_abandoned(shared::MailSlot& slot);
  Status serve(shared::MailSlot& slot);
  Status serve_exec(shared::MailSlot& slot, const Asker& asker);
  Status let_go(shared::MailSlot& slot, pid_t pid);
  Status let_go_of_other(const shared::MailSlot& slot, const Asker& asker);
  void note_left(pid_t pid);
  Status load(target::PtraceTarget& target);
  Status prepare_for(pid_t pid);
  void note_name(pid_t pid);

  trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const AgentImage* agent_;
  CodeMaps* maps_;
  plan::FileCache files_;
  std::set<Addr> blocks_;
  ExecFollower exec_;
  BesideOthers beside_;
  std::set<std::string> failures_;  // why requests could not be served
  std::set<std::string> left_;      // names of processes that another tracer has
  std::atomic<bool> stop_{false};
  std::mutex work_lock_;
  std::atomic<int> waiting_{0};  // for it
  std::mutex names_lock_;
  std::vector<std::pair<pid_t, std::string>> names_;
  std::mutex flush_lock_;
  std::set<shared::MailSlot*> flushing_;       // not answered yet
  std::set<shared::MailSlot*> about_to_exec_;  // of threads that wait for another one's execve; the service's thread
  std::vector<shared::MailSlot*> flush_requests_;  // of these, not taken yet
  Fd flush_event_;
  std::optional<Pulse> pulse_;
  std::thread thread_;
};

}  // namespace uprobe::control
