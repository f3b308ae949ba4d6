// The thread of the tool that answers the agents: a library was mapped, so there may be something to arm; a program is about
// to be replaced by execve, so that the new one has to be loaded.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/control/agent_image.h"
#include "engine/control/armer.h"
#include "engine/control/exec_follower.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class MailService {
 public:
  // All outlive the service; `armer` and `probes` are its thread's alone while it runs.
  // `first` is the process block of the program that was launched.
  MailService(trace::Area& area, Armer& armer, ProbeSet& probes, const AgentImage& agent, Addr first);
  ~MailService();

  // No further answers: requests that come now run into their deadline. Joins the thread.
  void stop();

  // After stop(): where the process blocks of this session are, for taking the probes out; what is worth a line.
  const std::set<Addr>& blocks() const { return blocks_; }
  std::vector<std::string> notes() const { return exec_.notes(); }

 private:
  void loop();
  void pulse();
  void answer(shared::MailSlot& slot);
  Status serve(shared::MailSlot& slot);
  Status serve_exec(shared::MailSlot& slot, pid_t pid);
  Status load(target::PtraceTarget& target);

  trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const AgentImage& agent_;
  plan::FileCache files_;
  std::set<Addr> blocks_;
  ExecFollower exec_;
  std::atomic<bool> stop_{false};
  std::mutex pulse_lock_;
  std::condition_variable pulse_ends_;
  std::thread thread_, pulse_;
};

}  // namespace uprobe::control
