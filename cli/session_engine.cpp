// SPDX-License-Identifier: MIT
// Calls uprobe::Session; decides nothing.
#include "cli/session_engine.h"

#include "engine/target/attachable.h"
#include "engine/target/guardian.h"

namespace uprobe::cli {

CheckReport SessionEngine::define(const std::vector<Definition>& writes, const CheckOptions& options) {
  return check_definitions(writes, options);
}

Status SessionEngine::check(const SessionOptions& options) {
  const Result<Session> session = Session::prepare(options);
  if (!session) return session.error();
  return ok();
}

Status SessionEngine::prepare(const SessionOptions& options) {
  Result<Session> session = Session::prepare(options);
  if (!session) return session.error();
  session_.emplace(session.take());
  return ok();
}

std::vector<PlanReport> SessionEngine::report(const std::vector<int>& pids) { return session_->report(pids); }

Status SessionEngine::launch(const std::vector<std::string>& argv) { return session_->launch(argv); }

Status SessionEngine::attach(const Selection& whom, const GivenUp& given_up) {
  return session_->attach(whom, given_up);
}

Status SessionEngine::release(const Selection& whom) {
  target::start_guardian();
  return uprobe::release(whom);
}

int SessionEngine::child_pid() { return session_->child_pid(); }

Result<Ending> SessionEngine::run(const RunOptions& options, const Output& output) {
  return session_->run(options, output);
}

Summary SessionEngine::summary() { return session_->summary(); }

std::optional<std::vector<EventProgress>> SessionEngine::progress() { return session_->progress(); }

bool SessionEngine::has_clients() { return session_->has_clients(); }

void SessionEngine::serve_clients() { session_->serve_clients(); }

void SessionEngine::let_program_end() { session_->let_program_end(); }

std::vector<CallSummary> SessionEngine::calls() { return session_->calls(); }
std::vector<CallSummary> SessionEngine::rows_of_calls() { return session_->rows_of_calls(); }

std::uint32_t SessionEngine::snapshots() { return session_->snapshots(); }
std::string SessionEngine::histograms(bool raw_strings) { return session_->histograms(raw_strings); }

Result<Reply> SessionEngine::ask(const std::string& session, const std::vector<Command>& commands) {
  return ask_session(session, commands);
}

Result<std::vector<std::string>> SessionEngine::list_functions(const std::string& object, const std::string& glob) {
  return uprobe::list_functions(object, glob);
}

Result<std::vector<std::string>> SessionEngine::list_source(const std::string& object, const std::string& function,
                                                            SourceList what) {
  return uprobe::list_source(object, function, what);
}

namespace {

// A line that can be pasted.
void name_agent(std::string& advice, const std::string& agent) {
  constexpr std::string_view kShort = "LD_PRELOAD=libuprobe.so";
  const std::size_t at = advice.find(kShort);
  if (at != std::string::npos && !agent.empty()) advice.replace(at, kShort.size(), "LD_PRELOAD=" + agent);
}

}  // namespace

std::vector<Finding> SessionEngine::examine(const Selection& whom) {
  std::vector<Finding> findings = examine_machine();
  for (const int pid : whom.pids)
    for (Finding& finding : examine_process(pid, whom.trusts_filters)) findings.push_back(std::move(finding));
  for (Finding& finding : findings) name_agent(finding.advice, uprobe::find_agent());
  return findings;
}

Result<std::string> SessionEngine::find_program(const std::string& program) { return uprobe::find_program(program); }

Status SessionEngine::check_readable(int pid) { return target::check_readable(pid); }

std::string SessionEngine::find_agent() { return uprobe::find_agent(); }

}  // namespace uprobe::cli
