// SPDX-License-Identifier: MIT
// A page that shows a trace in a browser, without a network and without a server: functions with their latencies, a time line of each
// thread, a flame graph, all events with a filter.
//
// The page has the hits as columns of numbers and one text, compressed, and the browser aggregates them for what is looked at. All data
// is base64: no text of the traced program is markup, and the scripts set text alone. A page is bounded: when the columns are full
// further hits are counted, and no more listed; the same holds for the values. The page says so.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"
#include "engine/pictures/calls.h"
#include "engine/pictures/counters.h"
#include "engine/pictures/deflate.h"
#include "engine/pictures/stacks.h"

namespace uprobe::format {

// Of variable length: seven bits a byte, the lowest first.
class Column {
 public:
  void add(std::uint64_t value);
  void add_signed(std::int64_t value) {
    add(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  void add_bytes(std::string_view bytes);
  std::size_t size() const { return deflater_.bytes().size(); }
  // As base64. Nothing is added afterwards.
  std::string finish();

 private:
  void compress();

  Deflater deflater_{Deflater::Form::raw};
  std::string fresh_;
};

class HtmlFormatter final : public Formatter {
 public:
  explicit HtmlFormatter(const Options& options) : options_(options), stacks_(options.symbols) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const ProcessEvent& event, Buffer&) override { threads_.learn(event); }
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  struct Event : KnownEvent {
    using KnownEvent::KnownEvent;
    std::vector<CountedField> counted;
    std::uint64_t hits = 0, calls = 0, sum = 0, min = UINT64_MAX, max = 0;  // of the calls: nanoseconds
    std::array<std::uint64_t, 64> histogram{};                              // by the number of bits
  };
  using Threads = Calls<std::uint64_t>;  // the number of the entry's row
  using Thread = Threads::Thread;

  std::uint64_t thread_number(const Thread& thread, std::string_view comm);
  void add_row(const trace::EventRecord& record, std::string_view comm, const Thread& thread, std::uint64_t link);
  void add_values(const trace::EventRecord& record);
  void add_call(std::uint16_t type, std::uint64_t latency);
  void add_about(std::span<const Total> totals, Buffer& out) const;
  void add_events(Buffer& out) const;

  const Options options_;
  std::vector<Event> events_;
  CallEvents roles_;
  std::vector<std::uint8_t> padded_;
  Threads threads_{roles_};
  StackCounts stacks_;
  std::unordered_map<std::string, std::uint64_t> thread_numbers_;
  std::vector<std::string> thread_texts_;  // JSON
  Column times_, thread_column_, types_, links_, depths_, values_, counter_rows_, counter_values_;
  std::uint64_t hits_ = 0, rows_ = 0, valued_ = 0;  // all; listed; of which the values are there
  std::uint64_t first_ = 0, last_ = 0;              // time
};

}  // namespace uprobe::format
