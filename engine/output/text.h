// SPDX-License-Identifier: MIT
// ftrace's trace text: the header and one line per record, as the kernel's uprobe events print them.
//
//          TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
//            zsh-10064   [001] .....  1370.652542: e: (0x564be9bf4d41) u=1 str="two words"
//
// A record with a stack is followed by a second one in the format of the kernel's user stack traces, with names of functions if
// known:
//
//            zsh-10064   [001] .....  1370.652542: <user stack trace>
//  => zalloc+0x0
//
// Made for millions of lines a second: text that is the same in each line of an event is prepared, and a line is built in a
// buffer whose size is checked before it begins.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/lex/print_format.h"
#include "engine/output/formatter.h"
#include "engine/output/symbols.h"
#include "engine/program/layout.h"
#include "engine/shared/string_data.h"

namespace uprobe::format {

class TextFormatter final : public Formatter {
 public:
  // layouts[i] is for records of type i; several may have the same name. They are needed only during the call.
  explicit TextFormatter(std::span<const program::EventLayout> layouts, Options options = {});

  void add(const program::EventLayout& layout) override { events_.push_back(plan_event(layout)); }
  void header(Buffer& out) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;

 private:
  // Text that is the same in each line. Most pieces are short, and are copied at a fixed size.
  struct Piece {
    Piece() = default;
    explicit Piece(std::string_view text);
    char* put_to(char* at) const;

    std::array<char, 24> bytes = {};
    std::string long_text;  // if it does not fit into `bytes`
    std::size_t size = 0;
  };
  // A field, and how it prints.
  struct FieldPlan {
    Piece prefix;  // " name=", " name=0x", " name={"
    program::Kind kind;
    std::uint8_t size;
    std::uint32_t offset;
    std::uint32_t elements;  // at least 1
    bool is_array;
    bool is_bare;                                     // neither quotes nor braces nor 0x
    bool is_text;                                     // an array of characters as one string
    bool is_wide;                                     // two words as one number
    bool of_entry;                                    // program::Field
    std::optional<spec::Conversion> conversion = {};  // it prints as that
  };
  struct EventPlan {
    Piece prefix;  // ": event: (0x"
    Piece middle;  // in the other styles: the text after the caller's name
    program::Style style = program::Style::event;
    bool is_return = false;
    std::uint32_t needed = 0;    // bytes of payload that the fields take up
    std::size_t line_bytes = 0;  // the longest line without strings and task
    std::vector<FieldPlan> fields;
    Piece after;  // the text after the fields
  };
  // "            task-tid     [": the same for thousands of lines.
  struct TaskPlan {
    std::uint32_t tid = 0;
    std::string comm;
    std::string text;
  };
  // "CPU] .....  SECONDS.": the same until the second is over.
  struct SecondPlan {
    std::uint16_t cpu = 0;
    std::uint64_t begin = 0;  // microseconds
    Piece text;
  };
  // The payload of a line. The strings of one line together can be no longer than the payload, although hostile locators could
  // name the same bytes again and again.
  struct Payload {
    const std::uint8_t* bytes;
    std::uint32_t size;
    std::uint32_t fixed;
    std::uint32_t string_budget;
    const trace::EventRecord* record;
  };

  EventPlan plan_event(const program::EventLayout& layout) const;
  void plan_place(const program::EventLayout& layout, EventPlan& plan) const;
  void plan_field(const program::Field& field, bool is_first, EventPlan& plan) const;
  static void plan_format(const program::EventLayout& layout, EventPlan& plan);
  const std::string& task_text(std::uint32_t tid, std::string_view comm);
  char* put_text(char* at, std::string_view text) const;
  std::string shown(const std::string& name) const;
  char* put_cpu_and_time(char* at, std::uint16_t cpu, std::uint64_t ns);
  char* put_field(char* at, const FieldPlan& field, Payload& payload) const;
  char* put_converted(char* at, const FieldPlan& field, const std::uint8_t* value, Payload& payload) const;
  char* put_characters(char* at, const spec::Conversion& conversion, std::string_view text) const;
  static char* put_wide_value(char* at, const FieldPlan& field, const std::uint8_t* value);
  static char* put_missing(char* at, const FieldPlan& field);
  char* put_characters(char* at, const FieldPlan& field, const std::uint8_t* value) const;
  char* put_value(char* at, const FieldPlan& field, const std::uint8_t* value, Payload& payload) const;
  char* put_string(char* at, const std::uint8_t* locator, const FieldPlan& field, Payload& payload) const;
  void append_stack(const trace::EventRecord& record, std::string_view comm, Buffer& out);
  char* put_place(char* at, const EventPlan& event, const Payload& payload) const;
  char* put_caller(char* at, std::uint64_t address, const Payload& payload) const;
  char* put_symbol(char* at, std::uint64_t address, bool is_bare, const Payload& payload) const;

  Options options_;
  std::vector<EventPlan> events_;
  std::array<TaskPlan, 64> tasks_;
  std::array<SecondPlan, 8> seconds_;
  std::vector<std::uint8_t> padded_;  // for a payload that is too short
};

}  // namespace uprobe::format
