// SPDX-License-Identifier: MIT
// Reading prototypes: a list of tokens, one pass over it. The line's length bounds every step.
#include "engine/spec/function_event.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/lex/number.h"
#include "engine/lex/registers.h"
#include "engine/lex/suggest.h"
#include "engine/lex/words.h"
#include "engine/shared/layout.h"
#include "engine/spec/argument.h"
#include "engine/spec/messages.h"
#include "engine/spec/name.h"
#include "engine/spec/place.h"
#include "engine/spec/type.h"

namespace uprobe::spec {
namespace {

using shared::Reg;

constexpr std::string_view kPatternSigns = "*?[";

struct Token {
  std::string_view text;  // in the line; empty: the end of the line
  std::size_t at = 0;
};

bool is_name_character(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

class Tokens {
 public:
  Tokens(std::string_view line, std::size_t from) : line_(line), at_(from) { advance(); }

  const Token& now() const { return now_; }
  Token take() {
    const Token token = now_;
    advance();
    return token;
  }
  bool skip(char sign) {
    if (now_.text.size() != 1 || now_.text[0] != sign) return false;
    advance();
    return true;
  }

 private:
  // A word of letters and digits, or one other character.
  void advance() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    std::size_t end = at_;
    while (end < line_.size() && is_name_character(line_[end])) ++end;
    if (end == at_ && end < line_.size()) ++end;
    now_ = {line_.substr(at_, end - at_), at_};
    at_ = end;
  }

  std::string_view line_;
  std::size_t at_;
  Token now_;
};

struct CType {
  Kind kind = Kind::hex;
  std::uint8_t size = 8;
  std::uint32_t count = 0;
  std::string declared;  // as written
};

struct NamedCType {
  std::string_view name;
  Kind kind;
  std::uint8_t size;
};

constexpr NamedCType kCTypes[] = {{"size_t", Kind::unsigned_decimal, 8},
                                  {"ssize_t", Kind::signed_decimal, 8},
                                  {"intptr_t", Kind::signed_decimal, 8},
                                  {"uintptr_t", Kind::unsigned_decimal, 8},
                                  {"int8_t", Kind::signed_decimal, 1},
                                  {"uint8_t", Kind::unsigned_decimal, 1},
                                  {"int16_t", Kind::signed_decimal, 2},
                                  {"uint16_t", Kind::unsigned_decimal, 2},
                                  {"int32_t", Kind::signed_decimal, 4},
                                  {"uint32_t", Kind::unsigned_decimal, 4},
                                  {"int64_t", Kind::signed_decimal, 8},
                                  {"uint64_t", Kind::unsigned_decimal, 8},
                                  {"bool", Kind::unsigned_decimal, 1},
                                  {"_Bool", Kind::unsigned_decimal, 1},
                                  {"float", Kind::floating, 4},
                                  {"double", Kind::floating, 8},
                                  {"void", Kind::hex, 0}};

// C's integers: several of these words, in any order.
enum IntegerWord : std::size_t { kSigned, kUnsigned, kChar, kShort, kInt, kLong };
constexpr std::array<std::string_view, 6> kIntegerWords = {"signed", "unsigned", "char", "short", "int", "long"};
using IntegerWords = std::array<unsigned, kIntegerWords.size()>;

bool make_one_type(const IntegerWords& words) {
  const unsigned lengths = words[kChar] + words[kShort] + std::min(words[kLong], 1u);
  return words[kSigned] + words[kUnsigned] <= 1 && lengths <= 1 && words[kInt] <= 1 && words[kLong] <= 2 &&
         words[kChar] + words[kInt] <= 1;
}

std::uint8_t integer_bytes(const IntegerWords& words) {
  return words[kChar] != 0 ? 1 : words[kShort] != 0 ? 2 : words[kLong] != 0 ? 8 : 4;
}

// System V ABI, 3.2.3: integers and pointers go to six registers, floating point numbers to eight vector registers, each class
// in its own order; the remaining arguments of both lie on the stack after the return address, in one order.
struct Passed {
  std::size_t integers = 0, floats = 0, words = 0;

