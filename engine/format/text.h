// ftrace's trace text: the header and one line per record, as the kernel's uprobe events print them.
//
//          TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
//            zsh-10064   [001] .....  1370.652542: e: (0x564be9bf4d41) u=1 str="two words"
//
// Meant for millions of lines a second: everything that is the same in each line of an event is prepared, and a line is
// built in a buffer that is large enough before it starts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/format/formatter.h"
#include "engine/program/layout.h"

namespace uprobe::format {

struct TextOptions {
  bool escape_control = false;  // for a terminal; else every byte is printed as it is, as the kernel does
};

class TextFormatter final : public Formatter {
 public:
  // layouts[i] is that of the records of type i; several may have the same name. They need not live on.
  explicit TextFormatter(std::span<const program::EventLayout> layouts, TextOptions options = {});

  void header(std::string& out) override;
  void append(const trace::EventRecord& record, std::string_view comm, std::string& out) override;

 private:
  // A field and how it prints.
  struct FieldPlan {
    std::string prefix;  // " name="
    program::Kind kind;
    std::uint8_t size;
    std::uint32_t offset;
    std::uint32_t elements;  // at least 1
    bool is_array;
  };
  struct EventPlan {
    std::string prefix;  // ": event: (0x"
    bool is_return = false;
    std::uint32_t needed = 0;    // bytes of payload that the fields take up
    std::size_t line_bytes = 0;  // the longest line without strings and task
    std::vector<FieldPlan> fields;
  };
  // "            task-tid     [": the same for thousands of lines.
  struct TaskPlan {
    std::uint32_t tid = 0;
    std::string comm;
    std::string text;
  };
  // A payload under way: the strings of one line can be no longer than the payload that they come from, although
  // hostile locators could name the same bytes again and again.
  struct Payload {
    const std::uint8_t* bytes;
    std::uint32_t size;
    std::uint32_t fixed;
    std::uint32_t string_budget;
  };

  EventPlan plan_event(const program::EventLayout& layout) const;
  const std::string& task_text(std::uint32_t tid, std::string_view comm);
  char* reserve(std::size_t bytes);
  char* put_text(char* at, std::string_view text) const;
  char* put_field(char* at, const FieldPlan& field, Payload& payload) const;
  char* put_value(char* at, const FieldPlan& field, const std::uint8_t* value, Payload& payload) const;
  char* put_string(char* at, const std::uint8_t* locator, Payload& payload) const;

  TextOptions options_;
  std::vector<EventPlan> events_;
  std::array<TaskPlan, 64> tasks_;
  std::unique_ptr<char[]> line_;
  std::size_t line_bytes_ = 0;
  std::vector<std::uint8_t> padded_;  // a payload that was too short
};

}  // namespace uprobe::format
