// The facade: everything that the CLI (and later the helper and the tests) may use of the engine.
//
//   prepare   every definition is parsed, resolved and planned against the files; no process exists yet
//   attach    the same for processes that run already. Where another tool traces them, the session is that tool's guest
//   launch    the program starts under ptrace, the agent gets in at the exec stop, points are armed, the tracer lets go
//   run       records are read and printed until the program ends (or the session is stopped); other threads may add and
//             remove probes meanwhile
//   summary   what was hit, missed and lost
//
// Nothing here exits, prints to the terminal on its own or throws; every failure is an Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/plan/return_mode.h"
#include "engine/plan/tier.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

namespace control {
class Preloaded;  // engine/inject/preloaded.h
}

// A definition as the user gave it, with the object that -x named for it (empty: none).
struct Definition {
  std::string text;
  std::string default_object;
  // Of the events that it defines: engine/program/filter.h, trigger.h; and whether they are off until a trigger enables them.
  std::optional<std::string> filter = {};
  std::vector<std::string> triggers = {};
  bool is_disabled = false;
};

struct SessionOptions {
  std::vector<Definition> definitions;
  std::uint64_t ring_bytes = 4u << 20;  // one ring; rounded up to a power of two
  bool strict = false;                  // the kernel's dialect and nothing else
  bool force = false;                   // probe at an offset inside an instruction all the same
  plan::Tier tier = plan::Tier::automatic;
  plan::ReturnMode returns = plan::ReturnMode::automatic;
  spec::Style style = spec::Style::event;  // of events that have none of their own
  std::string agent_path;                  // libuprobe.so; empty: found beside the running program
  // Whether `uprobe-run --control` finds the session, by our process id and by the name unless it is empty, and whether other tools
  // may join it and it them.
  bool has_door = false;
  // Whether another tool is joined that may not look into this process: another user's (root alone can), or one with fewer
  // capabilities.
  bool joins_others = false;
  // Whether a further process, the guardian, continues this one when it is stopped while it holds a program.
  bool has_guardian = false;
  int known_as = 0;  // another process id than ours; 0: ours
  std::string name;
  // A thread whose hits are not recorded; they are counted only where the definition has a filter. 0: none.
  std::uint32_t unseen_thread = 0;
};

// What --dry-run says of one definition: where it goes and why not to a better tier.
struct PlanReport {
  std::string definition;  // canonical listing: "p:uprobes/e /bin/zsh:0x000000000006ae40 arg1=%di"
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t address = 0;        // link-time
  std::string symbol;               // nearest "name+0x4", empty if none
  std::vector<std::uint8_t> bytes;  // of the displaced instruction
  std::string tier;                 // "jump", "int3", "refused"
  std::string why;                  // why not a better tier, or why refused
  std::string returns;              // of a return probe: how it gets at the returns; else empty
};

struct ProbeSummary {
  std::string name;        // "uprobes/zfree_entry"
  std::string place;       // "/bin/zsh:0x6ae40"
  std::uint64_t hits = 0;  // recorded + filtered + muted + lost
  std::uint64_t recorded = 0;
  std::uint64_t filtered = 0;  // not wanted by the event's filter
  std::uint64_t muted = 0;     // while the event or all tracing was off
  std::uint64_t lost_full = 0, lost_too_big = 0, lost_busy = 0;
  std::uint64_t lost_behind = 0;  // in memory: this tool did not take them while others had to go on
  std::uint64_t missed = 0;       // entries whose return could not be followed; not among the hits
  std::uint64_t undecided = 0;    // times that a trigger asked for comm, which may not be fetched: it did nothing
  std::string hint;               // for a probe never hit: the likely reason
  std::string against;            // why it is a breakpoint and no jump; empty: it is a jump, or was to be a breakpoint
};

struct Summary {
  std::vector<ProbeSummary> probes;
  plan::Tier tier = plan::Tier::automatic;   // as asked for
  std::uint64_t jumps = 0, breakpoints = 0;  // probes armed somewhere, by the tier they have there
  std::uint64_t mail_timeouts = 0;           // libraries that went unprobed because the tool did not answer in time
  std::vector<std::string> details;          // what only matters to a user who asks (-v)
  std::vector<std::string> notes;            // anything else worth a line: points refused in a library, ...
};

