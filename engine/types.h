// SPDX-License-Identifier: MIT
// The facade's vocabulary: what a session is asked for, and what it says.
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
#include "engine/spec/probe_spec.h"

namespace uprobe {

// A definition as the user gave it, with the object that -x named for it (empty: none).
struct Definition {
  std::string text;
  std::string default_object;
  // Of the events that it defines: engine/program/filter.h, trigger.h; and whether they are off until a trigger enables them.
  std::optional<std::string> filter = {};
  std::vector<std::string> triggers = {};
  bool is_disabled = false;
};

// A process that waits to become the program (engine/base/start_line.h). It is no child of ours; its parent finds the trace complete
// when the program ends.
struct WaitingProcess {
  int pid = 0;
  int line = -1;
  // It has become the program, and cannot be traced: it ends with the exit code that this returns, before it has run.
  std::function<int(const Error&)> give_up = {};
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
  bool has_socket = false;
  // Whether another tool is joined that may not look into this process: another user's (root alone can), or one with fewer
  // capabilities.
  bool joins_others = false;
  // Whether a further process, the guardian, continues this one when it is stopped while it holds a program.
  bool has_guardian = false;
  // Another process id than ours; 0: ours.
  int known_as = 0;
  // launch() makes this one the program, and not a child.
  std::optional<WaitingProcess> waiting;
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
  std::uint64_t hits = 0;  // recorded + filtered + disabled + lost
  std::uint64_t recorded = 0;
  std::uint64_t filtered = 0;  // not wanted by the event's filter
  std::uint64_t disabled = 0;  // while the event or all tracing was off
  std::uint64_t lost_full = 0, lost_too_big = 0, lost_busy = 0;
  std::uint64_t lost_to_reader_lag = 0;  // in memory: this tool did not take them while others had to go on
  std::uint64_t missed = 0;              // entries whose return could not be followed; not among the hits
  std::uint64_t unavailable =
      0;                // times that a trigger asked for comm or common_pid, which was not known there: it did nothing
  std::string hint;     // for a probe never hit: the likely reason
  std::string against;  // why it is a breakpoint and no jump; empty: it is a jump, or was to be a breakpoint
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

}  // namespace uprobe
