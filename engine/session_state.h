// The inside of a Session. Internal to the session's files.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "engine/base/fd.h"
#include "engine/control/agent_image.h"
#include "engine/control/armer.h"
#include "engine/control/mail_service.h"
#include "engine/definer.h"
#include "engine/live_server.h"
#include "engine/plan/flow_cache.h"
#include "engine/session.h"
#include "engine/switches.h"
#include "engine/symbols.h"
#include "engine/trace/reader.h"

namespace uprobe {

// Where records go.
class Recipient {
 public:
  virtual ~Recipient() = default;
  virtual void take(const trace::EventRecord& record, trace::TaskNames& names) = 0;
  virtual void end_batch() {}
  virtual bool is_full() const { return false; }
  virtual bool is_broken() const { return false; }  // nobody reads any more
};

struct Session::State {
  std::vector<Probe> probes;
  control::ProbeSet planned;
  SwitchPlan switches;
  plan::FlowCache flows;
  SessionOptions options;
  std::optional<Definer> definer;
  std::optional<control::AgentImage> agent;
  std::optional<trace::Area> area;
  std::optional<control::Armer> armer;
  trace::ClockSample clock_begin = trace::Clock::sample();
  std::optional<trace::Clock> clock;
  trace::TaskNames names;
  // Where records show names of code addresses.
  std::unique_ptr<control::CodeMaps> code_maps;
  std::unique_ptr<SessionSymbols> symbols;
  std::optional<control::MailService> mail;
  std::optional<trace::Reader> reader;
  std::vector<std::string> notes;
  pid_t child = 0;
  std::vector<pid_t> attached;
  std::optional<Ending> ended_early;
  Fd pidfd;                   // of the child
  std::vector<Fd> processes;  // those attached to, pidfds
  std::atomic<bool> recording{false};
  std::optional<LiveServer> door;
  mutable std::mutex changing;  // one change at a time; comes before the next
  mutable std::mutex reading;   // the probes, and what the reader knows of them
  bool reaped = false;

  ~State();
  Status launch(const std::string& program, const std::vector<std::string>& argv);
  void stop_tracing();
  void learn_names();
  void await_writers();
  Result<Ending> run(const RunOptions& options, Recipient& recipient);
  Status unless_killed(const Error& error);
  void print_settled(const trace::Sink& sink);
  Status open_agent();
  // Area, armer, clock and reader; no process has any of it yet.
  Status make_area();
  // Attached processes are given back as they were, others only lose their probes.
  void let_go_of(pid_t pid);
  // What a process needs of our own points in it besides; it is not touched.
  Status plan_for(pid_t pid);
  Status attach_all(const GivenUp& given_up);
  // `load` brings the agent to work in the target; what a failure leaves armed is taken out again.
  Status arm(target::Target& target, const std::function<Result<control::Block>()>& load);
  // `first`: the programs, and their process blocks.
  Status begin(const std::map<pid_t, Addr>& first);
  Status find_any_armed() const;
  void poll(const trace::Sink& sink);
  // Live changes, in session_live.cpp.
  Result<Changes> define(const Definition& definition);
  Result<Changes> remove(const std::string& name);
  Result<std::size_t> switch_events(const std::string& name, bool on);
  std::vector<ProbeState> list() const;
  Reply answer(const std::vector<Order>& orders);
  Result<std::string> follow_order(const Order& order);
  Result<Changes> define_one(const Definition& definition);
  Status open_door();
  Status serve();
  Status may_join(const std::vector<Probe>& more) const;
  std::vector<Probe>::iterator before(const Probe& probe);
  Status has_room(const std::vector<Probe>& more);
  Result<std::uint16_t> number_for(Probe probe);
  Status join(const std::vector<Probe>& more);
  void leave(const std::vector<std::uint16_t>& events);
  // Why each probe cannot be a jump at all of its places, empty for those that can. By the files alone; nobody asks for a tier of int3.
  std::vector<std::string> reasons_against_jumps();
  Status check_tiers();
};

}  // namespace uprobe
