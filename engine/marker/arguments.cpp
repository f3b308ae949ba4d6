// SPDX-License-Identifier: MIT
// A fetch is put together as text and read as every other, so that it has the same rules. What that text cannot say (an index, a
// second byte, an address, a wider number) becomes a step of its own.
#include "engine/marker/arguments.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arch/abi/register_names.h"
#include "engine/base/text.h"
#include "engine/lex/number.h"
#include "engine/lex/registers.h"
#include "engine/lex/words.h"
#include "engine/spec/argument.h"
#include "engine/spec/type.h"

namespace uprobe::marker {
namespace {

using arch::MarkerOperand;
using spec::Argument;
using spec::Kind;
using spec::Step;
using spec::StepKind;
using OperandKind = MarkerOperand::Kind;

constexpr std::string_view kArgument = "$arg";

Error refused(std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; }

// Up to the next blank outside of parentheses.
std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::size_t end = 0;
  for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ' '); ++end) {
    if (text[end] == '(') ++depth;
    if (text[end] == ')' && depth > 0) --depth;
  }
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::optional<NumberType> noted_type(std::string_view text) {
  const bool is_signed = text.starts_with('-'), is_floating = text.ends_with('f');
  if (is_signed) text.remove_prefix(1);
  if (is_floating) text.remove_suffix(1);
  static constexpr std::array<std::string_view, 4> kBytes = {"1", "2", "4", "8"};
  const auto found = std::find(kBytes.begin(), kBytes.end(), text);
  if (found == kBytes.end()) return {};
  const auto bytes = static_cast<std::uint8_t>(1u << (found - kBytes.begin()));
  if (is_floating) return bytes >= 4 ? std::optional(NumberType{Kind::floating, bytes}) : std::nullopt;
  return NumberType{is_signed ? Kind::signed_decimal : Kind::unsigned_decimal, bytes};
}

std::string problem_of(const NumberType& type, const MarkerOperand& operand) {
  if (operand.kind == OperandKind::general && type.bytes > operand.bytes)
    return "its register has only " + std::to_string(operand.bytes) + " bytes";
  const bool is_number = operand.kind == OperandKind::constant || operand.kind == OperandKind::address ||
                         (operand.kind == OperandKind::general && operand.is_second_byte);
  if (is_number && type.kind == Kind::floating) return "a floating point number is in no such operand";
  if (operand.kind == OperandKind::address && type.bytes != 8) return "an address has 8 bytes";
  return {};
}

NotedArgument noted_argument(std::string_view word) {
  NotedArgument argument;
  const std::size_t at = word.find('@');
  const auto type = at == std::string_view::npos ? std::nullopt : noted_type(word.substr(0, at));
  if (!type) {
    argument.problem = "its note does not say how many bytes it has";
    return argument;
  }
  argument.type = *type;
  auto operand = arch::read_marker_operand(word.substr(at + 1));
  if (!operand) {
    argument.problem = operand.error().text;
    return argument;
  }
  argument.operand = operand.take();
  argument.problem = problem_of(argument.type, argument.operand);
  return argument;
}

std::string with_sign(std::int64_t value) { return (value < 0 ? "" : "+") + std::to_string(value); }

// The operand's value as a fetch, but for what own_steps() adds.
std::string fetch_of(const MarkerOperand& operand) {
  const auto name = [](shared::Reg reg) { return "%" + std::string(spec::register_name(reg)); };
  switch (operand.kind) {
    case OperandKind::constant:
      return "\\" + std::to_string(operand.value);
    case OperandKind::general:
      return name(*operand.base);
    case OperandKind::vector:
      return "%" + std::string(arch::kVectorBanks[0].name) + std::to_string(operand.vector);
    case OperandKind::memory:
      if (!operand.base && !operand.index) return "@" + hex(static_cast<std::uint64_t>(operand.value));
      return with_sign(operand.value) + "(" + name(operand.base ? *operand.base : *operand.index) + ")";
    case OperandKind::memory_of_name:
    case OperandKind::address:
      return "@" + operand.symbol + (operand.value == 0 ? "" : with_sign(operand.value));
  }
  return {};
}

// In a table with a name the base is an index as well.
bool is_in_table(const MarkerOperand& operand) {
  return operand.kind == OperandKind::memory_of_name && (operand.base || operand.index);
}

bool has_own_steps(const MarkerOperand& operand) {
  return operand.index || operand.is_second_byte || is_in_table(operand);
}

