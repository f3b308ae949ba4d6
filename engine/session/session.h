// SPDX-License-Identifier: MIT
// The facade: everything that the CLI (and later the helper and the tests) may use of the engine.
//
//   prepare   every definition is parsed, resolved and planned against the files; no process exists yet
//   attach    the same for processes that run already. Where another tool traces them, the session is that tool's client
//   launch    the program starts under ptrace, the agent gets in at the exec stop, points are armed, the tracer lets go
//   run       records are read and printed until the program ends (or the session is stopped); other threads may add and
//             remove probes meanwhile
//   summary   what was hit, missed and lost
//
// Nothing here exits, prints to the terminal on its own or throws; every failure is an Error.
#pragma once

#include <cstddef>
#include <memory>
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

  std::vector<PlanReport> report() const;

  // Starts argv[0] (found through PATH), traced, with the environment as it is. The program runs when this returns. Code::killed where
  // a process that waited has ended meanwhile.
  Status launch(const std::vector<std::string>& argv);
  int child_pid() const;

  // Processes that run already. Where one of `pids` cannot be attached to, none is; of the others, unless they are waited for, one
  // must be there. Where another tool has them, of this user's or with `joins_others`, it adds our probes to its own
  // (engine/ipc/peer_protocol.h); they must be the ones that it was started with or for. They run when this returns. Code::killed when
  // it was given up before the first was touched, or while another was waited for: all of them are as they were.
  Status attach(const Selection& whom, const GivenUp& given_up);

  // The other socket: the program that has the agent by LD_PRELOAD and waits for us. When this returns the points are armed;
  // the program begins with program.finish(true).
  Status adopt(control::Preloaded& program);
  // Reads and prints until no process has the session any more, or `options` or the output end it.
  Status follow(const control::Preloaded& program, const RunOptions& options, const Output& output);

  // After attach(): until the processes have ended (never where others are waited for) or `options` or the output end it. Else:
  // reads and prints until the program has ended and everything recorded is printed. Output errors end printing, never the
  // program.
  Result<Ending> run(const RunOptions& options, const Output& output);
  Result<Ending> run(const RunOptions& options, const RecordSink& sink);
  // Clients have outlasted run(): the target cannot be left before them. serve_clients() returns when the last has gone.
  bool has_clients() const;
  void serve_clients();
  // A program that was a waiting process and waits at its end goes on: all that is to be written of it has been.
  void let_program_end();
  bool is_recording() const;  // launched, and not let go since
  // SIGKILL, if the program has not ended.
  void kill_program();
  Summary summary() const;
  // What `hist` triggers have counted so far, as the kernel's hist files show it; empty: there is no such trigger. Those of several
  // events stand one after the other, each under its event's name.
  std::string histograms(bool raw_strings) const;

  // While run() is under way, from any thread; every process of the session is changed. Code::refused once the session has ended.
  // A line as uprobe_events takes it. All that it adds is added or, with an Error, nothing; what it deletes is gone.
  Result<Changes> define(const Definition& definition);
  // "GROUP/EVENT", "EVENT" in any group, "GROUP/"; empty: all.
  Result<Changes> remove(const std::string& name);
  // What is switched off keeps its places and records nothing. Returns how many probes that are.
  Result<std::size_t> switch_events(const std::string& name, bool on);
  std::vector<ProbeState> probes() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Takes away what a tool that was killed has left in processes that it had attached to: in these, and where it has looked for some
// itself, in all that it was in; it was known by our process id. The first error, if any.
Status release(const Selection& whom);

}  // namespace uprobe
