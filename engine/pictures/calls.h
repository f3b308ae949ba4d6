// SPDX-License-Identifier: MIT
// Pairs the entries of functions with their returns, thread by thread, for all formats that show calls.
//
// An entry waits for its return on a stack of its thread. A return ends the last call of its function there; the calls inside of that
// one were left by an exception or a longjmp, or their returns were not recorded (a filter, a loss). Of several events at one
// function's entry the first one begins calls, and so for returns; the others are hits. A successful execve leaves all calls that its
// process began before, and a thread's number that another process has now leaves those of the thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/output/course.h"
#include "engine/output/values.h"
#include "engine/program/layout.h"
#include "engine/trace/event_record.h"

namespace uprobe::format {

// The name of the function at whose entry or return the event is, as tools print it; else the event's.
std::string shown_name(const program::EventLayout& layout);

// The value of a field $latency of a return, if it was recorded under that name.
std::optional<std::uint64_t> recorded_latency(const KnownEvent& event, Values& values);

class CallEvents {
 public:
  enum class Role : std::uint8_t {
    hit,    // neither
    entry,  // of a function whose return has an event, too
    exit,   // likewise
  };

  // The next type. Roles may change with it.
  void add(const program::EventLayout& layout);
  Role role(std::uint16_t type) const;
  // The same number for the entry and the return of a function.
  std::uint32_t function(std::uint16_t type) const { return events_[type].function; }
  // Whether the function replaces the thread's program, and returns only where it fails.
  bool replaces_program(std::uint16_t type) const { return events_[type].is_exec; }

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  struct Function {
    std::uint16_t entry = kNone, exit = kNone;  // types
  };
  struct Event {
    std::uint32_t function = 0;  // 0: none
    bool is_exec = false;
  };
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<Function> functions_ = std::vector<Function>(1);
  std::vector<Event> events_;
};

struct Nothing {};

// `Data`: what a format keeps of an entry; `More`: what it keeps of a thread.
template <class Data, class More = Nothing>
class Calls {
 public:
  static constexpr std::size_t kMostThreads = 65536, kMostCalls = 1024;  // that wait, of all threads and of one
  static constexpr std::size_t kMostExecs = 65536;

  struct Call {
    std::uint64_t ns = 0;
    std::uint16_t type = 0;
    Data data;
  };
  struct Thread {
    std::uint32_t tid = 0, pid = 0;  // a process that is not known is taken to be the thread
    bool knows_process = false;
    std::deque<Call> open;      // the outermost first
    std::size_t forgotten = 0;  // calls around those that were too many to wait
    More more = {};
  };

  // Must outlive it, and know the types of all records.
  explicit Calls(const CallEvents& events) : events_(events) {}

  // The thread of a record. In all functions `left(thread, call)` gets each call that ends without a return, the innermost
  // first.
  template <class Left>
  Thread& thread_of(const trace::EventRecord& record, const Left& left) {
    if (threads_.size() >= kMostThreads && !threads_.contains(record.tid)) leave_all(left);
    Thread& thread = threads_[record.tid];
    thread.tid = record.tid;
    if (record.pid != 0 && thread.knows_process && record.pid != thread.pid) leave(thread, 0, left);
    if (record.pid != 0) thread.knows_process = true;
    if (record.pid != 0 || thread.pid == 0) thread.pid = record.pid != 0 ? record.pid : record.tid;
    if (!thread.open.empty() && has_replaced_program(thread.open.back().type, record.type)) leave(thread, 0, left);
    if (!execs_.empty()) leave_replaced(thread, record.ns, left);
    return thread;
  }
  // An execve is kept until a record of its process has come that is later.
  void learn(const ProcessEvent& event) {
    if (event.kind != ProcessEvent::Kind::exec) return;
    if (execs_.size() >= kMostExecs) execs_.clear();
    execs_.emplace(event.pid, event.ns);
  }
  // If too many calls wait, the outermost one is left.
  template <class Left>
  void enter(Thread& thread, Call call, const Left& left) {
    if (thread.open.size() >= kMostCalls) {
      left(thread, thread.open.front());
      thread.open.pop_front();
      ++thread.forgotten;
    }
    thread.open.push_back(std::move(call));
  }
  // The call that a return of that type ends. Nothing: its entry was not recorded.
  template <class Left>
  std::optional<Call> end_of(Thread& thread, std::uint16_t type, const Left& left) {
    const std::uint32_t function = events_.function(type);
    std::size_t depth = thread.open.size();
    while (depth != 0 && events_.function(thread.open[depth - 1].type) != function) --depth;
    if (depth == 0) return std::nullopt;
    leave(thread, depth, left);
    Call call = std::move(thread.open.back());
    thread.open.pop_back();
    return call;
  }
  template <class Left>
  void leave_all(const Left& left) {
    for (auto& [tid, thread] : threads_) leave(thread, 0, left);
    threads_.clear();
  }

 private:
  // Leaves the calls of earlier programs, now that a record of a later one has come. An execve may be told of after the new program has
  // begun calls: then it waits until they have returned.
  template <class Left>
  void leave_replaced(Thread& thread, std::uint64_t now, const Left& left) {
    std::uint64_t latest = 0;
    const auto [first, end] = execs_.equal_range(thread.pid);
    for (auto exec = first; exec != end; ++exec)
      if (exec->second <= now) latest = std::max(latest, exec->second);
    if (latest == 0 || (!thread.open.empty() && thread.open.back().ns > latest)) return;
    for (auto exec = first; exec != end;) exec = exec->second <= latest ? execs_.erase(exec) : std::next(exec);
    leave(thread, 0, left);
  }
  template <class Left>
  static void leave(Thread& thread, std::size_t depth, const Left& left) {
    if (depth == 0) thread.forgotten = 0;
    while (thread.open.size() > depth) {
      const Call call = std::move(thread.open.back());
      thread.open.pop_back();
      left(thread, call);
    }
  }
  // Nothing but the return of a failed execve comes after its entry.
  bool has_replaced_program(std::uint16_t last, std::uint16_t now) const {
    const bool is_return =
        events_.role(now) == CallEvents::Role::exit && events_.function(now) == events_.function(last);
    return events_.replaces_program(last) && !is_return;
  }

  const CallEvents& events_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::unordered_multimap<std::uint32_t, std::uint64_t> execs_;  // when, by process
};

}  // namespace uprobe::format