// After the first step, which loads the base, or the address of the table.
void add_own_steps(const MarkerOperand& operand, Argument& argument) {
  if (!has_own_steps(operand)) return;
  if (operand.is_second_byte)
    argument.steps.insert(argument.steps.begin() + 1, Step{.kind = StepKind::shift_right, .value = 8});
  const auto add = [&](shared::Reg reg, std::uint8_t scale) {
    argument.steps.insert(argument.steps.begin() + 1, Step{.kind = StepKind::add_register, .reg = reg, .value = scale});
  };
  if (operand.index) add(*operand.index, operand.scale);
  if (is_in_table(operand) && operand.base) add(*operand.base, 0);
  if (operand.index && !operand.base && !is_in_table(operand))
    argument.steps.front() = Step{.kind = StepKind::constant};
}

// "NAME=BODY", where BODY has a marker's argument in it.
struct Written {
  std::string_view name, body;
  std::size_t number = 0;          // of the marker's argument; 0: there is none
  std::size_t begin = 0, end = 0;  // of "$argN" in the body
  std::optional<std::string_view> type;
  bool is_itself = false;  // the body is "$argN", perhaps with a type
};

Written read(std::string_view text) {
  Written written;
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos) written.name = text.substr(0, equals);
  written.body = equals == std::string_view::npos ? text : text.substr(equals + 1);
  const std::string_view body = written.body;
  const std::size_t colon = body.find(':');
  if (colon != std::string_view::npos) written.type = body.substr(colon + 1);
  const std::string_view fetch = body.substr(0, colon);
  written.begin = fetch.find(kArgument);
  if (written.begin == std::string_view::npos) return written;
  written.end = std::min(fetch.find_first_not_of("0123456789", written.begin + kArgument.size()), fetch.size());
  std::uint64_t number = 0;
  const std::string_view digits =
      fetch.substr(written.begin + kArgument.size(), written.end - written.begin - kArgument.size());
  if (digits.empty() || digits.size() > 4 || spec::read_unsigned(digits, 10, number) != 0) return written;
  written.number = number;
  written.is_itself = written.begin == 0 && written.end == fetch.size();
  return written;
}

Result<Argument> parse(std::string_view name, const std::string& body) {
  const spec::Command command("p x " + std::string(name) + "=" + body);
  auto arguments = spec::parse_arguments(command, {.is_function_entry = false});
  if (!arguments) {
    Error error = arguments.error();
    error.where.clear(), error.column = 0;
    return error;
  }
  return std::move(arguments->front());
}

std::string bytes_text(std::uint32_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

// The argument as a number of the wanted type, which may be wider than its own.
Result<Argument> as_number(const Written& written, const NotedArgument& noted, const NumberType& wanted) {
  const NumberType own = noted.type;
  const bool is_wider = wanted.bytes > own.bytes;
  if (is_wider &&
      (own.kind == Kind::floating || wanted.kind == Kind::floating || noted.operand.kind == OperandKind::vector))
    return refused("it has only " + bytes_text(own.bytes));
  const NumberType read_as{wanted.kind, std::min(own.bytes, wanted.bytes)};
  auto argument = parse(written.name, fetch_of(noted.operand) + ":" + name_of(read_as));
  if (!argument) return argument;
  if (!is_wider) return argument;
  argument->size = wanted.bytes;
  argument->source_bytes = own.bytes;
  argument->extends_sign = own.kind == Kind::signed_decimal;
  return argument;
}

// The memory to which the argument points.
Result<Argument> as_string(const Written& written, const NotedArgument& noted, std::string_view type) {
  if (noted.type.bytes != 8 || noted.type.kind == Kind::floating || noted.operand.kind == OperandKind::vector)
    return refused("it is no address: it has " + bytes_text(noted.type.bytes));
  const std::string fetch = fetch_of(noted.operand);
  const bool is_address = noted.operand.kind == OperandKind::address;
  return parse(written.name, (is_address ? fetch : "+0(" + fetch + ")") + ":" + std::string(type));
}

bool is_string(std::string_view type) { return type == "string" || type == "ustring"; }

// With the type that the user wrote.
Result<Argument> as_typed(const Written& written, const NotedArgument& noted, std::string_view type) {
  if (is_string(type)) return as_string(written, noted, type);
  if (type.find('[') != std::string_view::npos)
    return refused("an array is in memory: +0($arg" + std::to_string(written.number) + "):" + std::string(type));
  const auto known = spec::find_type(type, false);
  if (known && known->is_wide) return refused("it has only " + bytes_text(noted.type.bytes));
  const bool is_number = known && (known->kind == Kind::unsigned_decimal || known->kind == Kind::signed_decimal ||
                                   known->kind == Kind::hex || known->kind == Kind::floating);
  if (is_number && !type.starts_with('b')) return as_number(written, noted, {known->kind, known->size});
  if (known && known->size > noted.type.bytes) return refused("it has only " + bytes_text(noted.type.bytes));
  return parse(written.name, fetch_of(noted.operand) + ":" + std::string(type));
}

// "+8($arg2):u32"
Result<Argument> as_part(const Written& written, const NotedArgument& noted) {
  if (noted.type.bytes != 8 || noted.type.kind == Kind::floating || noted.operand.kind == OperandKind::vector)
    return refused("it is no address: it has " + bytes_text(noted.type.bytes));
  if (noted.operand.kind == OperandKind::address)
    return refused("it is the address of a name: read @" + noted.operand.symbol);
  std::string body(written.body);
  body.replace(written.begin, written.end - written.begin, fetch_of(noted.operand));
  return parse(written.name, body);
}

Result<Argument> fetch(const Written& written, const NotedArgument& noted, const std::optional<NumberType>& type) {
  if (!written.is_itself) return as_part(written, noted);
  return written.type ? as_typed(written, noted, *written.type) : as_number(written, noted, type.value_or(noted.type));
}

// A body that a listing can show: the kernel's words where there are some.
void settle_body(const Written& written, const MarkerOperand& operand, Argument& argument) {
  const bool is_address = operand.kind == OperandKind::address && argument.sink == spec::Sink::value;
  if (argument.source_bytes == 0 && !has_own_steps(operand) && !is_address) return;
  argument.body = std::string(written.body);
  if (!written.type) argument.body += ":" + name_of({argument.kind, argument.size});
}

}  // namespace

