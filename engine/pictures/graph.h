// SPDX-License-Identifier: MIT
// Calls as a tree for each thread, in lines that are indented by depth:
//
//             prog-24290     12604.252771               work(n=2) {
//             prog-24290     12604.252780      1.250 us   work(n=1) = 1
//             prog-24290     12604.252790     19.000 us } = 2 /* work */
//
// A call inside which nothing was recorded is one line. So the line of an entry waits until its thread goes on. Other hits are lines
// of their own. A call that ends without a recorded return (calls.h) is closed, and the line says so.
//
// With a least latency the lines of an outermost call wait until the call has lasted that long; those of shorter ones are dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"
#include "engine/pictures/calls.h"

namespace uprobe::format {

class GraphFormatter final : public Formatter {
 public:
  explicit GraphFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override;
  void header(Buffer& out) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const ProcessEvent& event, Buffer&) override { threads_.learn(event); }
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  struct Event : KnownEvent {
    using KnownEvent::KnownEvent;
    std::string name;
  };
  struct State {
    std::string task;
    bool is_waiting = false;  // the line of the innermost call
    bool is_shown = false;    // the outermost call has lasted long enough
    std::string held;         // lines of that call until then
    std::uint64_t dropped = 0;
  };
  using Threads = Calls<std::string, State>;  // "name(values)" of an entry
  using Thread = Threads::Thread;
  using Call = Threads::Call;

  struct Line {
    std::uint64_t ns;
    std::optional<std::uint64_t> latency;
    std::size_t depth;
  };
  void add_line(const Line& line, std::string_view text, Thread& thread, Buffer& out);
  void hold(std::string_view line, State& state);
  void show_held(Thread& thread, Buffer& out);
  void forget_held(State& state);
  void show_if_long(std::uint64_t latency, Thread& thread, Buffer& out);
  void begin_call(Thread& thread, Buffer& out);
  void end_call(const Call& call, std::uint64_t ns, const std::string& result, Thread& thread, Buffer& out);
  void leave_call(const Call& call, Thread& thread, Buffer& out);
  void add_hit(const trace::EventRecord& record, Values& values, Thread& thread, Buffer& out);
  std::string call_text(const trace::EventRecord& record, Values& values) const;
  std::string result_text(const trace::EventRecord& record, Values& values) const;
  std::string values_text(const trace::EventRecord& record, Values& values) const;
  std::string task_text(std::uint32_t tid, std::string_view comm) const;

  const Options options_;
  std::vector<Event> events_;
  CallEvents roles_;
  std::vector<std::uint8_t> padded_;
  Threads threads_{roles_};
  std::uint64_t last_ = 0;  // time
  std::size_t held_ = 0;    // bytes, of all threads
};

}  // namespace uprobe::format
