// SPDX-License-Identifier: MIT
// The real engine: uprobe::Session behind the CLI's interface.
#pragma once

#include <optional>

#include "cli/engine.h"

namespace uprobe::cli {

class SessionEngine final : public Engine {
 public:
  CheckReport define(const std::vector<Definition>& writes, const CheckOptions& options) override;
  Status check(const SessionOptions& options) override;
  Status prepare(const SessionOptions& options) override;
  std::vector<PlanReport> report(const std::vector<int>& pids) override;
  Status launch(const std::vector<std::string>& argv) override;
  Status attach(const Selection& whom, const GivenUp& given_up) override;
  Status release(const Selection& whom) override;
  int child_pid() override;
  Result<Ending> run(const RunOptions& options, const Output& output) override;
  Summary summary() override;
  std::optional<std::vector<EventProgress>> progress() override;
  bool has_clients() override;
  void serve_clients() override;
  void let_program_end() override;
  std::string histograms(bool raw_strings) override;
  std::uint32_t snapshots() override;
  std::vector<CallSummary> calls() override;
  std::vector<CallSummary> rows_of_calls() override;
  Result<Reply> ask(const std::string& session, const std::vector<Command>& commands) override;
  Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob) override;
  Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function,
                                               SourceList what) override;
  std::vector<Finding> examine(const Selection& whom) override;
  Result<std::string> find_program(const std::string& program) override;
  Status check_readable(int pid) override;
  std::string find_agent() override;

 private:
  std::optional<Session> session_;
};

}  // namespace uprobe::cli
