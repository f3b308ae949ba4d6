// SPDX-License-Identifier: MIT
// A trace.dat of version 6, as trace-cmd writes it: `trace-cmd report`, KernelShark and what else has libtracecmd open it.
//
//   head    magic, formats (trace_dat_head.h), names of tasks, options, for each processor: where its pages are
//   pages   of each processor, in the kernel's encoding (ring_page.h, page_file.h)
//
// The file is whole when the session has ended: the head is written last. Records that are lost are known then, and only by their
// event: the last page says how many, as the kernel does, and has an event `uprobe_run:lost` for each event with losses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/export/page_file.h"
#include "engine/export/raw_event.h"
#include "engine/export/ring_page.h"
#include "engine/export/trace_dat_head.h"
#include "engine/output/formatter.h"

namespace uprobe::format {

class TraceDatFormatter final : public Formatter {
 public:
  explicit TraceDatFormatter(const Options& options) : options_(options), pages_(options.files) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  // As an event of its name in the group `merged`, whose only field is its text.
  void foreign(const ForeignEvent& event, Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 private:
  bool has_id(RawEvent& event, RawEvent::Form form);
  std::uint16_t foreign_id(std::string_view name);
  void add_record(const trace::EventRecord& record, std::string_view bytes);
  void add_stack(const trace::EventRecord& record);
  void add_losses(std::span<const Total> totals);
  void write_page(std::uint32_t cpu, std::uint64_t lost = 0);
  void write_head();

  const Options options_;
  std::vector<RawEvent> events_;
  std::map<std::string, std::uint16_t> foreign_;  // numbers of foreign events
  TraceDatHead head_;
  PageFile pages_;
  std::vector<RingPage> open_;   // by processor
  std::uint64_t unwritten_ = 0;  // records for which the format has no room
  trace::EventRecord last_;      // its numbers alone
};

}  // namespace uprobe::format