// A probe of a session that runs.
struct ProbeState {
  std::string definition;  // canonical listing
  std::string name;        // "uprobes/zfree_entry"
  bool on = true;
  int owner = 0;                                 // process id of another tool whose probe it is; 0: the session's own
  std::uint64_t hits = 0, lost = 0, missed = 0;  // of what the reader has seen: up to 50 ms old
};

// "GROUP/EVENT" of each.
struct Changes {
  std::vector<std::string> added, removed;
};

// How the traced program ended.
struct Ending {
  bool signalled = false;
  int code = 0;           // exit code or signal number
  bool detached = false;  // attached processes: they go on without us
};

// A line sink: gets whole lines of trace text (the bytes may hold several lines); returns 0 or an errno that ends output.
using Output = std::function<int(std::string_view)>;

namespace trace {
struct EventRecord;  // engine/trace/event_record.h
}
namespace program {
struct EventLayout;  // engine/program/layout.h
}

// Gets each record as it is, with what it is a record of and its thread's name; all of it is good during the call only.
using RecordSink = std::function<void(const trace::EventRecord&, const program::EventLayout&, std::string_view task)>;

struct RunOptions {
  std::uint64_t max_events = 0;            // 0: no limit; after it the program goes on untraced
  std::chrono::nanoseconds duration{0};    // 0: no limit
  bool header = true;                      // the columns' names first
  bool raw_strings = false;                // all bytes of strings and names as they are, as the kernel does
  std::function<bool()> detach_requested;  // polled; true: let the program go on untraced
  bool until_last = false;                 // stay until the last traced process has ended, not the first ones
  // With until_last: called once when the first ones have ended and so many others are still traced.
  std::function<void(std::size_t others)> first_ended;
};

// Whether nobody wants any more what has been begun.
using GivenUp = std::function<bool()>;

// A line for the user, about what happens meanwhile.
using Tell = std::function<void(const std::string&)>;

// Which processes that run already: all of `pids`; those of a name (fnmatch) or that map a file, as far as they can be attached
// to; with `waits` also those that come later.
struct Selection {
  std::vector<int> pids;
  std::vector<std::string> names, objects;
  bool waits = false;
  Tell tell = [](const std::string&) {};  // of each that is found; from any thread
};

class Session {
 public:
  static Result<Session> prepare(const SessionOptions& options);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  std::vector<PlanReport> report() const;

  // Starts argv[0] (found through PATH), traced, with the environment as it is. The program runs when this returns.
  Status launch(const std::vector<std::string>& argv);
  int child_pid() const;

  // Processes that run already. Where one of `pids` cannot be attached to, none is; of the others, unless they are waited for, one
  // must be there. Where another tool has them, of this user's or with `joins_others`, it adds our probes to its own
  // (engine/ipc/peer_protocol.h); they must be the ones that it was started with or for. They run when this returns. Code::killed when
  // it was given up before the first was touched, or while another was waited for: all of them are as they were.
  Status attach(const Selection& whom, const GivenUp& given_up);

  // The other door: the program that has the agent by LD_PRELOAD and waits for us. When this returns the points are armed;
  // the program begins with program.finish(true).
  Status adopt(control::Preloaded& program);
  // Reads and prints until no process has the session any more, or `options` or the output end it.
  Status follow(const control::Preloaded& program, const RunOptions& options, const Output& output);

  // After attach(): until the processes have ended (never where others are waited for) or `options` or the output end it. Else:
  // reads and prints until the program has ended and everything recorded is printed. Output errors end printing, never the
  // program.
  Result<Ending> run(const RunOptions& options, const Output& output);
  Result<Ending> run(const RunOptions& options, const RecordSink& sink);
  // Guests have outlasted run(): the target cannot be left before them. serve_guests() returns when the last has gone.
  bool has_guests() const;
  void serve_guests();
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

// Where libuprobe.so is: beside the program (build tree), in ../lib/uprobe (installed). Empty if nowhere.
std::string find_agent();

// A line per function that can be probed in `object` whose name matches the glob (empty: all): "p:zfree /bin/zsh:zfree".
Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob);

// What the debug information says of a function: a definition for each of its lines that has code, or one that shows its
// variables at its beginning, with a comment for each. Every line can be given to -i.
enum class SourceList { lines, variables };
Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function, SourceList what);

// The file that running `program` would execute, as execvp finds it. Code::not_found or Code::not_executable.
Result<std::string> find_program(const std::string& program);

}  // namespace uprobe
