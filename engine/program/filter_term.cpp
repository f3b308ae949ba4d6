// SPDX-License-Identifier: MIT
// Terms, read from left to right; carets stand where the kernel's reading has arrived, one character on.
#include "engine/program/filter_term.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <optional>

#include "engine/lex/number.h"
#include "engine/program/compile.h"
#include "engine/program/cpu_list.h"

namespace uprobe::program {
namespace {

using namespace filter_message;
using shared::Test;
using shared::TestOp;
using shared::TextMatch;

constexpr std::size_t kMaxNumber = 24, kMaxText = 256;  // with the NUL

enum class FieldKind { number, wide, floating, string, characters, cpu, name, stack };

struct FilterField {
  FieldKind kind = FieldKind::number;
  std::uint32_t offset = 0, size = 0;
  bool is_signed = false;
  std::optional<std::uint64_t> constant = {};  // the same value in every record
};

enum class Operator { glob, not_equal, equal, at_most, less, at_least, greater, bits };
constexpr std::array<std::string_view, 8> kOperators = {"~", "!=", "==", "<=", "<", ">=", ">", "&"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter_or_digit(char c) {
  const auto byte = static_cast<unsigned char>(c);
  const bool is_latin = byte >= 0xc0 && byte != 0xd7 && byte != 0xf7;
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_latin;
}

std::optional<FilterField> argument_field(std::string_view name, const EventLayout& layout) {
  for (const Field& field : layout.fields) {
    if (field.name != name) continue;
    const bool is_floating = field.kind == Kind::floating;
    return FilterField{.kind = field.kind == Kind::string ? FieldKind::string
                               : field.is_text            ? FieldKind::characters
                               : is_floating              ? FieldKind::floating
                               : field.is_wide            ? FieldKind::wide
                                                          : FieldKind::number,
                       .offset = field.offset,
                       .size = field.size * std::max(field.count, 1u),
                       .is_signed = field.kind == Kind::signed_decimal};
  }
  return std::nullopt;
}

std::optional<FilterField> head_field(std::string_view name, const EventLayout& layout) {
  constexpr FilterField kFirst{.offset = 8, .size = 8}, kSecond{.offset = 16, .size = 8};
  if (name == head_name(layout)) return kFirst;
  if (layout.is_return && name == "__probe_ret_ip") return kSecond;
  return std::nullopt;
}

std::optional<FilterField> common_field(std::string_view name, unsigned id) {
  if (name == "cpu" || name == "CPU" || name == "common_cpu")
    return FilterField{.kind = FieldKind::cpu, .offset = shared::kTestCpu, .size = 4, .is_signed = true};
  if (name == "comm" || name == "COMM") return FilterField{.kind = FieldKind::name, .offset = shared::kTestName};
  if (name == "stacktrace" || name == "STACKTRACE") return FilterField{.kind = FieldKind::stack};
  if (name == "common_pid") return FilterField{.offset = 4, .size = 4, .is_signed = true};
  if (name == "common_type") return FilterField{.offset = 0, .size = 2, .constant = id};
  if (name == "common_flags") return FilterField{.offset = 2, .size = 1, .constant = 0};
  if (name == "common_preempt_count") return FilterField{.offset = 3, .size = 1, .constant = 0};
  return std::nullopt;
}

std::optional<FilterField> find_field(std::string_view name, const EventLayout& layout, unsigned id) {
  if (const auto field = argument_field(name, layout)) return field;
  if (const auto field = head_field(name, layout)) return field;
  return common_field(name, id);
}

bool is_comparable(std::uint32_t size) { return size <= 8 && std::has_single_bit(size); }

TestOp number_test(Operator op, bool is_signed) {
  switch (op) {
    case Operator::not_equal:
      return TestOp::not_equal;
    case Operator::less:
      return is_signed ? TestOp::less : TestOp::below;
    case Operator::at_least:
      return is_signed ? TestOp::not_less : TestOp::not_below;
    case Operator::greater:
      return is_signed ? TestOp::greater : TestOp::above;
    case Operator::at_most:
      return is_signed ? TestOp::not_greater : TestOp::not_above;
    case Operator::bits:
      return TestOp::any_bit;
    default:
      return TestOp::equal;
  }
}

Term fixed(bool holds) { return {.truth = holds ? Truth::always : Truth::never}; }

// A pattern without wildcards at its ends: these only say where the rest has to be.
struct Pattern {
  TextMatch match = TextMatch::full;
  bool inverted = false;
  std::string_view text;
};

Pattern as_it_is(std::string_view text) { return {.text = text}; }

// The kernel's reading: a pattern that begins with a digit has no wildcards.
Pattern read_pattern(std::string_view text) {
  Pattern pattern{.inverted = text.starts_with('!'), .text = text};
  if (pattern.inverted) pattern.text.remove_prefix(1);
  if (pattern.text.empty() || is_digit(pattern.text[0])) return pattern;
  const bool front_open = pattern.text[0] == '*', back_open = pattern.text.size() > 1 && pattern.text.ends_with('*');
  const std::string_view inner =
      pattern.text.substr(front_open ? 1 : 0, pattern.text.size() - (front_open ? 1 : 0) - (back_open ? 1 : 0));
  pattern.match = TextMatch::glob;
  if (inner.find_first_of("*[?\\") != std::string_view::npos) return pattern;
  pattern.text = inner;
  pattern.match = front_open && back_open ? TextMatch::middle
                  : front_open            ? (inner.empty() ? TextMatch::front : TextMatch::end)
                  : back_open             ? TextMatch::front
                                          : TextMatch::full;
  return pattern;
}

class TermReader {
 public:
  TermReader(std::string_view filter, std::size_t at, const EventLayout& layout, const FilterContext& context,
             std::string& texts)
      : filter_(filter), at_(at), layout_(layout), context_(context), texts_(texts) {}

  Result<Term> read();
  std::size_t at() const { return at_; }

 private:
  char now() const { return at_ < filter_.size() ? filter_[at_] : '\0'; }
  Error fail(std::string_view message) const { return filter_error(filter_, at_ + 1, message, EINVAL); }
  Error fail_at(std::size_t place, std::string_view message) const {
    return filter_error(filter_, place + 1, message, EINVAL);
  }
  void skip_spaces() {
    while (is_filter_space(now())) ++at_;
  }
  void skip_word() {
    while (is_letter_or_digit(now())) ++at_;
  }
  bool take(std::string_view text) {
    const bool is_there = filter_.substr(at_).starts_with(text);
    if (is_there) at_ += text.size();
    return is_there;
  }
  std::optional<Operator> take_operator();
  Result<Term> read_function(const FilterField& field, Operator op);
  Result<Term> read_cpus(const FilterField& field, Operator op);
  Result<Term> read_text(const FilterField& field, Operator op);
  Result<Term> read_number(const FilterField& field, Operator op);
  Term compare(const FilterField& field, Operator op, bool is_signed, std::uint64_t value) const;
  std::uint64_t keep(std::string_view text);

  std::string_view filter_;
  std::size_t at_;
  const EventLayout& layout_;
  const FilterContext& context_;
  std::string& texts_;
};

std::optional<Operator> TermReader::take_operator() {
  for (std::size_t i = 0; i < kOperators.size(); ++i)
    if (take(kOperators[i])) return static_cast<Operator>(i);
  return std::nullopt;
}

// Its place and length, as tests have them.
std::uint64_t TermReader::keep(std::string_view text) {
  const std::uint64_t value = texts_.size() | std::uint64_t{text.size()} << 32;
  texts_ += text;
  return value;
}

Result<Term> TermReader::read() {
  const std::size_t begin = at_;
  while (is_letter_or_digit(now()) || now() == '_') ++at_;
  if (at_ == begin)
    return Error{.code = Code::usage,
                 .text = std::string(kError),
                 .where = std::string(filter_),
                 .help = "a term begins with the name of a field",
                 .err = EPERM};
  const auto field = find_field(filter_.substr(begin, at_ - begin), layout_, context_.id);
  if (!field) {
    Error error = fail(kNoField);
    error.help = fields_help(layout_);
    return error;
  }
  take(".ustring");
  const bool is_function = take(".function");
  skip_spaces();
  const auto op = take_operator();
  if (!op) {
    Error error = fail(kBadOperator);
    error.help = "operators are == != < <= > >= &, and ~ for texts";
    return error;
  }
  skip_spaces();
  if (field->kind == FieldKind::floating) {
    Error error = fail_at(begin, kBadFieldOperator);
    error.help = "a floating point number's bits can be asked for: fetch them as :x64 or :x32";
    return error;
  }
  if (field->kind == FieldKind::wide) {
    Error error = fail_at(begin, kBadFieldOperator);
    error.help = "of a number of 16 bytes its lower eight can be asked for: fetch them as :u64 or :s64";
    return error;
  }
  if (is_function) return read_function(*field, *op);
  if (filter_.substr(at_).starts_with("CPUS")) return read_cpus(*field, *op);
  if (now() == '\'' || now() == '"') return read_text(*field, *op);
  if (is_digit(now()) || now() == '-') return read_number(*field, *op);
  return fail(kBadValue);
}

// A function of the kernel; a tracer of programs knows none.
Result<Term> TermReader::read_function(const FilterField& field, Operator op) {
  if (field.kind == FieldKind::cpu || field.size != 8) return fail(kBadFieldOperator);
  if (op != Operator::equal && op != Operator::not_equal) return fail(kBadOperator);
  const std::size_t begin = at_;
  const bool is_number = is_digit(now());
  if (is_number)
    skip_word();
  else
    while (at_ < filter_.size() && !is_filter_space(now())) ++at_;
  const std::string_view word = filter_.substr(begin, at_ - begin);
  std::uint64_t address = 0;
  if (is_number && word.size() >= kMaxNumber) return fail(kTooLong);
  if (is_number && spec::read_unsigned(word, 0, address) != 0) return fail(kBadValue);
  Error error = fail(kNoFunction);
  error.help = "functions of the kernel are not known here";
  return error;
}

// A set of one CPU is its number; no number is equal to another set.
Result<Term> TermReader::read_cpus(const FilterField& field, Operator op) {
  const bool is_cpu = field.kind == FieldKind::cpu;
  if (!is_cpu && field.kind != FieldKind::number) return fail(kBadFieldOperator);
  if (op != Operator::equal && op != Operator::not_equal && op != Operator::bits) return fail(kBadFieldOperator);
  take("CPUS");
  const bool is_open = take("{");
  if (!is_open) return ++at_, fail(kNoBraceOpen);
  const std::size_t begin = at_;
  while (at_ < filter_.size() && now() != '}') ++at_;
  if (at_ == filter_.size()) return fail(kNoBraceClose);
  const auto cpus = at_ == begin ? std::nullopt : read_cpu_list(filter_.substr(begin, at_ - begin), context_.cpus);
  if (!cpus) return fail(kBadCpuList);
  ++at_;
  if (cpus->count() == 1) return compare(field, op == Operator::bits ? Operator::equal : op, false, cpus->first());
  if (op == Operator::equal || !is_comparable(field.size)) return fixed(false);
  if (op == Operator::not_equal && is_cpu) return fixed(true);
  const CpuSet set = op == Operator::bits ? *cpus : CpuSet::all(context_.cpus);
  if (field.constant) return fixed(set.has(*field.constant));
  return Term{.test = {.op = TestOp::in_set,
                       .size = static_cast<std::uint8_t>(field.size),
                       .target = 0,
                       .offset = field.offset,
                       .value = keep(set.bytes())}};
}

Result<Term> TermReader::read_text(const FilterField& field, Operator op) {
  if (op != Operator::equal && op != Operator::not_equal && op != Operator::glob) return fail(kBadFieldOperator);
  const bool is_characters = field.kind == FieldKind::characters;
  if (!is_characters && field.kind != FieldKind::string && field.kind != FieldKind::name) return fail(kWantsNumber);
  const std::size_t begin = at_ + 1;
  at_ = std::min(filter_.find(now(), begin), filter_.size());
  if (at_ == filter_.size()) return fail(kQuoteOpen);
  const std::string_view text = filter_.substr(begin, at_ - begin);
  if (text.size() >= kMaxText) return fail(kTooLong);
  ++at_;
  const Pattern pattern = op == Operator::glob ? read_pattern(text) : as_it_is(text);
  const bool inverted = pattern.inverted || op == Operator::not_equal;
  return Term{.test = {.op = inverted ? TestOp::not_text : TestOp::text,
                       .size = static_cast<std::uint8_t>(pattern.match),
                       .target = 0,
                       .offset = field.offset,
                       .value = keep(pattern.text) | std::uint64_t{is_characters ? field.size : 0} << 48}};
}

Result<Term> TermReader::read_number(const FilterField& field, Operator op) {
  if (field.kind == FieldKind::string || field.kind == FieldKind::characters || field.kind == FieldKind::name)
    return fail(kWantsString);
  if (op == Operator::glob) return fail(kBadFieldOperator);
  const std::size_t begin = at_;
  take("-");
  skip_word();
  const std::string_view word = filter_.substr(begin, at_ - begin);
  if (word.size() >= kMaxNumber) return fail(kTooLong);
  std::uint64_t value = 0;
  std::int64_t with_sign = 0;
  const int err = field.is_signed ? spec::read_signed(word, 0, with_sign) : spec::read_unsigned(word, 0, value);
  if (err != 0) return fail_at(begin, kBadNumber);
  if (field.is_signed) value = static_cast<std::uint64_t>(with_sign);
  if (field.kind == FieldKind::cpu && op == Operator::bits) return fixed(false);
  return compare(field, op, field.is_signed, value);
}

// The kernel compares only numbers of 1, 2, 4 and 8 bytes, including arrays of these sizes.
Term TermReader::compare(const FilterField& field, Operator op, bool is_signed, std::uint64_t value) const {
  if (field.kind == FieldKind::stack || !is_comparable(field.size)) return fixed(false);
  const auto size = static_cast<std::uint8_t>(field.size);
  const TestOp test = number_test(op, is_signed);
  if (field.constant) return fixed(shared::number_holds(test, size, *field.constant, value));
  return {.test = {.op = test, .size = size, .target = 0, .offset = field.offset, .value = value}};
}

}  // namespace

bool is_filter_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\xa0'; }

Error filter_error(std::string_view filter, std::size_t column, std::string_view message, int err) {
  return Error{.code = Code::usage,
               .text = std::string(message),
               .where = std::string(filter),
               .column = static_cast<int>(std::min(column, filter.size())),
               .err = err};
}

Result<Term> read_term(std::string_view filter, std::size_t& at, const EventLayout& layout,
                       const FilterContext& context, std::string& texts) {
  TermReader reader(filter, at, layout, context, texts);
  auto term = reader.read();
  at = reader.at();
  return term;
}

}  // namespace uprobe::program
