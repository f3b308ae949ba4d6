// SPDX-License-Identifier: MIT
// A folder in the Common Trace Format 1.8, which babeltrace2 and Trace Compass open: `metadata` describes the events
// (ctf_metadata.h), and `cpu_N` has those of one processor, in packets that are written as they fill.
//
//   packet  [ u32 magic | u32 stream, 0 | u64 first time | u64 last time | u64 bits used | u64 bits | u64 events lost so far | u32 cpu |
//             events ]
//   event   [ u32 number | u64 time | u32 process | u32 thread | name of the task, 0 | u8 changed | fields ]      nothing is aligned
//
// `changed` is there where triggers may change the program: 1 where one has.
//
// Times of a file do not go back: a record that comes too late is in a further file of its processor, `cpu_N_2`, which readers merge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/export/ctf_metadata.h"
#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

class CtfFormatter final : public Formatter {
 public:
  explicit CtfFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void flush(Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  // A file.
  struct Stream {
    std::string name;
    std::uint32_t cpu = 0;
    std::uint64_t first = 0, last = 0;  // times of the packet at hand; `last` also of those before it
    std::uint64_t lost = 0;
    std::string events;  // of the packet at hand
  };

  Stream* stream_for(const trace::EventRecord& record);
  void add_head(Stream& stream, const trace::EventRecord& record, std::uint32_t number, std::string_view comm);
  void add_fields(std::string& bytes, const CtfEvent& event, const trace::EventRecord& record);
  void add_value(std::string& bytes, const program::Field& field, const Value& value, const trace::EventRecord& record);
  void add_string(std::string& bytes, std::string_view text) const;
  void add_stack(Stream& stream, const trace::EventRecord& record, std::string_view comm);
  void add_losses(std::span<const Total> totals);
  void write_packet(Stream& stream);
  void write_metadata();

  const Options options_;
  std::vector<CtfEvent> events_;
  std::size_t described_ = 0;  // of the events, in the metadata
  bool has_metadata_ = false;
  std::vector<std::vector<Stream>> streams_;  // by processor
  std::vector<std::uint8_t> padded_;
  trace::EventRecord last_;      // its numbers alone
  std::uint64_t unwritten_ = 0;  // records for which the format has no room
};

}  // namespace uprobe::format
