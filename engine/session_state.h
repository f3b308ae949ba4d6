// The inside of a Session. Internal to the session's files.
#pragma once

#include "engine/base/fd.h"
#include "engine/control/agent_image.h"
#include "engine/control/armer.h"
#include "engine/control/mail_service.h"
#include "engine/plan/flow_cache.h"
#include "engine/plan/returns.h"
#include "engine/program/layout.h"
#include "engine/session.h"
#include "engine/symbols.h"
#include "engine/trace/reader.h"

namespace uprobe {

// One definition, all the way to a place and a program.
struct Probe {
  spec::ProbeSpec spec;
  plan::Site site;
  program::EventProgram program;
  std::optional<plan::ReturnPlan> returns;  // of a return probe
};

struct Session::State {
  std::vector<Probe> probes;
  control::ProbeSet planned;
  plan::FlowCache flows;
  SessionOptions options;
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
  std::optional<Ending> ended_early;
  Fd pidfd;  // of the child
  bool recording = false;
  bool reaped = false;

  ~State();
  void stop_tracing();
  void learn_names();
  void await_writers();
  Status unless_killed(const Error& error);
  void print_settled(const trace::Sink& sink);
  // `load` brings the agent to work in the target; what a failure leaves armed is taken out again.
  Status arm(target::Target& target, const std::function<Result<control::Block>()>& load);
  Status begin(target::Target& target, control::Block& block);
  Status find_any_armed() const;
  // Why each probe cannot be a jump at all of its places, empty for those that can. By the files alone; nobody asks for a tier of int3.
  std::vector<std::string> reasons_against_jumps();
  Status check_tiers();
};

}  // namespace uprobe