  bool has_register(bool is_float) const { return is_float ? floats < kFloatRegisters : integers < kIntegerRegisters; }
  Step in_register(bool is_float) const {
    if (is_float) return {.kind = StepKind::vector, .value = floats};
    return {.kind = StepKind::reg, .reg = *argument_register(integers + 1)};
  }
  void take(bool is_float) { ++(!has_register(is_float) ? words : is_float ? floats : integers); }

  static constexpr std::size_t kIntegerRegisters = 6, kFloatRegisters = 8;
};

class FunctionParser {
 public:
  FunctionParser(std::string_view line, const ParseOptions& options)
      : line_(line), options_(options), open_(line.find('(')), tokens_(line, open_ + 1) {}

  Result<ProbeSpec> parse();

 private:
  Status read_place();
  Status read_arguments();
  Status read_alternatives();
  Status read_one();
  Result<CType> read_type();
  Result<CType> read_base();
  Result<CType> read_integer();
  Result<CType> read_tagged();
  Result<CType> read_atom();
  Status read_array(CType& type);
  Status read_address(const Token& at, Argument& argument);
  Status read_chain(const CType& type, Argument& argument);
  Result<std::uint64_t> read_number();
  Status finish(const CType& type, Argument argument);
  Status find_source(const CType& type, Argument& argument);
  Status take_class(bool is_float, std::size_t at);

  Error blame(std::size_t at, std::string text, std::string help = {}) const {
    return Error{.code = Code::usage,
                 .text = std::move(text),
                 .where = std::string(line_),
                 .column = static_cast<int>(at),
                 .help = std::move(help),
                 .err = EINVAL};
  }

