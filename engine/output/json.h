// SPDX-License-Identifier: MIT
// JSON lines: an object a line for each record, for what happens to a process, and for losses (docs/output.md has the schema).
//
//   {"time":12.345678901,"cpu":0,"pid":1,"tid":1,"comm":"zsh","group":"uprobes","event":"f","address":"0x401136",
//    "args":{"name":"a","k":3,"v":[1,-2,3]}}
#pragma once

#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/json_values.h"
#include "engine/output/values.h"

namespace uprobe::format {

class JsonFormatter final : public Formatter {
 public:
  explicit JsonFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const ProcessEvent& event, Buffer& out) override;
  void loss(const LossSoFar& loss, Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  // Text that is the same in each line.
  struct Event : KnownEvent {
    using KnownEvent::KnownEvent;
    std::string names;  // ,"group":"uprobes","event":"f","address":"
  };

  void add_json_time(std::uint64_t ns, Buffer& out) const;
  // {"type":"end","time":1.000000000
  void begin_object(std::string_view type, std::uint64_t ns, Buffer& out) const;
  void add_place(const Event& event, const Values& values, const trace::EventRecord& record, Buffer& out) const;
  void add_stack(const trace::EventRecord& record, Buffer& out) const;
  static void add_names(std::string_view key, const std::vector<std::string_view>& names, Buffer& out);

  const Options options_;
  std::vector<Event> events_;
  std::vector<std::uint8_t> padded_;
  JsonMarks marks_;  // of the record at hand
};

}  // namespace uprobe::format
