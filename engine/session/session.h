// SPDX-License-Identifier: MIT
// The facade: all of the engine that the CLI, the helper, the library and the tests may use.
//
//   prepare   parses, resolves and plans every definition against the files; no process exists yet
//   attach    the same for running processes. Where another tool traces them, the session becomes that tool's client
//   launch    starts the program under ptrace, loads the agent at the exec stop, arms the points and releases the program
//   run       reads and prints records until the program ends or the session is stopped; other threads may add and remove
//             probes during this time
//   summary   counts of hits, missed returns and lost records
//
// No function here exits, throws, or prints to the terminal on its own; every failure is an Error.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/types.h"

namespace uprobe {

namespace control {
class Preloaded;  // engine/inject/preloaded.h
}

class Session {
 public:
  static Result<Session> prepare(const SessionOptions& options);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Where and how each probe will be; also where it is in running processes, which are looked at and not touched.
  std::vector<PlanReport> report(const std::vector<int>& pids = {}) const;

  // Starts argv[0] (found through PATH), traced, with the environment of this process. The program runs when this returns.
  // Code::killed where a waiting process that was to become the program has ended.
  Status launch(const std::vector<std::string>& argv);
  int child_pid() const;

  // Attaches to running processes. If one of `pids` cannot be attached, none is. Of the processes meant by name or file at
  // least one has to exist, unless the user waits for them. Where another tool traces the processes (of this user, or of any
  // with `joins_others`) that tool adds this session's probes to its own (engine/ipc/peer_protocol.h); the processes must be
  // exactly those that it was started with or for. The processes run when this returns. Code::killed when `given_up` became
  // true before the first process was touched, or while this waited for another tool: all of them are as they were.
  Status attach(const Selection& whom, const GivenUp& given_up);

  // For a program that has loaded the agent by LD_PRELOAD and waits for this process. When this returns the points are armed;
  // the program starts with program.finish(true).
  Status adopt(control::Preloaded& program);
  // Reads and prints until no process of the session is left, or `options` or the output end it.
  Status follow(const control::Preloaded& program, const RunOptions& options, const Output& output);

  // After attach(): reads and prints until the processes have ended (never where later ones are waited for), or `options` or
  // the output end it. Otherwise: until the program has ended and everything recorded is printed. Output errors end the
  // printing, never the program.
  Result<Ending> run(const RunOptions& options, const Output& output);
  Result<Ending> run(const RunOptions& options, const RecordSink& sink);
  // Whether clients are left after run(): the target cannot be released before they leave. serve_clients() returns when none is
  // left.
  bool has_clients() const;
  void serve_clients();
  // Continues a program that was a waiting process and is held at its end until all of its records are written.
  void let_program_end();
  bool is_recording() const;  // launched, and not released since
  // SIGKILL, if the program has not ended.
  void kill_program();
  Summary summary() const;
  // The counts of the `hist` triggers, in the format of the kernel's hist files; empty: there is no such trigger. The
  // histograms of several events follow each other, each under its event's name.
  std::string histograms(bool raw_strings) const;
  // How often `snapshot` triggers have acted so far; it wraps. Any process of the session can raise it. As calls().
  std::uint32_t snapshots() const;
  // The sums of the definitions that sum up calls, so far, in the order of the definitions. From any thread while run() is in
  // progress, and after it.
  std::vector<CallSummary> calls() const;
  // The same; with SessionOptions::sums_by_process a row for each process that has called the function.
  std::vector<CallSummary> rows_of_calls() const;

  // While run() is in progress, from any thread. They change every process of the session. Code::refused once the session has
  // ended. A line as uprobe_events takes it. Either all of its probes are added or, with an Error, none; what it deletes stays
  // deleted.
  Result<Changes> define(const Definition& definition);
  // "GROUP/EVENT", "EVENT" (in any group), "GROUP/"; empty: all events.
  Result<Changes> remove(const std::string& name);
  // An event that is off keeps its probe points and records nothing. Returns the number of probes that were switched.
  Result<std::size_t> switch_events(const std::string& name, bool on);
  // Counts from 0 again. Returns the number of probes.
  Result<std::size_t> reset_counts(const std::string& name);
  // The same names.
  std::vector<ProbeState> probes(const std::string& name = {}) const;
  // The session's own events, also those that were removed. Never waits. Nothing: the session changes just now, or does not trace.
  std::optional<std::vector<EventProgress>> progress() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Removes what a killed tool has left in the processes that it had attached to: in `whom`, and, where that tool searched for
// processes itself, in all processes of its session. It was known by the calling tool's process id. Returns the first error, if
// any.
Status release(const Selection& whom);

}  // namespace uprobe