std::vector<NotedArgument> noted_arguments(std::string_view text) {
  std::vector<NotedArgument> arguments;
  arguments.reserve(kMostArguments);
  while (arguments.size() <= kMostArguments) {
    const std::string_view word = next_word(text);
    if (word.empty()) break;
    arguments.push_back(noted_argument(word));
  }
  return arguments;
}

std::string name_of(const NumberType& type) {
  const char letter = type.kind == Kind::floating         ? 'f'
                      : type.kind == Kind::signed_decimal ? 's'
                      : type.kind == Kind::hex            ? 'x'
                                                          : 'u';
  return letter + std::to_string(type.bytes * 8);
}

std::optional<NumberType> common_type(const NumberType& a, const NumberType& b) {
  if (a == b) return a;
  if (a.kind == Kind::floating || b.kind == Kind::floating) return {};
  const std::uint8_t widest = std::max(a.bytes, b.bytes);
  if (a.kind == b.kind) return NumberType{a.kind, widest};
  if (a.kind == Kind::hex || b.kind == Kind::hex) return NumberType{Kind::hex, 8};
  const NumberType& plain = a.kind == Kind::unsigned_decimal ? a : b;
  const NumberType& with_minus = a.kind == Kind::unsigned_decimal ? b : a;
  if (plain.bytes < with_minus.bytes) return with_minus;
  if (plain.bytes == 8) return NumberType{Kind::hex, 8};
  return NumberType{Kind::signed_decimal, static_cast<std::uint8_t>(plain.bytes * 2)};
}

std::optional<std::size_t> marker_argument(std::string_view written) {
  const Written parts = read(written);
  return parts.number == 0 ? std::nullopt : std::optional(parts.number);
}

bool is_untyped(std::string_view written) {
  const Written parts = read(written);
  return parts.number != 0 && parts.is_itself && !parts.type;
}

std::string with_name(std::string_view written, std::size_t position) {
  const Written parts = read(written);
  if (parts.body.size() != written.size()) return std::string(written);
  return "arg" + std::to_string(parts.is_itself ? parts.number : position) + "=" + std::string(written);
}

Result<Argument> fetch_argument(const std::string& text, const std::vector<NotedArgument>& noted,
                                const std::optional<NumberType>& type) {
  const Written written = read(text);
  if (written.number == 0) return parse(written.name, std::string(written.body));
  if (written.number > noted.size() || written.number > kMostArguments)
    return refused("the marker has " + (noted.empty()       ? "no arguments"
                                        : noted.size() == 1 ? std::string("one argument")
                                                            : std::to_string(noted.size()) + " arguments"));
  const NotedArgument& one = noted[written.number - 1];
  const auto blamed = [&](const std::string& why) {
    return refused("$arg" + std::to_string(written.number) + " cannot be fetched: " + why);
  };
  if (!one.problem.empty()) return blamed(one.problem);
  auto argument = fetch(written, one, type);
  if (!argument) return blamed(argument.error().text);
  if (one.operand.kind == OperandKind::address && argument->sink == spec::Sink::memory &&
      argument->kind != Kind::string)
    argument->sink = spec::Sink::value;
  add_own_steps(one.operand, *argument);
  settle_body(written, one.operand, *argument);
  return argument;
}

}  // namespace uprobe::marker
