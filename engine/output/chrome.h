// SPDX-License-Identifier: MIT
// Trace Event JSON, for Perfetto's UI, chrome://tracing and speedscope: an array of objects.
//
// A call whose entry and return are both probed is a slice, with the values of both; every other hit is an instant. The entry
// waits for its return on a stack of its thread. A return closes the last entry of its function; the entries after that one did not
// return, or their returns are not probed, and become instants. So does the oldest entry of a thread where there are too many.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/json_values.h"
#include "engine/output/values.h"

namespace uprobe::format {

class ChromeFormatter final : public Formatter {
 public:
  explicit ChromeFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override { events_.emplace_back(layout); }
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  // An entry whose return has not come.
  struct Call {
    std::uint64_t ns, address;
    std::string name, values;  // JSON: the event, its fields without braces
  };
  struct Thread {
    std::uint32_t pid = 0;
    std::string comm;
    std::deque<Call> calls;
  };

  Thread& thread_of(const trace::EventRecord& record, std::string_view comm, Buffer& out);
  void add_call(Call call, std::uint32_t tid, Thread& thread, Buffer& out);
  void add_return(const Call& returned, std::uint32_t tid, Thread& thread, Buffer& out);
  void add_instant(const Call& call, std::uint32_t tid, std::uint32_t pid, Buffer& out);
  void begin(std::string_view kind, std::uint32_t tid, std::uint32_t pid, Buffer& out);
  void leave_all(Buffer& out);

  const Options options_;
  std::vector<KnownEvent> events_;
  std::vector<std::uint8_t> padded_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::uint64_t last_ = 0;  // time
  bool has_begun_ = false;
};

}  // namespace uprobe::format
