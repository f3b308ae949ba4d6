// SPDX-License-Identifier: MIT
// A profile as pprof reads it: gzip'd profile.proto (github.com/google/pprof/blob/main/proto/profile.proto).
//
// A sample is a stack with how often it was hit and, where latencies were recorded, the nanoseconds that calls spent there
// outside of the recorded calls inside of them, so that sums count no time twice. A call is one hit: its return adds the time. A hit
// without a stack has the open calls of its thread (calls.h) as frames.
//
// Addresses are offsets in files, each file in a range of its own: processes may have mapped it anywhere.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"
#include "engine/pictures/calls.h"
#include "engine/pictures/protobuf.h"

namespace uprobe::format {

class PprofFormatter final : public Formatter {
 public:
  explicit PprofFormatter(const Options& options);

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const ProcessEvent& event, Buffer&) override { threads_.learn(event); }
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  struct Counts {
    std::uint64_t hits = 0, nanoseconds = 0;
  };
  struct Open {
    std::size_t sample = 0;
    std::uint64_t inside = 0;  // nanoseconds of the calls inside
  };
  using Threads = Calls<Open>;
  struct Mapping {
    std::uint64_t number = 0;
    std::string build_id;
  };

  std::uint64_t text(std::string_view text);
  std::uint64_t function_of(const std::string& name, const std::string& file);
  std::uint64_t location_of(const std::string& name, const CodePlace& place);
  std::uint64_t mapping_of(const CodePlace& place);
  std::vector<std::uint64_t> locations_of(const trace::EventRecord& record, const Threads::Thread& thread);
  std::size_t sample_of(const std::vector<std::uint64_t>& locations, std::string_view comm);
  void end_call(const Threads::Call& call, std::uint64_t ns, Threads::Thread& thread);
  void add_latency(const trace::EventRecord& record, std::size_t sample);
  void add_samples(ProtobufWriter& profile) const;
  void add_mappings(ProtobufWriter& profile);

  const Options options_;
  std::vector<KnownEvent> events_;
  std::vector<std::uint64_t> event_locations_;
  CallEvents roles_;
  std::vector<std::uint8_t> padded_;
  Threads threads_{roles_};
  std::unordered_map<std::string, std::uint64_t> texts_, functions_, locations_;
  std::vector<std::string> strings_;
  std::map<std::string, Mapping> mappings_;
  std::unordered_map<std::string, std::size_t> numbers_;  // of samples, by their key
  std::vector<std::string> samples_;                      // location ids and labels, as written
  std::vector<Counts> values_;
  ProtobufWriter function_messages_, location_messages_;
  std::size_t bytes_ = 0;
  std::uint64_t rest_ = 0;              // the location of all that is too much
  std::uint64_t first_ = 0, last_ = 0;  // time
  bool has_times_ = false;
};

}  // namespace uprobe::format
