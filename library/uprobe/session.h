// SPDX-License-Identifier: MIT
// Runs a program with probes in it, or puts them into one that runs, or into this process itself, and gives their hits as values: for
// tests that assert which functions of a library were called, with what, and what they returned, and for small tools. Nothing of the
// program under test is changed or rebuilt.
//
//   auto session = libuprobe::Session::launch({.definitions = {"p:open /lib/x86_64-linux-gnu/libc.so.6:open64 file=+0(%di):string"}},
//                                             {"/bin/cat", "/etc/hostname"});
//   if (!session) return fail(session.error().message());
//   for (const libuprobe::Event& event : session->finish()) use(event.name, event.text("file"));
//
// A test that calls the library under test itself attaches to itself:
//
//   auto session = libuprobe::Session::attach({.definitions = {"p:price /opt/shop/libprices.so:price_of count=%si:s32"}}, getpid());
//   sell("plum", 3);
//   EXPECT_EQ(session->finish().at(0).number("count"), 3);
//
// Definitions are those of uprobe-run and of ftrace's uprobe_events. Linux x86-64; needs no privileges for one's own programs.
//
// Build: find_package(uprobe) and link uprobe::session. The library needs libuprobe.so at run time and, for a session of a process
// with itself, uprobe-run, which are installed with it (the package says where; Options::agent and Options::tool take others).
//
// Nothing here throws but for memory or threads that have run out. A Session may be used from any thread, one call at a time, and in
// the process that has made it: in a child of that one every call fails, and the destructor does nothing. The process that launches
// gets a few threads, its soft limits of files, file size and CPU time are raised to the hard ones, and SIGCHLD and SIGXFSZ get the
// dispositions SIG_DFL and SIG_IGN.
//
// A process that attaches to itself gets one thread ("uprobe-session", all signals blocked) and three descriptors (500 and above), and
// nothing else of it changes: uprobe-run, which does the work, is no child that wait() or SIGCHLD tells of, has none of its
// descriptors, environment, terminal, and ends with it. What the library does to bring events here makes no events, and counts as
// hits only where a definition has a condition: functions of the C library may be probed. What the test itself does with an Event,
// such as to free it, is the test's own: with `free` probed, take events by finish().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#ifndef UPROBE_AGENT
#define UPROBE_AGENT ""  // beside the running program, or in ../lib/uprobe
#endif
#ifndef UPROBE_TOOL
#define UPROBE_TOOL ""  // beside the agent, or in bin above it
#endif

namespace libuprobe {

// Why something could not be done, in one line. `definition` and `column` (a byte of it, -1: none) say what it is about.
struct Error {
  std::string text;
  std::string definition = {};
  int column = -1;
  std::string help = {};  // what to do; may be empty

  // All of it, the definition with a caret under the column; lines without the last newline.
  std::string message() const;
};

// A value or an Error. Asking for the one that is not there ends the program.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};
struct Nothing {};
using Status = Result<Nothing>;

// What an argument of a definition fetched.
struct Value {
  enum class Kind : std::uint8_t {
    fault,            // a string that could not be read
    unsigned_number,  // u8..u64, x8..x64 and what has no type; memory that could not be read is 0, as in ftrace
    signed_number,    // s8..s64; `number` is sign-extended
    text,             // string, ustring, char
    array,            // TYPE[N]: `elements`
  };
  Kind kind = Kind::fault;
  std::uint64_t number = 0;
  std::string text;
  std::vector<Value> elements;
};

struct Field {
  std::string name;  // "arg1" where the definition gives none
  Value value;
};

// One hit.
struct Event {
  std::string group, name;
  std::string task;       // name of the thread
  std::uint32_t pid = 0;  // id of the thread, as in ftrace's TASK-PID
  std::uint32_t cpu = 0;
  std::uint64_t nanoseconds = 0;     // CLOCK_MONOTONIC
  std::uint64_t address = 0;         // of the probed instruction; of a return: of the function
  std::uint64_t return_address = 0;  // of a return: where it went; else 0
  std::vector<Field> fields;         // in the order of the definition

  // Null: there is no such field.
  const Value* find(std::string_view field) const;
  // Nothing: there is no such field, or it is no number, no text.
  std::optional<std::int64_t> number(std::string_view field) const;
  std::optional<std::string> text(std::string_view field) const;
};

struct Options {
  std::vector<std::string> definitions;   // at least one
  std::uint64_t buffer_bytes = 4u << 20;  // of each of the rings that hits wait in; see Counts::lost
  std::string agent = UPROBE_AGENT;       // libuprobe.so
  std::string tool = UPROBE_TOOL;         // uprobe-run, for a session of a process with itself
};

// Of one probe.
struct Counts {
  std::string name;          // "GROUP/EVENT"
  std::uint64_t hits = 0;    // `lost` ones included
  std::uint64_t lost = 0;    // no Event came of them: a ring was full, it was too large, or taken too late
  std::uint64_t missed = 0;  // returns that could not be followed
};

// How the program ended; of one that was attached to, or is let go, nothing is known but that it is over.
struct Ending {
  bool signalled = false;
  int code = 0;  // exit code, or signal
};

class Tracer;  // internal

class Session {
 public:
  // Starts argv[0], found through PATH, with this process's environment and streams; its children and what they execute are
  // probed too. All definitions are checked first: with a bad one nothing runs. It runs when this returns.
  static Result<Session> launch(const Options& options, const std::vector<std::string>& argv);
  // To a process that runs already, and its children from now on. It is stopped for some milliseconds, and runs when this returns;
  // with an Error it is as it was. Refused where another tool or session has it. If this process is killed the probes stay,
  // harmless, until the next tool comes.
  // Process getpid() may be this one: with all of its threads; one session at a time. Most probes are breakpoints, as in all code that
  // runs already. Where Yama restricts ptrace the process names its tracer (PR_SET_PTRACER) for the time of the session, and nobody
  // afterwards. The session ends when the process calls exec. Should uprobe-run be killed it is over, and the next one takes away
  // what has stayed.
  static Result<Session> attach(const Options& options, int pid);
  // Of one that has been moved away every call fails.
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  // Kills the program that it has launched, unless it has ended or been let go; leaves one that it has attached to, as stop() does.
  ~Session();

  int pid() const;  // of the program

  // The oldest event that has not been taken; hits come up to 50 ms late. Nothing: none came in time, or none will come. Events
  // that nobody takes wait in memory.
  std::optional<Event> next(std::chrono::milliseconds patience);
  // Waits for the end of the program, or for stop(), and returns all events that have not been taken. Of this process itself: stops.
  std::vector<Event> finish();
  // Of the program, once it has ended.
  std::optional<Ending> ending() const;

  // Changes while it runs, in all of its processes; see `uprobe-run --control`. A definition that starts with "-:" deletes.
  Status add(const std::string& definition);
  Status remove(const std::string& event);   // "GROUP/EVENT", "EVENT", "GROUP/"
  Status disable(const std::string& event);  // the same; empty: all
  Status enable(const std::string& event);
  // Of all probes, removed ones too once the session has ended.
  std::vector<Counts> counts() const;

  // Takes the probes out, for good; the program goes on.
  void stop();

 private:
  explicit Session(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace libuprobe
