// SPDX-License-Identifier: MIT
// Reads a `hist` trigger, attribute by attribute; then fields, which need the event's layout.
#include "engine/program/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <utility>

#include "engine/lex/number.h"

namespace uprobe::program {
namespace {

using shared::HistogramField;
using shared::HistogramGroup;
using shared::HistogramSource;
using Modifier = HistogramModifier;

constexpr std::string_view kNoField = "Couldn't find field";
constexpr std::string_view kBadModifier = "Invalid field modifier";
constexpr std::string_view kEmptyAssignment = "Empty assignment";
constexpr std::string_view kBadSortModifier = "Invalid sort modifier";
constexpr std::string_view kEmptySort = "Empty sort field";
constexpr std::string_view kTooManySorts = "Too many sort fields (Max = 2)";
constexpr std::string_view kBadSort = "Sort field must be a key or a val";
constexpr std::string_view kNothingToClear = "Can't clear or continue a nonexistent hist trigger";
constexpr std::string_view kNothingShown = "Non-hitcount value is required for 'nohitcount'";
constexpr std::string_view kHelp =
    "hist:keys=FIELD[,...][:vals=FIELD[,...]][:sort=FIELD[.descending]][:size=N][:nohitcount][:pause][ if FILTER]";

constexpr std::size_t kMaxSorts = 2;

constexpr std::array<std::pair<std::string_view, Modifier>, 7> kModifiers = {{
    {"hex", Modifier::hex},
    {"sym", Modifier::symbol},
    {"sym-offset", Modifier::symbol_offset},
    {"execname", Modifier::task},
    {"log2", Modifier::log2},
    {"percent", Modifier::percent},
    {"graph", Modifier::graph},
}};

std::string_view name_of(Modifier modifier) {
  if (modifier == Modifier::buckets) return "buckets";
  if (modifier == Modifier::log2_parts) return "log2";
  for (const auto& [name, known] : kModifiers)
    if (known == modifier) return name;
  return {};
}

std::uint16_t bytes_of(HistogramSource source) {
  if (source == HistogramSource::stack) return 8 * shared::kHistogramFrames;
  if (source == HistogramSource::task_name) return shared::kNameBytes;
  const bool is_number = source == HistogramSource::number || source == HistogramSource::cpu;
  return is_number ? 8 : shared::kHistogramText;
}

bool is_number(const HistogramField& field) {
  const auto source = static_cast<HistogramSource>(field.source);
  return source == HistogramSource::number || source == HistogramSource::cpu;
}

HistogramField number_at(std::uint32_t offset, std::uint16_t size, bool is_signed) {
  HistogramField field{};
  field.source = static_cast<std::uint8_t>(HistogramSource::number);
  field.offset = offset, field.size = size, field.is_signed = is_signed ? 1 : 0;
  return field;
}

HistogramField of_source(HistogramSource source, std::uint32_t offset = 0, std::uint16_t size = 0) {
  HistogramField field{};
  field.source = static_cast<std::uint8_t>(source);
  field.offset = offset, field.size = size;
  return field;
}

// A part of the text, and where it stands.
struct Piece {
  std::string_view text;
  std::size_t at = 0;
};

// Takes the piece up to `end`, which goes too; nothing is left behind it: `rest` is empty and `more` false.
Piece take(Piece& rest, char end, bool& more) {
  const std::size_t length = rest.text.find(end);
  const Piece piece{rest.text.substr(0, length), rest.at};
  more = length != std::string_view::npos;
  const std::size_t used = more ? length + 1 : rest.text.size();
  rest = {rest.text.substr(used), rest.at + used};
  return piece;
}

class HistogramReader {
 public:
  HistogramReader(std::string_view text, const EventLayout& layout) : text_(text), layout_(layout) {}

  Result<HistogramPlan> read(std::size_t at, std::size_t end);

 private:
  Error fail(std::size_t column, std::string_view what, Code code = Code::usage) const {
    return Error{.code = code,
                 .text = std::string(what),
                 .where = std::string(text_),
                 .column = static_cast<int>(column),
                 .help = std::string(kHelp),
                 .err = EINVAL};
  }
  Error absent(std::size_t column, std::string_view what) const {
    return fail(column, std::string(what) + " not available in this version", Code::refused);
  }
  Status attribute(Piece piece);
  Status assignment(Piece piece, std::size_t equals);
  Status flag(Piece piece);
  Status size(Piece number);
  Status values();
  Status keys();
  void place_keys();
  Status sorts();
  Status sort(Piece piece);
  Result<HistogramWord> word(Piece piece, bool is_key);
  Status modifier(Piece name, Piece modifier, bool is_key, HistogramWord& word);
  Status buckets(Piece modifier, HistogramWord& word) const;
  Status log2_parts(Piece modifier, HistogramWord& word) const;
  Result<HistogramWord> find(Piece name);
  Result<HistogramWord> argument(const Field& field, Piece name) const;

