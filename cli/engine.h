// SPDX-License-Identifier: MIT
// The CLI's interface to the engine: the program binds it to uprobe::Session, the tests to a fake.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/doctor/doctor.h"
#include "engine/ipc/control_protocol.h"
#include "engine/resolve/check.h"
#include "engine/resolve/programs.h"
#include "engine/session/session.h"

namespace uprobe::cli {

class Engine {
 public:
  virtual ~Engine() = default;

  // See uprobe::check_definitions.
  virtual CheckReport define(const std::vector<Definition>& writes, const CheckOptions& options) = 0;
  // Whether these definitions could be prepared; keeps nothing.
  virtual Status check(const SessionOptions& options) = 0;
  // Call before the functions below it.
  virtual Status prepare(const SessionOptions& options) = 0;
  virtual std::vector<PlanReport> report(const std::vector<int>& pids) = 0;
  virtual Status launch(const std::vector<std::string>& argv) = 0;
  virtual Status attach(const Selection& whom, const GivenUp& given_up) = 0;
  // See uprobe::release.
  virtual Status release(const Selection& whom) = 0;
  virtual int child_pid() = 0;
  virtual Result<Ending> run(const RunOptions& options, const Output& output) = 0;
  virtual Summary summary() = 0;
  virtual std::optional<std::vector<EventProgress>> progress() = 0;
  // See uprobe::Session.
  virtual bool has_clients() = 0;
  virtual void serve_clients() = 0;
  virtual void let_program_end() = 0;
  virtual std::string histograms(bool raw_strings) = 0;
  virtual std::vector<CallSummary> calls() = 0;
  // The same, by process where the options ask for that.
  virtual std::vector<CallSummary> rows_of_calls() = 0;
  virtual std::uint32_t snapshots() = 0;

  // See uprobe::ask_session.
  virtual Result<Reply> ask(const std::string& session, const std::vector<Command>& commands) = 0;
  virtual Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob) = 0;
  virtual Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function,
                                                       SourceList what) = 0;
  // See uprobe::examine_machine and examine_process.
  virtual std::vector<Finding> examine(const Selection& whom) = 0;
  virtual Result<std::string> find_program(const std::string& program) = 0;
  // See uprobe::target::check_readable.
  virtual Status check_readable(int pid) = 0;
  // See uprobe::find_agent.
  virtual std::string find_agent() = 0;
};

}  // namespace uprobe::cli
