// SPDX-License-Identifier: MIT
// What stands before the pages of a trace.dat of version 6 (trace-cmd's trace.dat.v6(5)). Numbers are little-endian.
//
//   17 08 44 "tracing6" 0 | u8 little-endian: 0 | u8 bytes of a long | u32 bytes of a page
//   "header_page" 0 | u64 bytes, text | "header_event" 0 | u64 bytes, text
//   u32 formats of ftrace | u32 systems: name 0, u32 events: u64 bytes, format file
//   u32 bytes, addresses of the kernel | u32 bytes, printk formats | u64 bytes, lines "TID NAME"
//   u32 processors | "options  " 0: u16 number, u32 bytes, contents; u16 0 | "flyrecord" 0 | u64 begin, u64 bytes of each
//   u64 bytes, clocks once more
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/export/page_file.h"

namespace uprobe::format {

class TraceDatHead {
 public:
  // Events of the tool's own.
  enum OwnEvent : std::uint16_t { lost = 64, user_stack = 65, first_free = 66 };

  // A further event; 0: there are no numbers any more.
  std::uint16_t next_id() { return next_ == 0 ? std::uint16_t{0} : next_++; }
  void add_format(const std::string& group, std::string format_file) {
    formats_[group].push_back(std::move(format_file));
  }
  // A later name of the task takes the place of the earlier one.
  void name_task(std::uint32_t tid, std::string_view comm);

  std::string bytes(std::string_view clock, std::span<const PageFile::Part> parts) const;

 private:
  std::uint16_t next_ = first_free;
  std::map<std::string, std::vector<std::string>> formats_;  // by group
  std::unordered_map<std::uint32_t, std::string> names_;     // by thread
};

// The records of the tool's own events.
std::string lost_record(std::string_view event, std::uint64_t hits, std::uint64_t returns);
// Of an event that has a text alone, and the format of one.
std::string text_record(std::uint16_t type, std::uint32_t tid, std::string_view text);
std::string text_event_format(std::string_view name, std::uint16_t id);

}  // namespace uprobe::format
