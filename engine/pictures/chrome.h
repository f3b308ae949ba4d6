// SPDX-License-Identifier: MIT
// Trace Event JSON, for Perfetto's UI, chrome://tracing and speedscope: an array of objects.
//
// A call whose entry and return are both recorded (calls.h) is a slice, with the values of both; every other hit is an instant.
// Fields that are counters have a track of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/json_values.h"
#include "engine/output/values.h"
#include "engine/pictures/calls.h"
#include "engine/pictures/counters.h"

namespace uprobe::format {

class ChromeFormatter final : public Formatter {
 public:
  explicit ChromeFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const ProcessEvent& event, Buffer&) override { threads_.learn(event); }
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  struct Shown {
    std::uint32_t pid = 0;
    std::string comm;
  };
  using Threads = Calls<std::string, Shown>;  // JSON: the fields of an entry without braces
  using Thread = Threads::Thread;
  using Call = Threads::Call;

  void name_thread(Thread& thread, std::string_view comm, Buffer& out);
  void add_slice(const Call& call, std::uint64_t ns, const std::string& values, const Thread& thread, Buffer& out);
  void add_instant(const Call& call, const Thread& thread, Buffer& out);
  void add_counters(const trace::EventRecord& record, const Thread& thread, Buffer& out);
  void begin(std::string_view kind, std::uint32_t tid, std::uint32_t pid, Buffer& out);

  const Options options_;
  std::vector<KnownEvent> events_;
  std::vector<std::string> names_;  // of the events, as JSON
  std::vector<std::vector<CountedField>> counted_;
  CallEvents roles_;
  std::vector<std::uint8_t> padded_;
  Threads threads_{roles_};
  std::uint64_t last_ = 0;  // time
  bool has_begun_ = false;
};

}  // namespace uprobe::format