  std::string_view line_;
  const ParseOptions& options_;
  std::size_t open_;
  Tokens tokens_;
  ProbeSpec spec_;
  Passed passed_;                 // registers and stack words of the arguments so far
  std::optional<bool> is_float_;  // the current argument; unset: none of its alternatives was read
  std::uint32_t fixed_bytes_ = 0;
};

// The same words as in any other place; only the columns are those of another line.
Status FunctionParser::read_place() {
  const Command command("p " + std::string(line_.substr(0, open_)));
  auto parsed = parse_place(command, options_);
  if (!parsed) {
    Error error = parsed.error();
    error.where = std::string(line_);
    error.column -= 2;
    return error;
  }
  spec_.place = std::move(parsed->place);
  spec_.place.path_column -= 2;
  spec_.place.place_column -= 2;
  if (spec_.place.symbol.empty() || spec_.place.offset != 0 || parsed->is_return)
    return blame(static_cast<std::size_t>(spec_.place.place_column), "A function event needs the name of a function");
  const bool is_pattern = spec_.place.symbol.find_first_of(kPatternSigns) != std::string::npos;
  spec_.event = is_pattern ? kNameOfSymbol : symbol_event_name(spec_.place);
  return ok();
}

// The return address lies on top of the stack at the function's first instruction.
Result<ProbeSpec> FunctionParser::parse() {
  spec_.definition = std::string(line_);
  spec_.style = Style::function;
  spec_.group = kFunctionGroup;
  RETURN_IF_ERROR(read_place());
  Argument parent{.name = kParentField, .body = kParentField};
  parent.steps = {{.kind = StepKind::reg, .reg = Reg::sp}, {.kind = StepKind::dereference}};
  parent.kind = Kind::symbol;
  parent.declared = "unsigned long";
  fixed_bytes_ = fixed_size(parent);
  spec_.arguments.push_back(std::move(parent));
  RETURN_IF_ERROR(read_arguments());
  if (!tokens_.now().text.empty()) return blame(tokens_.now().at, "Nothing may follow the closing brace");
  return std::move(spec_);
}

Status FunctionParser::read_arguments() {
  if (tokens_.skip(')')) return ok();
  for (;;) {
    RETURN_IF_ERROR(read_alternatives());
    if (tokens_.skip(')')) return ok();
    if (!tokens_.skip(',')) return blame(tokens_.now().at, "Expected ',', '|' or ')'");
  }
}

// Alternatives that only read addresses are no argument of the function.
Status FunctionParser::read_alternatives() {
  is_float_.reset();
  do {
    RETURN_IF_ERROR(read_one());
  } while (tokens_.skip('|'));
  if (is_float_) passed_.take(*is_float_);
  return ok();
}

// Whether the current argument is a floating point number. It cannot be both: that would be two arguments.
Status FunctionParser::take_class(bool is_float, std::size_t at) {
  if (is_float_.value_or(is_float) != is_float)
    return blame(at, "An argument is a floating point number or none", "they are in registers of different kinds");
  is_float_ = is_float;
  return ok();
}

Status FunctionParser::read_one() {
  if (tokens_.now().text == "NULL") return take_class(false, tokens_.take().at);
  const std::size_t start = tokens_.now().at;
  auto type = read_type();
  if (!type) return type.error();
  Argument argument{.column = static_cast<int>(start)};
  const Token name = tokens_.now();
  if (name.text.starts_with("0x") || name.text == "$") {
    RETURN_IF_ERROR(read_address(name, argument));
    return finish(*type, std::move(argument));
  }
  if (!is_identifier(name.text)) return blame(name.at, "Expected the name of the argument");
  argument.name = std::string(tokens_.take().text);
  if (tokens_.skip('=')) {
    RETURN_IF_ERROR(read_address(tokens_.now(), argument));
    return finish(*type, std::move(argument));
  }
  RETURN_IF_ERROR(read_chain(*type, argument));
  RETURN_IF_ERROR(find_source(*type, argument));
  return finish(*type, std::move(argument));
}

// The start of the chain: the type of the memory is a pointer.
Status FunctionParser::find_source(const CType& type, Argument& argument) {
  const auto at = static_cast<std::size_t>(argument.column);
  const bool is_float = type.kind == Kind::floating && argument.sink == Sink::value;
  if (passed_.words >= shared::kMaxArguments) return blame(at, std::string(message::kTooManyArguments));
  RETURN_IF_ERROR(take_class(is_float, at));
  auto& steps = argument.steps;
  if (passed_.has_register(is_float)) return steps.insert(steps.begin(), passed_.in_register(is_float)), ok();
  const Step word{.kind = StepKind::dereference, .value = 8 * (passed_.words + 1)};
  steps.insert(steps.begin(), {{.kind = StepKind::reg, .reg = Reg::sp}, word});
  return ok();
}

std::optional<CType> find_atom(std::string_view name) {
  for (const NamedCType& known : kCTypes)
    if (known.name == name) return CType{known.kind, known.size, 0, std::string(name)};
  const auto type = is_identifier(name) && name[0] != 'b' ? find_type(name, false) : std::nullopt;
  if (!type || type->is_wide) return std::nullopt;
  return CType{type->kind, type->size, 0, std::string(name)};
}

Result<CType> FunctionParser::read_atom() {
  const Token word = tokens_.take();
  const auto type = find_atom(word.text);
  if (!type) return blame(word.at, std::string(message::kBadType), type_help(word.text));
  return *type;
}

// Before another type only "unsigned" may stand, too.
Result<CType> FunctionParser::read_integer() {
  const std::size_t begin = tokens_.now().at;
  IntegerWords words{};
  std::string declared;
  for (;;) {
    const auto word = std::ranges::find(kIntegerWords, tokens_.now().text);
    if (word == kIntegerWords.end()) break;
    ++words[static_cast<std::size_t>(word - kIntegerWords.begin())];
    declared += (declared.empty() ? "" : " ") + std::string(tokens_.take().text);
  }
  if (declared == "long" && tokens_.now().text == "double")
    return blame(begin, "A long double is an x87 number of 80 bits, which no type prints");
  if (!make_one_type(words)) return blame(begin, std::string(message::kBadType), "'" + declared + "' is no type of C");
  CType type{words[kUnsigned] != 0 ? Kind::unsigned_decimal : Kind::signed_decimal, integer_bytes(words), 0, declared};
  if (words[kChar] != 0) type.kind = Kind::character;
  const auto atom = declared == "unsigned" ? find_atom(tokens_.now().text) : std::nullopt;
  if (!atom) return type;
  type.kind = atom->kind == Kind::signed_decimal ? Kind::unsigned_decimal : atom->kind;
  type.size = atom->size;
  type.declared += " " + std::string(tokens_.take().text);
  return type;
}

// "struct S", always as a pointer.
Result<CType> FunctionParser::read_tagged() {
  const std::string keyword(tokens_.take().text);
  if (!is_identifier(tokens_.now().text)) return blame(tokens_.now().at, "Expected the name of the " + keyword);
  return CType{Kind::hex, 0, 0, keyword + " " + std::string(tokens_.take().text)};
}

Result<CType> FunctionParser::read_base() {
  const std::string_view word = tokens_.now().text;
  if (std::ranges::find(kIntegerWords, word) != kIntegerWords.end()) return read_integer();
  return word == "struct" || word == "union" ? read_tagged() : read_atom();
}

Result<CType> FunctionParser::read_type() {
  const bool is_const = tokens_.now().text == "const";
  if (is_const) tokens_.take();
  const Token first = tokens_.now();
  auto type = read_base();
  if (!type) return type;
  if (is_const) type->declared = "const " + type->declared;
  for (bool is_first = true; tokens_.skip('*'); is_first = false) {
    if (type->kind == Kind::string)
      return blame(first.at, std::string(message::kBadType), "a string is char * already");
    type->kind = Kind::hex, type->size = 8;
    type->declared += is_first ? " *" : "*";
  }
  if (type->size == 0)
    return blame(first.at, std::string(message::kBadType), "did you mean '" + type->declared + " *'?");
  RETURN_IF_ERROR(read_array(*type));
  return type;
}

Status FunctionParser::read_array(CType& type) {
  const std::size_t at = tokens_.now().at;
  if (!tokens_.skip('[')) return ok();
  if (type.kind == Kind::string) return blame(at, "A string is an array already");
  const std::size_t number_at = tokens_.now().at;
  const auto count = read_number();
  if (!count) return count.error();
  if (!tokens_.skip(']')) return blame(tokens_.now().at, std::string(message::kArrayOpen));
  if (*count == 0) return blame(number_at, std::string(message::kBadArray));
  if (*count > kMaxArray) return blame(number_at, std::string(message::kArrayTooBig), "at most 64 elements");
  type.count = static_cast<std::uint32_t>(*count);
  return ok();
}

Result<std::uint64_t> FunctionParser::read_number() {
  const Token token = tokens_.take();
  std::uint64_t value = 0;
  if (read_unsigned(token.text, 0, value) != 0 || value > INT32_MAX) return blame(token.at, "Expected a number");
  return value;
}

// The address of a name in the file; the type decides whether and how much is read there.
Status FunctionParser::read_address(const Token& at, Argument& argument) {
  const bool is_symbol = at.text == "$";
  if (is_symbol) tokens_.take();
  const Token where = tokens_.take();
  argument.steps = {{.kind = StepKind::file_offset}};
  argument.sink = Sink::memory;
  argument.symbol_column = static_cast<int>(where.at);
  if (argument.name.empty()) argument.name = std::string(where.text);
  if (is_symbol) {
    if (!is_identifier(where.text)) return blame(where.at, "Expected the name of a symbol");
    argument.symbol = std::string(where.text);
    return ok();
  }
  std::uint64_t address = 0;
  if (!where.text.starts_with("0x") || read_unsigned(where.text, 0, address) != 0)
    return blame(where.at, std::string(message::kBadMemory), "an address starts with 0x, a symbol with $");
  argument.address = address;
  return ok();
}

// A '[' reads; the value read is an address if anything follows.
Status FunctionParser::read_chain(const CType& type, Argument& argument) {
  const bool is_string = type.kind == Kind::string;
  const std::uint64_t stride = is_string ? 8 : type.size;
  std::uint64_t distance = 0;
  bool has_index = false, is_pending = false, has_offset = false;
  const auto follow = [&] {
    if (is_pending) argument.steps.push_back({.kind = StepKind::dereference, .value = std::exchange(distance, 0)});
    is_pending = false;
  };
  for (std::size_t at = tokens_.now().at;; at = tokens_.now().at) {
    const bool plus = tokens_.skip('+');
    if (!plus && !tokens_.skip('[')) break;
    follow();
    const auto number = read_number();
    if (!number) return number.error();
    distance += plus ? *number : *number * stride;
    if (distance > INT32_MAX) return blame(at, "The offset is too large");
    if (argument.steps.size() > static_cast<std::size_t>(kKernelEndSlot) - 3)
      return blame(at, std::string(message::kTooDeep));
    if (plus) {
      has_offset = true;
      continue;
    }
    if (!tokens_.skip(']')) return blame(tokens_.now().at, "Expected ']'");
    has_index = is_pending = true;
  }
  if (is_string) follow();
  const bool reads = has_index || is_string || type.count != 0;
  if (has_offset && !reads)
    return blame(static_cast<std::size_t>(argument.column), "An offset without an index reads nothing",
                 "'" + argument.name + "+" + std::to_string(distance) + "[0]' is what lies there");
  argument.sink = reads ? Sink::memory : Sink::value;
  argument.memory_offset = distance;
  return ok();
}

Status FunctionParser::finish(const CType& type, Argument argument) {
  const auto at = static_cast<std::size_t>(argument.column);
  const auto end = tokens_.now().at;
  argument.body = std::string(line_.substr(at, end - at));
  while (!argument.body.empty() && is_blank(argument.body.back())) argument.body.pop_back();
  argument.kind = type.kind;
  argument.size = type.size;
  argument.count = type.count;
  argument.is_text = type.kind == Kind::character && type.count != 0;
  argument.declared = type.kind == Kind::string ? "__data_loc char[]" : type.declared;
  fixed_bytes_ += fixed_size(argument);
  if (spec_.arguments.size() >= shared::kMaxArguments) return blame(at, std::string(message::kTooManyArguments));
  if (fixed_bytes_ > shared::kMaxFixedArguments) return blame(at, std::string(message::kEventTooBig));
  spec_.arguments.push_back(std::move(argument));
  return ok();
}

}  // namespace

bool is_function_event(std::string_view line) {
  line = line.substr(0, comment_start(line));
  while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
  const std::string_view before = line.substr(0, line.find('('));
  const std::string_view head = before.substr(0, before.find_first_of(" \t\r\v\f"));
  if (before.size() == line.size() || head.empty() || head[0] == '-') return false;
  if (head.starts_with("p:") || head.starts_with("r:")) return false;
  // "p (" is a definition's beginning
  if (head.size() != before.size() && (head == "p" || head == "r")) return false;
  return std::all_of(before.begin() + static_cast<std::ptrdiff_t>(head.size()), before.end(), is_blank);
}

Result<ProbeSpec> parse_function_event(std::string_view line, const ParseOptions& options) {
  RETURN_IF_ERROR(check_line(line));
  line = line.substr(0, comment_start(line));
  while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  if (!is_function_event(line))
    return Error{.text = "A function event is FUNCTION(TYPE NAME, ...)", .where = std::string(line), .err = EINVAL};
  return FunctionParser(line, options).parse();
}

}  // namespace uprobe::spec
