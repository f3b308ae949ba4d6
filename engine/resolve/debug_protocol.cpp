// SPDX-License-Identifier: MIT
#include "engine/resolve/debug_protocol.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/spec/fetch.h"
#include "engine/spec/type.h"

namespace uprobe {
namespace {

using dwarf::CodeLine;
using dwarf::NamedVariable;
using spec::Argument;
using spec::Step;
using spec::StepKind;

CodeLine take_line(Parser& from) {
  CodeLine line{.file = from.text(), .line = static_cast<int>(from.number())};
  return line;
}

NamedVariable take_variable(Parser& from) {
  NamedVariable variable{.name = from.text(), .type = from.text(), .problem = from.text()};
  variable.is_parameter = from.number() != 0;
  return variable;
}

dwarf::InlinedCopy take_copy(Parser& from) {
  dwarf::InlinedCopy copy{.address = from.long_number()};
  copy.is_clone = from.number() != 0;
  copy.number = from.number();
  copy.problem = from.text();
  return copy;
}

bool is_step_of_variable(StepKind kind) {
  return kind == StepKind::reg || kind == StepKind::constant || kind == StepKind::file_offset ||
         kind == StepKind::dereference || kind == StepKind::add || kind == StepKind::shift_right ||
         kind == StepKind::vector || kind == StepKind::thread_pointer || kind == StepKind::keep ||
         kind == StepKind::add_kept || kind == StepKind::length || kind == StepKind::add_thread_pointer ||
         kind == StepKind::thread_data;
}

constexpr std::uint64_t kWidest = 8;

bool are_of_variable(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (!is_step_of_variable(step.kind)) return false;
    if (step.kind == StepKind::reg && static_cast<std::uint32_t>(step.reg) >= shared::kRegCount) return false;
    if (step.kind == StepKind::vector && step.value >= shared::kVectorCount) return false;
    if (step.kind == StepKind::shift_right && step.value >= 8 * kWidest) return false;
  }
  return true;
}

// Checks values that the rest of the tool relies on, because the real reader never sends others.
bool makes_sense(const Argument& argument) {
  const bool is_size = argument.size == 1 || argument.size == 2 || argument.size == 4 || argument.size == kWidest;
  const bool fits = argument.bit_width + argument.bit_offset <= 8 * argument.size;
  if (!is_size || !fits || argument.count > spec::kMaxArray) return false;
  if (argument.sink != spec::Sink::value && argument.sink != spec::Sink::memory) return false;
  const bool is_whole = !argument.is_wide && !argument.upper;
  if (!is_whole && !spec::can_be_wide(argument.kind, argument.size, argument.count)) return false;
  return are_of_variable(argument.steps) && (!argument.upper || are_of_variable(argument.upper->steps));
}

// The bytes that are there limit the list, even if the count is larger.
template <class Item, class Take>
std::vector<Item> take_list(Parser& from, const Take& take_one) {
  std::vector<Item> list;
  for (std::uint32_t left = from.number(); left != 0 && from.good(); --left) list.push_back(take_one(from));
  return list;
}

// An error about a variable may carry a column in its name, and nothing else.
Error take_modest_error(Parser& words) {
  constexpr int kMostColumns = 1 << 16;
  Error error = take_error(words);
  error.where.clear(), error.definition = -1;
  error.column = std::clamp(error.column, -1, kMostColumns);
  return error;
}

// No value: the answer is malformed.
template <class Value, class Take>
Result<Value> decode(std::string_view answer, const std::string& path, const Take& take_value) {
  Parser words(answer);
  if (words.kind(Answer::value) == Answer::error) {
    Error error = take_modest_error(words);
    if (words.is_done()) return error;
  } else {
    std::optional<Value> value = take_value(words);
    if (value && words.is_done()) return std::move(*value);
  }
  return about_debug_information(path, {.code = Code::damaged, .text = "its reader sent a malformed answer"});
}

}  // namespace

Error about_debug_information(const std::string& path, Error error) {
  error.text = path + ": its debug information: " + error.text;
  return error;
}

std::string question(Question which) {
  std::string request;
  put(request, static_cast<std::uint32_t>(which));
  return request;
}

std::string question(Question which, std::uint64_t address) {
  std::string request = question(which);
  put_long(request, address);
  return request;
}

void put(std::string& to, const CodeLine& line) {
  put(to, std::string_view(line.file));
  put(to, static_cast<std::uint32_t>(line.line));
}

void put(std::string& to, const NamedVariable& variable) {
  for (const std::string* text : {&variable.name, &variable.type, &variable.problem}) put(to, std::string_view(*text));
  put(to, static_cast<std::uint32_t>(variable.is_parameter));
}

void put(std::string& to, const dwarf::InlinedCopy& copy) {
  put_long(to, copy.address);
  put(to, static_cast<std::uint32_t>(copy.is_clone));
  put(to, copy.number);
  put(to, std::string_view(copy.problem));
}

namespace {

void put_steps(std::string& to, const std::vector<Step>& steps) {
  put(to, static_cast<std::uint32_t>(steps.size()));
  for (const Step& step : steps) {
    put(to, static_cast<std::uint32_t>(step.kind));
    put(to, static_cast<std::uint32_t>(step.reg));
    put_long(to, step.value);
  }
}

bool take_steps(Parser& from, std::vector<Step>& steps) {
  const std::uint32_t count = from.number();
  if (count > static_cast<std::uint32_t>(spec::kKernelEndSlot)) return false;
  steps.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    Step step{.kind = from.kind(StepKind::thread_data)};
    const std::uint32_t reg = from.number();
    if (reg >= shared::kRegCount) return false;
    step.reg = static_cast<shared::Reg>(reg), step.value = from.long_number();
    steps.push_back(step);
  }
  return from.good();
}

}  // namespace

