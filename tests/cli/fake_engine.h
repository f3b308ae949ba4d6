// SPDX-License-Identifier: MIT
// An engine that traces nothing: it answers as a test has told it to, and keeps what it was asked.
#pragma once

#include <unistd.h>

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/engine.h"

namespace uprobe::cli {

class FakeEngine : public Engine {
 public:
  using Words = std::vector<std::string>;
  // A definition that holds a key of `bad` fails with the error.
  std::map<std::string, Error> bad;
  std::optional<Error> together;  // fails only if all definitions come together
  std::optional<Error> missing_program, launch_error, run_error;
  std::vector<PlanReport> plan;
  std::vector<int> attached, reported;
  int unreadable = 0;
  Words attached_names, attached_objects;
  bool waits = false;
  bool is_let_end = false;
  Summary totals;
  std::string tables;
  std::vector<CallSummary> sums;
  Ending ending;
  std::vector<std::string> lines, functions;

  CheckReport checked;
  std::vector<Definition> defined;
  bool defined_strictly = false;
  SessionOptions prepared;
  RunOptions run_options;
  Words launched, listed;
  int checks = 0;
  std::vector<int> answers;  // what the output returned
  std::string asked_session;
  std::vector<Command> asked;
  Result<Reply> reply = Reply{};

  CheckReport define(const std::vector<Definition>& writes, const CheckOptions& options) override {
    defined = writes;
    defined_strictly = options.strict;
    return checked;
  }
  Status check(const SessionOptions& options) override {
    ++checks;
    return verdict(options);
  }
  Status prepare(const SessionOptions& options) override {
    prepared = options;
    if (together) return *together;
    return verdict(options);
  }
  std::vector<PlanReport> report(const std::vector<int>& pids) override {
    reported = pids;
    return plan;
  }
  Status launch(const Words& argv) override {
    if (launch_error) return *launch_error;
    launched = argv;
    return ok();
  }
  Status attach(const Selection& whom, const GivenUp&) override {
    attached = whom.pids;
    attached_names = whom.names;
    attached_objects = whom.objects;
    waits = whom.waits;
    if (!whom.names.empty()) whom.tell("attached to process 9 (x)");
    if (launch_error) return *launch_error;
    return ok();
  }
  Status release(const Selection&) override { return ok(); }
  int child_pid() override { return ::getpid(); }
  Result<Ending> run(const RunOptions& options, const Output& output) override {
    run_options = options;
    for (const std::string& line : lines) {
      answers.push_back(output(line));
      options.detach_requested();
    }
    if (run_error) return *run_error;
    return ending;
  }
  Summary summary() override { return totals; }
  std::optional<std::vector<EventProgress>> progress() override { return std::nullopt; }
  bool has_clients() override { return false; }
  void serve_clients() override {}
  void let_program_end() override { is_let_end = true; }
  std::string histograms(bool) override { return tables; }
  std::uint32_t snapshots() override { return 0; }
  std::vector<CallSummary> calls() override { return sums; }
  std::vector<CallSummary> rows_of_calls() override { return sums; }
  Result<Reply> ask(const std::string& session, const std::vector<Command>& commands) override {
    asked_session = session;
    asked = commands;
    return reply;
  }
  Result<Words> list_functions(const std::string& object, const std::string& glob) override {
    listed = {object, glob};
    return functions;
  }
  std::vector<Finding> examine(const Selection& whom) override {
    return {{whom.pids.empty() ? Verdict::limited : Verdict::bad, "attaching\n", "to its own", "use sudo"}};
  }
  Result<Words> list_source(const std::string& object, const std::string& function, SourceList what) override {
    listed = {object, function, what == SourceList::lines ? "lines" : "variables"};
    return functions;
  }
  Status check_readable(int pid) override {
    if (pid == unreadable) return Error{.code = Code::not_found, .text = "no process " + std::to_string(pid)};
    return ok();
  }
  std::string find_agent() override { return "/lib/agent.so"; }
  Result<std::string> find_program(const std::string& program) override {
    if (missing_program) return *missing_program;
    return "/bin/" + program;
  }

 private:
  Status verdict(const SessionOptions& options) const {
    for (std::size_t i = 0; i < options.definitions.size(); ++i)
      for (const auto& [word, error] : bad)
        if (options.definitions[i].text.find(word) != std::string::npos) return about(error, options, i);
    return ok();
  }
  // As the engine quotes a definition: its words with single blanks between them.
  static Error about(Error error, const SessionOptions& options, std::size_t number) {
    std::istringstream words(options.definitions[number].text);
    for (std::string word; words >> word && word != "#";) error.where += (error.where.empty() ? "" : " ") + word;
    error.definition = static_cast<int>(number);
    return error;
  }
};

}  // namespace uprobe::cli
