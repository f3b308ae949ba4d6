// SPDX-License-Identifier: MIT
// Probes a program from its start, a running process, or this process itself, and returns the hits as values: for tests that
// check which functions of a library were called, with which arguments, and what they returned, and for small tools. The
// program under test is neither changed nor rebuilt.
//
//   auto session = libuprobe::Session::launch(
//       {.definitions = {"p:open /lib/x86_64-linux-gnu/libc.so.6:open64 file=+0(%di):string"}}, {"/bin/cat", "/etc/hostname"});
//   if (!session) return fail(session.error().message());
//   for (const libuprobe::Event& event : session->finish()) use(event.name, event.text("file"));
//
// A test that calls the library under test itself attaches to its own process:
//
//   auto session = libuprobe::Session::attach(
//       {.definitions = {"p:price /opt/shop/libprices.so:price_of count=%si:s32"}}, getpid());
//   sell("plum", 3);
//   EXPECT_EQ(session->finish().at(0).number("count"), 3);
//
// Definitions are those of uprobe-run and of ftrace's uprobe_events. Linux x86-64; needs no privileges for the user's own
// programs.
//
// Build: find_package(uprobe 0.2) and link uprobe::session; or c++ -std=c++20 test.cpp $(pkg-config --cflags --libs uprobe). The library needs libuprobe.so at run time and, for a session of a
// process with itself, uprobe-run. Both are installed with it (the package knows where; Options::agent and Options::tool choose
// others).
//
// The functions throw only if memory or threads run out. A Session may be used from any thread, one call at a time, and only in
// the process that made it: in a forked child every call fails, and the destructor does nothing. The launching process gets a
// few threads, its soft limits of files, file size and CPU time are raised to the hard ones, and SIGCHLD and SIGXFSZ get the
// dispositions SIG_DFL and SIG_IGN.
//
// A process that attaches to itself gets one thread ("uprobe-session", all signals blocked) and three descriptors (500 and
// above), and nothing else of it changes: uprobe-run, which does the work, is not a child for wait() or SIGCHLD, has none of
// its descriptors, environment or terminal, and ends with it. The library's own work to deliver events makes no events, and
// counts as hits only if a definition has a condition: functions of the C library may be probed. What the test does with an
// Event, such as freeing it, does make events: with `free` probed, take events by finish().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#ifndef UPROBE_AGENT
#define UPROBE_AGENT ""  // installed with this header, or next to the running program, or in ../lib/uprobe
#endif
#ifndef UPROBE_TOOL
#define UPROBE_TOOL ""  // next to the agent, or in bin above it
#endif

namespace libuprobe {

// Why something failed, in one line. `definition` and `column` (a byte offset in it, -1: none) say what the error is about.
struct Error {
  std::string text;
  std::string definition = {};
  int column = -1;
  std::string help = {};  // what to do; may be empty

  // The complete message, with a caret under the column of the definition; lines without the last newline.
  std::string message() const;
};

// A value or an Error. Access to the one that is not there ends the program.
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

// The value that an argument of a definition fetched.
struct Value {
  enum class Kind : std::uint8_t {
    fault,            // a string that could not be read
    unsigned_number,  // u8..u64, x8..x64 and arguments without a type; unreadable memory is 0, as in ftrace
    signed_number,    // s8..s64; `number` is sign-extended
    text,             // string, ustring, char
    array,            // TYPE[N]: `elements`
  };
  Kind kind = Kind::fault;
  std::uint64_t number = 0;
  std::string text;
  bool is_cut =
      false;  // `text` is the beginning of a longer string: of more than 4,096 bytes, or without room in its ring
  std::vector<Value> elements;
};

struct Field {
  std::string name;  // "arg1" where the definition gives no name
  Value value;
};

// One hit.
struct Event {
  std::string group, name;
  std::string task;       // name of the thread
  std::uint32_t pid = 0;  // id of the thread, as in ftrace's TASK-PID
  std::uint32_t cpu = 0;
  std::uint64_t nanoseconds = 0;     // CLOCK_MONOTONIC
  std::uint64_t address = 0;         // of the probed instruction; for a return: of the function
  std::uint64_t return_address = 0;  // for a return: the address to which it returned; else 0
  std::vector<Field> fields;         // in the order of the definition

  // Null: there is no such field.
  const Value* find(std::string_view field) const;
  // Nothing: there is no such field, or it is not a number or a text.
  std::optional<std::int64_t> number(std::string_view field) const;
  std::optional<std::string> text(std::string_view field) const;
};

// A call at which a callback of the test runs: see uprobe/callback.h, which makes callbacks of functions with typed arguments.
class Call {
 public:
  bool is_return() const { return is_return_; }
  // An argument that is an integer or a pointer, and one that is a float or double, as its bytes, each counted from 0 among those of its
  // kind; the others are on the stack. Of a return: the result, whatever the number.
  std::uint64_t integer(std::size_t n) const;
  std::uint64_t floating(std::size_t n) const;
  // The 8 bytes `n` of the arguments on the stack.
  std::uint64_t stacked(std::size_t n) const;

  // At an entry: the function does not run, and returns this. At a return: it returns this.
  void give(std::uint64_t result);
  void give_floating(std::uint64_t bytes);
  // The errno that the program finds after a callback that gives a result; else its own.
  void set_error(int number) { error_ = number; }