void put(std::string& to, const Argument& argument) {
  put(to, std::string_view(argument.variable));
  for (const std::uint64_t number :
       {std::uint64_t{argument.has_type}, std::uint64_t{argument.is_text}, static_cast<std::uint64_t>(argument.kind),
        std::uint64_t{argument.size}, std::uint64_t{argument.count}, std::uint64_t{argument.is_bitfield},
        std::uint64_t{argument.bit_width}, std::uint64_t{argument.bit_offset}, std::uint64_t{argument.is_user_string},
        static_cast<std::uint64_t>(argument.sink), argument.memory_offset, std::uint64_t{argument.address.has_value()},
        argument.address.value_or(0), std::uint64_t{argument.is_wide}, std::uint64_t{argument.upper.has_value()}})
    put_long(to, number);
  put_steps(to, argument.steps);
  if (!argument.upper) return;
  put_steps(to, argument.upper->steps);
  put_long(to, argument.upper->is_memory);
  put_long(to, argument.upper->memory_offset);
}

bool take(Parser& from, Argument& argument) {
  argument.variable = from.text();
  const auto number = [&] { return from.long_number(); };
  argument.has_type = number() != 0, argument.is_text = number() != 0;
  const std::uint64_t kind = number(), size = number(), count = number();
  argument.is_bitfield = number() != 0;
  const std::uint64_t width = number(), offset = number();
  argument.is_user_string = number() != 0;
  const std::uint64_t sink = number();
  argument.memory_offset = number();
  const bool has_address = number() != 0;
  const std::uint64_t address = number();
  argument.is_wide = number() != 0;
  const bool has_upper = number() != 0;
  argument.address = has_address ? std::optional(address) : std::nullopt;
  if (kind > static_cast<std::uint64_t>(spec::Kind::floating) || sink > static_cast<std::uint64_t>(spec::Sink::text) ||
      size > UINT8_MAX || count > UINT32_MAX || width > UINT8_MAX || offset > UINT8_MAX)
    return false;
  argument.kind = static_cast<spec::Kind>(kind), argument.sink = static_cast<spec::Sink>(sink);
  argument.size = static_cast<std::uint8_t>(size), argument.count = static_cast<std::uint32_t>(count);
  argument.bit_width = static_cast<std::uint8_t>(width), argument.bit_offset = static_cast<std::uint8_t>(offset);
  if (!take_steps(from, argument.steps)) return false;
  if (!has_upper) return true;
  spec::UpperHalf upper;
  if (!take_steps(from, upper.steps)) return false;
  upper.is_memory = number() != 0, upper.memory_offset = number();
  argument.upper = std::move(upper);
  return from.good();
}

Result<std::string> decode_opened(std::string_view answer, const std::string& path) {
  constexpr std::size_t kMostBuildId = 64;
  return decode<std::string>(answer, path, [](Parser& words) {
    std::string missing = words.text();
    return missing.size() <= kMostBuildId ? std::optional(std::move(missing)) : std::nullopt;
  });
}

Result<std::vector<std::uint64_t>> decode_addresses(std::string_view answer, const std::string& path) {
  return decode<std::vector<std::uint64_t>>(answer, path, [](Parser& words) {
    return std::optional(take_list<std::uint64_t>(words, [](Parser& from) { return from.long_number(); }));
  });
}

Result<CodeLine> decode_declaration(std::string_view answer, const std::string& path) {
  return decode<CodeLine>(answer, path, [](Parser& words) { return std::optional(take_line(words)); });
}

Result<std::uint64_t> decode_address(std::string_view answer, const std::string& path) {
  return decode<std::uint64_t>(answer, path, [](Parser& words) { return std::optional(words.long_number()); });
}

Result<Argument> decode_argument(std::string_view answer, const std::string& path) {
  return decode<Argument>(answer, path, [](Parser& words) {
    std::optional<Argument> made(std::in_place);
    if (!take(words, *made) || !makes_sense(*made)) made.reset();
    return made;
  });
}

Result<std::vector<CodeLine>> decode_lines(std::string_view answer, const std::string& path) {
  return decode<std::vector<CodeLine>>(
      answer, path, [](Parser& words) { return std::optional(take_list<CodeLine>(words, take_line)); });
}

Result<std::vector<NamedVariable>> decode_variables(std::string_view answer, const std::string& path) {
  return decode<std::vector<NamedVariable>>(
      answer, path, [](Parser& words) { return std::optional(take_list<NamedVariable>(words, take_variable)); });
}

Result<std::vector<dwarf::InlinedCopy>> decode_copies(std::string_view answer, const std::string& path) {
  return decode<std::vector<dwarf::InlinedCopy>>(answer, path,
                                                 [](Parser& words) -> std::optional<std::vector<dwarf::InlinedCopy>> {
                                                   auto copies = take_list<dwarf::InlinedCopy>(words, take_copy);
                                                   if (copies.size() > dwarf::kMostCopies) return {};
                                                   return copies;
                                                 });
}

}  // namespace uprobe
