// SPDX-License-Identifier: MIT
// The facade's vocabulary: what the caller of a session can ask for, and what the session reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/return_mode.h"
#include "engine/plan/tier.h"
#include "engine/program/thinning.h"
#include "engine/spec/probe_spec.h"
#include "engine/trace/clocks.h"

namespace uprobe {

// A definition as the user gave it, with the object that -x named for it (empty: none).
struct Definition {
  std::string text;
  std::string default_object;
  // The filter and triggers of its events (engine/program/filter.h, trigger.h); and whether they are off until a trigger
  // enables them.
  std::optional<std::string> filter = {};
  std::vector<std::string> triggers = {};
  bool is_disabled = false;
  // The calls of the functions are summed up (CallSummary), and none is recorded; its text may be that of an entry.
  bool sums_calls = false;
};

// A process that waits to become the program (engine/base/start_line.h). It is not a child of this process; when the program
// ends, its parent finds the trace complete.
struct WaitingProcess {
  int pid = 0;
  int line = -1;
  // It has become the program and cannot be traced: it ends with the exit code that this returns, before its first instruction.
  std::function<int(const Error&)> give_up = {};
};

struct SessionOptions {
  std::vector<Definition> definitions;
  std::optional<std::uint64_t> ring_bytes =
      std::nullopt;                      // one ring; rounded up to a power of two. Nothing: as it fits
  std::chrono::nanoseconds patience{0};  // how long a hit waits for room in a full ring; 0: it is lost at once
  std::uint32_t string_limit = 4096;  // characters of a string; longer ones are cut. `strict` has the kernel's limits
  bool strict = false;                // the kernel's dialect and nothing else
  bool force = false;                 // allow a probe at an offset inside an instruction
  bool allows_change = false;         // triggers may change the program (engine/program/action.h)
  bool allows_callbacks = false;      // and call functions of its own
  plan::Tier tier = plan::Tier::automatic;
  plan::ReturnMode returns = plan::ReturnMode::automatic;
  program::Thinning thinning;              // of all definitions but those of a summary
  spec::Style style = spec::Style::event;  // for events without a style of their own
  std::string agent_path;                  // libuprobe.so; empty: the one next to the running program
  // Whether `uprobe-run --control` can find the session, by this process's id and by `name` unless that is empty, and whether
  // it and other tools may join each other.
  bool has_socket = false;
  // Whether to join a tool that may not inspect this process: another user's (root alone can), or one with fewer capabilities.
  bool joins_others = false;
  // Whether a further process, the guardian, continues this one if it is stopped while it holds a program.
  bool has_guardian = false;
  // Whether an event that is added later can have only fields of names that other events have.
  bool has_fixed_fields = false;
  // "EVENT:FIELD": each has to be a number of an event.
  std::vector<std::string> counters;
  // What the processes map is noted for a recording, from the first one on.
  bool notes_mappings = false;
  // The process id that the user knows, if it is not this process's; 0: it is.
  int known_as = 0;
  // launch() makes this process the program, instead of a child.
  std::optional<WaitingProcess> waiting;
  std::string name;
  // The absolute path of a socket by which other programs get the rings (engine/rings/); empty: none.
  std::string ring_socket;
  // A thread whose hits are not recorded; they are counted only where the definition has a filter. 0: none.
  std::uint32_t unseen_thread = 0;
  // Calls are summed up for each process apart.
  bool sums_by_process = false;
};

// Where a place is in a running process; nothing: it has not mapped the file.
struct PlaceInProcess {
  int pid = 0;
  std::optional<std::uint64_t> address;
};

// What --dry-run says about one definition: its place and its tier, and why the tier is no better.
struct PlanReport {
  std::string definition;  // canonical listing: "p:uprobes/e /bin/zsh:0x000000000006ae40 arg1=%di"
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t address = 0;        // link-time
  std::string symbol;               // nearest "name+0x4", empty if none
  std::vector<std::uint8_t> bytes;  // of the displaced instruction
  std::string tier;                 // "jump", "int3", "hardware", "refused"
  std::string why;                  // why not a better tier, or why refused
  bool changes_program = false;
  std::string returns;  // of a return probe: how its returns are caught; else empty
  std::vector<PlaceInProcess> processes;
};

struct ProbeSummary {
  std::string name;        // "uprobes/zfree_entry"
  std::string place;       // "/bin/zsh:0x6ae40"
  std::uint64_t hits = 0;  // recorded + filtered + disabled + left out + lost
  std::uint64_t recorded = 0;
  std::uint64_t filtered = 0;                                 // rejected by the event's filter
  std::uint64_t disabled = 0;                                 // while the event or all tracing was off
  std::uint64_t unsampled = 0, over_rate = 0, too_short = 0;  // left out: SessionOptions::thinning
  bool is_counted = false;  // by a histogram, and off from the start: it records nothing
  std::uint64_t lost_full = 0, lost_too_big = 0, lost_busy = 0;
  std::uint64_t lost_to_reader_lag =
      0;                     // a client's records that it took too slowly, or own ones while there were clients
  std::uint64_t missed = 0;  // entries whose return could not be followed; not among the hits
  // Hits at which a trigger has changed the program: the function did not run, a register got a value, the thread slept, a signal was
  // sent; and how often one was to do so and could not.
  std::uint64_t overridden = 0, changed = 0, delayed = 0, signalled = 0, not_changed = 0;
  std::uint64_t unavailable = 0;  // a trigger asked for comm or common_pid, which was not known there, and did nothing
  std::string hint;               // for a probe never hit: the likely reason
  std::string against;            // why it is a breakpoint and not a jump; empty: it is a jump, or --tier=int3
};

// The calls of one function. Times are in nanoseconds; percentiles and the longest are right within 2 %.
struct CallSummary {
  std::string event;  // the event's name, without its group
  std::string place;  // "/bin/zsh:0x6ae40"
  // With SessionOptions::sums_by_process, and if a process has called the function. Id 0: all processes without rows of their own.
  struct Process {
    std::uint32_t id = 0;
    std::string name;
  };
  std::optional<Process> process = {};
  std::uint64_t calls = 0, returns = 0;
  std::uint64_t abandoned = 0;   // calls that have not returned: left by exceptions or longjmp, or under way at the end
  std::uint64_t unfollowed = 0;  // calls whose return could not be followed
  std::uint64_t untimed = 0;     // returns that are counted alone, and are in none of the times
  std::uint64_t total_ns = 0;
  std::optional<std::uint64_t> self_ns;  // without the probed functions that it called; nothing: not known
  std::uint64_t mean_ns = 0, p50_ns = 0, p90_ns = 0, p99_ns = 0, max_ns = 0;
};

struct Summary {
  std::vector<ProbeSummary> probes;
  plan::Tier tier = plan::Tier::automatic;                 // as asked for
  std::uint64_t jumps = 0, breakpoints = 0, hardware = 0;  // probes armed somewhere, by the tier they have there
  std::uint64_t mail_timeouts = 0;   // libraries that were not probed because the tool did not answer in time
  std::vector<std::string> details;  // shown with -v only
  std::vector<std::string> notes;    // anything else worth a line: points refused in a library, ...
};

// A probe of a running session.
struct ProbeState {
  std::string definition;  // canonical listing
  std::string name;        // "uprobes/zfree_entry"
  bool on = true;
  int owner = 0;  // process id of the client tool that owns the probe; 0: the session itself
  std::uint64_t hits = 0, lost = 0, missed = 0;  // as counted by the reader: up to 50 ms old
  std::string print_format = {};                 // of a mark
};

// The counts of an event of a running session, up to 50 ms old. Several may have the same name.
struct EventProgress {
  std::string name;  // "uprobes/zfree_entry"
  std::uint64_t hits = 0, lost = 0, missed = 0;
};

// "GROUP/EVENT" of each.
struct Changes {
  std::vector<std::string> added, removed;
};

// How the traced program ended.
struct Ending {
  bool signalled = false;
  int code = 0;           // exit code or signal number
  bool detached = false;  // the processes go on without the tool
};

// A sink for trace text. It gets whole lines, perhaps several at once, and returns 0 or an errno that ends the output.
using Output = std::function<int(std::string_view)>;

namespace format {
class Files;  // engine/export/files.h
}
namespace trace {
struct EventRecord;  // engine/trace/event_record.h
}
namespace program {
struct EventLayout;  // engine/program/layout.h
}

// Gets each record, its layout and its thread's name; all of them are valid during the call only.
using RecordSink = std::function<void(const trace::EventRecord&, const program::EventLayout&, std::string_view task)>;

struct RunOptions {
  std::uint64_t max_events = 0;          // 0: no limit; afterwards the program goes on untraced
  std::chrono::nanoseconds duration{0};  // 0: no limit
  std::string format = "text";           // a name of engine/export/formats.h
  std::uint64_t min_latency = 0;         // nanoseconds: shorter calls are not shown, where the format shows calls
  std::vector<std::string> counters;     // "EVENT:FIELD", of numbers, for formats that show curves
  trace::ClockKind clock = trace::ClockKind::mono;
  format::Files* files = nullptr;  // has to be there for a format that writes files; the output gets nothing then
  bool records = false;            // write a recording (engine/recording/) instead
  // Called where the recording would be larger: what is written then goes to a further file. Returns 0, or an errno that ends the
  // output. Null: the tracing ends there.
  std::function<int()> next_file = {};
  std::uint64_t record_limit = 0;          // bytes of it; 0: none. Afterwards the program goes on untraced
  bool header = true;                      // begin with the names of the columns
  bool short_lines = false;                // without the column of flags
  bool raw_strings = false;                // print all bytes of strings and names unchanged, as the kernel does
  std::function<bool()> detach_requested;  // polled; true: let the program go on untraced
  bool until_last = false;                 // stay until the last traced process has ended, not only the first ones
  // With until_last: called once, when the first ones have ended and `others` are still traced.
  std::function<void(std::size_t others)> first_ended;
};

// Polled by long operations; true: stop, the caller does not want the result any more.
using GivenUp = std::function<bool()>;

// Shows the user a line during an operation.
using Tell = std::function<void(const std::string&)>;

// Which running processes to attach to: all of `pids`; and those with one of the names (fnmatch) or that map one of the files,
// as far as they can be attached; with `waits` also those that start later.
struct Selection {
  std::vector<int> pids;
  std::vector<std::string> names, objects;
  bool waits = false;
  bool trusts_filters = false;            // seccomp filters that cannot be read are taken to allow all that is needed
  Tell tell = [](const std::string&) {};  // a line for each process found; called from any thread
};

}  // namespace uprobe
