// SPDX-License-Identifier: MIT
// Writes a recording: records as they are, with what is needed to print them later on another machine. Names of code addresses
// and stacks are looked up here, while the processes live and their files are there; everything else is copied. Runs of a ring's
// records go as they are into a lane of that ring.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"
#include "engine/recording/course_entries.h"
#include "engine/recording/file_format.h"
#include "engine/recording/packing.h"

namespace uprobe::recording {

class Recorder final : public format::Formatter {
 public:
  // `limit`: of the file, in bytes; 0: none.
  explicit Recorder(const format::Options& options, std::uint64_t limit = 0) : options_(options), limit_(limit) {}

  void add(const program::EventLayout& layout) override;
  void header(format::Buffer&) override { has_header_ = true; }
  void append(const trace::EventRecord& record, std::string_view comm, format::Buffer& out) override;
  // No name is looked up for records in runs.
  bool takes_runs() const override { return options_.symbols == nullptr; }
  void append_run(const trace::RecordRun& run, format::Buffer& out) override;
  void clocks(const trace::ClockReading& reading, format::Buffer& out) override;
  bool wants_course() const override { return true; }
  void process(const format::ProcessEvent& event, format::Buffer& out) override;
  void loss(const format::LossSoFar& loss, format::Buffer& out) override;
  bool wants_mappings() const override { return true; }
  void mappings(const format::ProcessMappings& mappings, format::Buffer& out) override;
  void flush(format::Buffer& out) override;
  void begin_file() override;
  bool is_full() const override {
    return has_too_many_events_ || (limit_ != 0 && bytes_ + largest_ + kBlockBytes > limit_);
  }
  std::string_view why_full() const override;
  void end(std::span<const format::Total> totals, format::Buffer& out) override;

 private:
  struct Event : format::KnownEvent {
    using KnownEvent::KnownEvent;
    bool shows_caller = false, shows_symbols = false;
  };

  void open_block(format::Buffer& out, std::uint32_t lane = 0);
  void close_block(format::Buffer& out);
  void drop_entry(std::size_t entry, format::Buffer& out);
  void end_entry(format::Buffer& out);
  void add_settings(format::Buffer& out) const;
  void add_new_events(format::Buffer& out);
  void add_hit(const trace::EventRecord& record, std::string_view comm, std::span<const std::uint8_t> stack,
               format::Buffer& out) const;
  void add_symbols(const Event& event, const trace::EventRecord& record, format::Buffer& out);
  void add_stack(const trace::EventRecord& record, format::Buffer& out);
  void add_course(format::Buffer& out);
  void keep(const format::ProcessMappings& mappings);
  void repeat_mappings();

  const format::Options options_;
  const std::uint64_t limit_;
  std::uint64_t bytes_ = 0;              // of all blocks that are whole
  std::uint64_t largest_ = kBlockBytes;  // of the blocks so far
  bool has_header_ = false, has_begun_ = false, is_open_ = false;
  std::size_t block_ = 0;   // where its head is in the buffer
  std::uint32_t lane_ = 0;  // to which it belongs
  Packer packer_;
  std::vector<Event> events_;
  std::size_t written_ = 0, fitting_ = 0;  // of the events
  std::uint64_t described_ = 0;            // bytes of their descriptions
  bool has_too_many_events_ = false;       // for a reader to take
  std::vector<std::uint8_t> padded_, stack_;
  std::vector<CourseItem> course_;                           // until the next flush
  std::map<std::uint32_t, format::ProcessMappings> mapped_;  // by process that is there, for the next file
};

}  // namespace uprobe::recording