 private:
  friend class Callbacks;
  Call(void* frame, void* state, bool is_return) : frame_(frame), state_(state), is_return_(is_return) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void* const frame_;
  void* const state_;
  const bool is_return_;
  bool has_result_ = false;
  std::optional<int> error_;
};

struct Callback {
  std::string definition;
  bool at_return = false;
  std::function<void(Call&)> run;
};

// What the callback of one definition did with its hits.
struct CallbackCounts {
  std::uint64_t called = 0;
  std::uint64_t in_signal = 0;  // not called: within a signal handler
  std::uint64_t unsure = 0;     // not called: the callers could not be followed
  std::uint64_t nested = 0;     // not called: within a callback
};

struct Options {
  std::vector<std::string> definitions = {};  // at least one, or a callback
  std::uint64_t buffer_bytes = 4u << 20;      // per ring in which hits wait; see Counts::lost
  std::string agent = UPROBE_AGENT;           // libuprobe.so
  std::string tool = UPROBE_TOOL;             // uprobe-run, for a session of a process with itself
  std::vector<Callback> callbacks = {};       // of a session of a process with itself; uprobe/callback.h
  std::string header = __FILE__;              // by its absolute path an installed agent is found, if `agent` is empty
};

// The counts of one probe.
struct Counts {
  std::string name;          // "GROUP/EVENT"
  std::uint64_t hits = 0;    // including `lost`
  std::uint64_t lost = 0;    // hits without an Event: a ring was full, the record too large, or it was read too late
  std::uint64_t missed = 0;  // returns that could not be followed
  // Hits at which a callback could not be called: under a shadow stack, or without room on the stack (uprobe/callback.h). Known at
  // the end of the session.
  std::uint64_t not_called = 0;
};

// An event of a session that runs: all places of its name.
struct EventInfo {
  std::string name;  // "GROUP/EVENT"
  bool on = false;   // at one of its places, or more
  std::uint32_t places = 0;
  std::uint64_t hits = 0, lost = 0, missed = 0;  // as in Counts, since the last reset()
  std::string format;                            // of a mark (uprobe/marker.h); else empty
};

// How the program ended. For a program that was attached to, or let go, only the fact is known.
struct Ending {
  bool signalled = false;
  int code = 0;  // exit code or signal number
};

class Tracer;  // internal

class Session {
 public:
  // Starts argv[0], found through PATH, with this process's environment and streams. Its children, and the programs that they
  // execute, are probed too. All definitions are checked first: if one is bad nothing is started. The program runs when this
  // returns.
  static Result<Session> launch(const Options& options, const std::vector<std::string>& argv);
  // Attaches to a running process and to its later children. The process is stopped for some milliseconds and runs when this
  // returns; on an Error it is as it was. Refused if another tool or session has the process. If this process is killed the
  // probes stay, harmless, until the next tool comes. The process may be this one, getpid(): with all of its threads; one
  // session at a time. Most probes are breakpoints, as in all code that runs already. Where Yama restricts ptrace, the process
  // names its tracer (PR_SET_PTRACER) during the session, and none afterwards. The session ends when the process calls exec. If
  // uprobe-run is killed the session is over, and the next session removes what has stayed.
  static Result<Session> attach(const Options& options, int pid);
  // Every call on a session that was moved away fails.
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  // Kills a launched program, unless it has ended or was let go; leaves an attached process as stop() does.
  ~Session();

  int pid() const;  // of the program

  // The oldest event that was not taken yet; hits come up to 50 ms late. Nothing: none came in time, or none will come. Events
  // that are not taken stay in memory.
  std::optional<Event> next(std::chrono::milliseconds patience);
  // The next `count` events of this name, "EVENT" or "GROUP/EVENT"; fewer where no more have come in `patience`, or will come. The
  // others that come are kept for next(), finish() and later calls.
  std::vector<Event> wait_for(std::string_view event, std::size_t count, std::chrono::milliseconds patience);
  // Waits for the end of the program, or for stop(), and returns all remaining events. A session with this process itself it
  // stops.
  std::vector<Event> finish();
  // How the program ended, once it has.
  std::optional<Ending> ending() const;

  // Changes during the run, in all processes of the session; see `uprobe-run --control`. A definition that starts with "-:"
  // deletes.
  Status add(const std::string& definition);
  Status remove(const std::string& event);   // "GROUP/EVENT", "EVENT", "GROUP/"
  Status disable(const std::string& event);  // the same names; empty: all
  Status enable(const std::string& event);
  // The counts of all probes; after the end of the session also of removed ones.
  std::vector<Counts> counts() const;

  // What the events are, and what they have counted, some 50 ms ago: a hit whose Event has come is counted. The same names. None
  // after the end of the session.
  std::vector<EventInfo> info(const std::string& event = {}) const;
  // Of Options::callbacks, in their order: also after the end of the session.
  std::vector<CallbackCounts> callback_counts() const;
  // Counts from 0 again, with Counts and EventInfo. Events that were not taken stay.
  Status reset(const std::string& event = {});

  // Removes the probes for good; the program goes on.
  void stop();

 private:
  explicit Session(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;
  std::deque<Event> kept_;  // by wait_for(), the oldest first
};

}  // namespace libuprobe