  std::string_view text_;
  const EventLayout& layout_;
  HistogramPlan plan_;
  std::optional<Piece> keys_, values_, sorts_;
  std::size_t no_hitcount_at_ = 0;
};

Status HistogramReader::size(Piece number) {
  std::uint64_t entries = 0;
  const bool is_size = spec::read_unsigned(number.text, 0, entries) == 0 && entries != 0 &&
                       entries <= std::uint64_t{1} << shared::kMaxHistogramBits;
  const std::uint32_t bits = is_size ? static_cast<std::uint32_t>(std::bit_width(entries - 1)) : 0;
  if (bits < shared::kMinHistogramBits) return fail(number.at, "the size is a number from 65 to 131072");
  plan_.bits = bits;
  return ok();
}

Status HistogramReader::assignment(Piece piece, std::size_t equals) {
  const std::string_view name = piece.text.substr(0, equals);
  const Piece value{piece.text.substr(equals + 1), piece.at + equals + 1};
  if (value.text.empty()) return fail(piece.at, kEmptyAssignment);
  if (name == "key" || name == "keys") return keys_ = value, ok();
  if (name == "val" || name == "vals" || name == "values") return values_ = value, ok();
  if (name == "sort") return sorts_ = value, ok();
  if (name == "size") return size(value);
  if (name == "name") return absent(piece.at, "histograms with names are");
  if (name == "clock") return absent(piece.at, "clocks are");
  return absent(piece.at, "variables are");
}

Status HistogramReader::flag(Piece piece) {
  if (piece.text == "nohitcount" || piece.text == "NOHC")
    return plan_.no_hitcount = true, no_hitcount_at_ = piece.at, ok();
  if (piece.text == "pause") return plan_.is_paused = true, ok();
  if (piece.text == "cont" || piece.text == "continue" || piece.text == "clear") return fail(piece.at, kNothingToClear);
  for (const std::string_view action : {"onmatch(", "onmax(", "onchange("})
    if (piece.text.starts_with(action)) return absent(piece.at, "actions are");
  return fail(piece.at, "a histogram has no attribute '" + std::string(piece.text) + "'");
}

Status HistogramReader::attribute(Piece piece) {
  const std::size_t equals = piece.text.find('=');
  return equals == std::string_view::npos ? flag(piece) : assignment(piece, equals);
}

Result<HistogramWord> HistogramReader::argument(const Field& field, Piece name) const {
  HistogramWord word{.name = field.name};
  const bool is_array = field.count != 0;
  if (field.kind == Kind::floating)
    return fail(name.at, "a floating-point number can be no key and no value", Code::refused);
  if (field.is_text && field.count <= shared::kHistogramText)
    word.field = of_source(HistogramSource::characters, field.offset, static_cast<std::uint16_t>(field.count));
  else if (field.is_wide)
    return fail(name.at, "a number of 16 bytes can be no key and no value; its lower eight can, :u64", Code::refused);
  else if (is_array)
    return fail(name.at, "an array can be no key and no value", Code::refused);
  else if (field.kind == Kind::string)
    word.field = of_source(HistogramSource::text, field.offset);
  else
    word.field = number_at(field.offset, field.size, field.kind == Kind::signed_decimal);
  return word;
}

Result<HistogramWord> HistogramReader::find(Piece name) {
  for (const Field& field : layout_.fields) {
    if (field.name != name.text) continue;
    plan_.wants_entry = plan_.wants_entry || field.of_entry;
    return argument(field, name);
  }
  const auto made = [](std::string_view shown, HistogramField field) {
    return HistogramWord{.name = std::string(shown), .field = field};
  };
  const std::string_view text = name.text;
  if (text == head_name(layout_)) return made(text, number_at(8, 8, false));
  if (layout_.is_return && text == "__probe_ret_ip") return made(text, number_at(16, 8, false));
  if (text == "common_pid") return made(text, number_at(4, 4, true));
  if (text == "cpu" || text == "CPU" || text == "common_cpu")
    return made("common_cpu", of_source(HistogramSource::cpu));
  if (text == "stacktrace" || text == "STACKTRACE" || text == "common_stacktrace")
    return made("common_stacktrace", of_source(HistogramSource::stack));
  if (text == "comm" || text == "COMM" || text == "common_comm")
    return made("common_comm", of_source(HistogramSource::task_name));
  if (text == "common_timestamp") return absent(name.at, "time stamps as keys and values are");
  Error error = fail(name.at, kNoField);
  error.help = fields_help(layout_);
  return error;
}

Status HistogramReader::buckets(Piece modifier, HistogramWord& word) const {
  std::string_view rest = modifier.text.substr(sizeof "bucket" - 1);
  if (rest.starts_with('s')) rest.remove_prefix(1);
  if (!rest.starts_with('=')) return fail(modifier.at, kBadModifier);
  if (spec::read_unsigned(rest.substr(1), 0, word.width) != 0 || word.width == 0)
    return fail(modifier.at, kBadModifier);
  word.modifier = Modifier::buckets;
  word.field.group = static_cast<std::uint8_t>(HistogramGroup::buckets);
  word.field.width = word.width;
  return ok();
}

// Not the kernel's: as bpftrace's hist(VALUE, BITS).
Status HistogramReader::log2_parts(Piece modifier, HistogramWord& word) const {
  const std::string_view bits = modifier.text.substr(sizeof "log2=" - 1);
  if (spec::read_unsigned(bits, 0, word.width) != 0 || word.width == 0 || word.width > shared::kMaxLog2Parts)
    return fail(modifier.at, "the bits of log2= are a number from 1 to " + std::to_string(shared::kMaxLog2Parts));
  word.modifier = Modifier::log2_parts;
  word.field.group = static_cast<std::uint8_t>(HistogramGroup::log2_parts);
  word.field.width = word.width;
  return ok();
}

// Values show what was added up; keys are not added up.
bool is_of(Modifier modifier, bool is_key) {
  if (modifier == Modifier::hex) return true;
  return is_key == (modifier != Modifier::percent && modifier != Modifier::graph);
}

Status HistogramReader::modifier(Piece name, Piece modifier, bool is_key, HistogramWord& word) {
  const bool is_bare_number = is_number(word.field);
  if (modifier.text == "syscall") return absent(modifier.at, "names of system calls are");
  if (is_key && is_bare_number && modifier.text.starts_with("bucket")) return buckets(modifier, word);
  if (is_key && is_bare_number && modifier.text.starts_with("log2=")) return log2_parts(modifier, word);
  const auto known = std::ranges::find(kModifiers, modifier.text, &std::pair<std::string_view, Modifier>::first);
  if (known == kModifiers.end() || !is_bare_number || !is_of(known->second, is_key))
    return fail(modifier.at, kBadModifier);
  if (known->second == Modifier::task && name.text != "common_pid") return fail(modifier.at, kBadModifier);
  word.modifier = known->second;
  if (word.modifier == Modifier::log2) word.field.group = static_cast<std::uint8_t>(HistogramGroup::log2);
  return ok();
}

HistogramWord hitcount() { return {.name = "hitcount", .is_hitcount = true}; }

// "sym-offset" has the only sign that is no operator.
bool is_expression(std::string_view text) {
  if (text.ends_with(".sym-offset")) text.remove_suffix(sizeof ".sym-offset" - 1);
  return text.find_first_of("+-*/$") != std::string_view::npos;
}

Result<HistogramWord> HistogramReader::word(Piece piece, bool is_key) {
  if (is_expression(piece.text)) return absent(piece.at, "expressions and variables are");
  bool has_modifier = false;
  Piece rest = piece;
  const Piece name = take(rest, '.', has_modifier);
  auto found = !is_key && name.text == "hitcount" ? Result<HistogramWord>(hitcount()) : find(name);
  if (!found) return found;
  if (!is_key && !is_number(found->field)) return fail(piece.at, "only a number can be a value");
  if (has_modifier) RETURN_IF_ERROR(modifier(name, rest, is_key, *found));
  return found;
}

Status HistogramReader::values() {
  plan_.values.push_back(hitcount());
  bool more = values_.has_value();
  for (bool has_hitcount = false; more;) {
    const Piece piece = take(*values_, ',', more);
    if (piece.text == "hitcount" && !has_hitcount) {
      has_hitcount = true;
      continue;
    }
    if (plan_.values.size() > shared::kMaxHistogramValues)
      return fail(piece.at, "a histogram has two values at most, besides hitcount");
    auto value = word(piece, false);
    if (!value) return value.error();
    plan_.values.push_back(value.take());
  }
  if (plan_.values.size() == 1 && plan_.no_hitcount) return fail(no_hitcount_at_, kNothingShown);
  return ok();
}

Status HistogramReader::keys() {
  for (bool more = true; more;) {
    const Piece piece = take(*keys_, ',', more);
    if (plan_.keys.size() == shared::kMaxHistogramKeys) return fail(piece.at, "a histogram has three keys at most");
    auto key = word(piece, true);
    if (!key) return key.error();
    const auto bytes = bytes_of(static_cast<HistogramSource>(key->field.source));
    if (plan_.key_bytes + bytes > shared::kMaxHistogramKey)
      return fail(piece.at, "the keys are larger than 1,280 bytes (a string is 256, a stack 1,024, a number 8)");
    plan_.key_bytes += bytes;
    plan_.keys.push_back(key.take());
  }
  place_keys();
  return ok();
}

// A stack comes last: agents leave out what is after its last frame.
void HistogramReader::place_keys() {
  std::uint32_t at = 0;
  for (const bool is_stack : {false, true})
    for (HistogramWord& key : plan_.keys) {
      const auto source = static_cast<HistogramSource>(key.field.source);
      if ((source == HistogramSource::stack) != is_stack) continue;
      key.field.key_offset = static_cast<std::uint16_t>(at);
      at += bytes_of(source);
    }
}

Status HistogramReader::sort(Piece piece) {
  bool has_modifier = false;
  Piece order = piece;
  const Piece name = take(order, '.', has_modifier);
  if (name.text.empty()) return fail(piece.at, kEmptySort);
  std::vector<std::string> names;
  for (const auto* words : {&plan_.values, &plan_.keys})
    for (const HistogramWord& known : *words) names.push_back(known.name);
  const auto found = std::ranges::find(names, name.text);
  if (found == names.end()) return fail(name.at, kBadSort);
  const bool descending = has_modifier && order.text == "descending";
  if (has_modifier && !descending && order.text != "ascending") return fail(order.at, kBadSortModifier);
  plan_.sorts.push_back({.field = static_cast<std::size_t>(found - names.begin()), .descending = descending});
  return ok();
}

Status HistogramReader::sorts() {
  if (!sorts_) return plan_.sorts.push_back({}), ok();
  const std::size_t begin = sorts_->at;
  if (static_cast<std::size_t>(std::ranges::count(sorts_->text, ',')) >= kMaxSorts) return fail(begin, kTooManySorts);
  for (bool more = true; more;) RETURN_IF_ERROR(sort(take(*sorts_, ',', more)));
  return ok();
}

Result<HistogramPlan> HistogramReader::read(std::size_t at, std::size_t end) {
  Piece rest{text_.substr(at, end - at), at};
  for (bool more = true; more;) RETURN_IF_ERROR(attribute(take(rest, ':', more)));
  if (!keys_) return fail(at, "keys= is missing");
  for (const auto part : {&HistogramReader::values, &HistogramReader::keys, &HistogramReader::sorts})
    RETURN_IF_ERROR((this->*part)());
  return std::move(plan_);
}

std::string shown(const HistogramWord& word) {
  std::string text = word.name;
  if (word.modifier != Modifier::none) text += "." + std::string(name_of(word.modifier));
  if (word.width != 0) text += "=" + std::to_string(word.width);
  return text;
}

void join(std::string& text, const std::string& part) {
  if (!text.empty()) text += ",";
  text += part;
}

std::string sort_text(const HistogramPlan& plan) {
  std::string text;
  for (const HistogramSort& sort : plan.sorts) {
    const bool is_value = sort.field < plan.values.size();
    const HistogramWord& word = is_value ? plan.values[sort.field] : plan.keys[sort.field - plan.values.size()];
    join(text, shown(word) + (sort.descending ? ".descending" : ""));
  }
  return text;
}

std::string fields_text(const HistogramPlan& plan) {
  std::string keys, values;
  for (const HistogramWord& key : plan.keys) join(keys, shown(key));
  for (std::size_t i = plan.no_hitcount ? 1 : 0; i < plan.values.size(); ++i) join(values, shown(plan.values[i]));
  return "hist:keys=" + keys + ":vals=" + values + ":sort=" + sort_text(plan);
}

}  // namespace

std::string HistogramPlan::text() const {
  return fields_text(*this) + ":size=" + std::to_string(1U << bits) + (no_hitcount ? ":nohitcount" : "") +
         (filter.empty() ? "" : " if " + filter) + (is_paused ? " [paused]" : " [active]");
}

Result<HistogramPlan> parse_histogram(std::string_view text, std::size_t at, std::size_t end,
                                      const EventLayout& layout) {
  return HistogramReader(text, layout).read(at, end);
}

bool are_same(const HistogramPlan& a, const HistogramPlan& b) {
  return fields_text(a) == fields_text(b) && a.filter == b.filter;
}

}  // namespace uprobe::program
