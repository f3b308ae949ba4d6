// SPDX-License-Identifier: MIT
// Comma-separated values (RFC 4180, but lines end with \n alone): time,cpu,pid,tid,comm,event, then a column for each name of a
// field that an event of the session's beginning has.
//
// Where triggers may change the program the last column is `changed`: "true" where one has, else empty.
//
// A cell has the characters of ftrace's text: "0x1f", "{1,2}", "(fault)", a string without quotes, with three dots after it where
// it was cut. A field that the event does not have is an empty cell, and so is the process of a thread that ended too early to be
// looked at.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/output/values.h"

namespace uprobe::format {

// Every row has a cell for each name of a field: a small recording with very many of them would become a huge text.
inline constexpr std::size_t kMostCsvFields = 1024;
// Code::limit where the events have more names of fields than that.
Status check_csv_fields(std::span<const program::EventLayout> events);

class CsvFormatter final : public Formatter {
 public:
  explicit CsvFormatter(const Options& options) : options_(options) {}

  void add(const program::EventLayout& layout) override;
  void header(Buffer& out) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;

 private:
  struct Event : KnownEvent {
    using KnownEvent::KnownEvent;
    std::string name;                  // as a cell
    std::vector<std::size_t> columns;  // of each field
  };

  std::size_t column_of(const std::string& name);

  const Options options_;
  std::vector<std::string> columns_;
  std::vector<Event> events_;
  std::vector<std::uint8_t> padded_;
  std::vector<const program::Field*> fields_;  // of the record at hand, by column
  Buffer cell_;
};

}  // namespace uprobe::format
