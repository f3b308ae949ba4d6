// SPDX-License-Identifier: MIT
// Reading places. Like the kernel, this looks the file up before it reads the offset, and reads the reference counter before
// the %return and that before the offset.
//
// A symbol may be a demangled name as well as a plain one: it may have "::", parentheses, '<', '@', '%' (operator%) and '+', so
// its suffixes are removed from the end, and only if they cannot be part of a name.
#include "engine/spec/place.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/lex/number.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

class PlaceParser {
 public:
  PlaceParser(const Command& command, const ParseOptions& options)
      : command_(command), options_(options), word_(command.word(1)) {}

  Result<ParsedPlace> parse();

 private:
  Status split();
  Status split_strict();
  bool names_generated() const;
  Status take_generated();
  std::optional<std::size_t> marker_start(std::string_view kind) const;
  Status take_marker(std::size_t start, std::string_view kind);
  void take_source();
  bool is_missing(const std::string& path) const;
  Status check_file();
  Status take_counter();
  Status take_return();
  Status read_offset();
  Status read_line();
  Status read_symbol();
  bool is_path() const;
  bool at_offset() const { return !rest_.empty() && is_digit(rest_[0]); }
  std::size_t counter_start() const;
  std::size_t separator() const;
  void set_rest(std::size_t offset);

  Error blame(std::size_t offset, std::string_view message, int err = EINVAL) const {
    return command_.blame(1, offset, message, err);
  }
  std::size_t rest_end() const { return rest_offset_ + rest_.size(); }

  const Command& command_;
  const ParseOptions& options_;
  std::string_view word_;
  std::string_view rest_;  // the unread part of the text after the path
  std::size_t rest_offset_ = 0;
  ParsedPlace result_;
};

Result<ParsedPlace> PlaceParser::parse() {
  if (names_generated()) {
    RETURN_IF_ERROR(take_generated());
    return std::move(result_);
  }
  for (const std::string_view kind : {kMarker, kMark})
    if (const auto start = marker_start(kind)) {
      RETURN_IF_ERROR(take_marker(*start, kind));
      return std::move(result_);
    }
  RETURN_IF_ERROR(options_.strict ? split_strict() : split());
  take_source();
  RETURN_IF_ERROR(check_file());
  RETURN_IF_ERROR(take_counter());
  RETURN_IF_ERROR(take_return());
  RETURN_IF_ERROR(at_offset() ? read_offset() : read_symbol());
  return std::move(result_);
}

void PlaceParser::set_rest(std::size_t offset) {
  rest_offset_ = offset;
  rest_ = word_.substr(offset);
  result_.place.path_column = static_cast<int>(command_.start(1));
  result_.place.place_column = static_cast<int>(command_.start(1) + offset);
}

bool PlaceParser::names_generated() const {
  return !options_.strict && word_.starts_with(kGeneratedCode) && word_.substr(kGeneratedCode.size()).starts_with(':');
}

// All of the rest is the name: code generators write any character, and "f:1:13" is no line.
Status PlaceParser::take_generated() {
  set_rest(kGeneratedCode.size() + 1);
  result_.is_return = rest_.ends_with(kReturn);
  if (result_.is_return) rest_.remove_suffix(kReturn.size());
  if (rest_.empty()) return blame(rest_offset_, message::kNoSymbol);
  result_.place.program = options_.default_object;
  result_.place.path = std::string(kGeneratedCode);
  result_.place.symbol = std::string(rest_);
  result_.place.is_generated = true;
  return ok();
}

// Where the PROVIDER of "sdt:PROVIDER:NAME" begins. Two words follow the "sdt:", and no ':' is part of them.
std::optional<std::size_t> PlaceParser::marker_start(std::string_view kind) const {
  if (options_.strict) return {};
  const std::string with_colon = std::string(kind) + ":";
  const std::size_t inside = word_.rfind(":" + with_colon);
  const bool is_first = word_.starts_with(with_colon) && inside == std::string_view::npos;
  if (!is_first && inside == std::string_view::npos) return {};
  const std::size_t start = (is_first ? 0 : inside + 1) + with_colon.size();
  const std::string_view rest = word_.substr(start);
  const std::size_t colon = rest.find(':');
  const bool is_marker = colon != std::string_view::npos && colon != 0 && colon + 1 < rest.size() &&
                         rest.find(':', colon + 1) == std::string_view::npos && inside != 0;
  return is_marker ? std::optional(start) : std::nullopt;
}

Status PlaceParser::take_marker(std::size_t start, std::string_view kind) {
  Place& place = result_.place;
  set_rest(start);
  const std::size_t colon = rest_.find(':'), path_bytes = start - kind.size() - 1;
  place.is_mark = kind == kMark;
  place.provider = std::string(rest_.substr(0, colon));
  place.marker = std::string(rest_.substr(colon + 1));
  place.program = options_.default_object;
  place.names_object = path_bytes != 0;
  place.path = place.names_object ? std::string(word_.substr(0, path_bytes - 1)) : options_.default_object;
  if (place.marker.ends_with(kReturn)) return blame(word_.size() - kReturn.size(), message::kMarkerReturn);
  if (place.path.empty()) {
    Error error = blame(0, message::kNoPath);
    error.help = "name the object before it, PATH:" + std::string(kind) + ":PROVIDER:NAME, or by -x FILE";
    return error;
  }
  return check_file();
}

// The kernel gives no message for these three.
Status PlaceParser::split_strict() {
  if (word_.find('/') == std::string_view::npos) return blame(0, message::kNoSlash);
  const std::size_t colon = word_.rfind(':');
  if (colon == std::string_view::npos) return blame(word_.size(), message::kNoOffset);
  set_rest(colon + 1);
  if (!at_offset()) return blame(rest_offset_, message::kNoOffset);
  result_.place.path = std::string(word_.substr(0, colon));
  return ok();
}

// The ':' between path and symbol: the last one that is not part of a "::" or inside of parentheses. None: npos.
std::size_t PlaceParser::separator() const {
  const auto closes_more = [](std::string_view text) {
    return std::count(text.begin(), text.end(), ')') > std::count(text.begin(), text.end(), '(');
  };
  const bool has_pairs = !closes_more(word_);
  std::size_t at = word_.rfind(':');
  if (at != std::string_view::npos && at + 1 < word_.size() && is_digit(word_[at + 1])) return at;
  while (at != std::string_view::npos) {
    std::size_t first = at;
    while (first > 0 && word_[first - 1] == ':') --first;
    const bool is_tag = word_.substr(0, first).ends_with("[abi");
    const bool is_inside = has_pairs && closes_more(word_.substr(first));
    if ((at - first) % 2 == 0 && !is_tag && !is_inside) return first;
    at = first == 0 ? std::string_view::npos : word_.rfind(':', first - 1);
  }
  return at;
}

Status PlaceParser::split() {
  result_.place.program = options_.default_object;
  const std::size_t colon = separator();
  if (colon == 0) return blame(0, message::kNoPath);
  if (colon != std::string_view::npos) {
    set_rest(colon + 1);
    result_.place.path = std::string(word_.substr(0, colon));
    return ok();
  }
  if (options_.default_object.empty() || is_path()) {
    Error error = blame(word_.size(), message::kNoSymbol);
    if (word_.find('/') == std::string_view::npos) error.help = "or name the object for all definitions with -x FILE";
    return error;
  }
  set_rest(0);
  result_.place.path = options_.default_object;
  result_.place.is_address = at_offset();
  result_.place.names_object = false;
  return ok();
}

// No name of C or C++ starts with these characters.
bool PlaceParser::is_path() const {
  return word_.starts_with('/') || word_.starts_with("./") || word_.starts_with("../");
}

bool PlaceParser::is_missing(const std::string& path) const {
  if (path.find('/') == std::string::npos) return true;
  return options_.file_check && options_.file_check(path).err != 0;
}

// PATH:SOURCE:LINE, if no file has the name PATH:SOURCE, and SOURCE:LINE of an object that is named elsewhere.
void PlaceParser::take_source() {
  Place& place = result_.place;
  if (options_.strict || !at_offset() || !place.names_object || rest_.starts_with("0x")) return;
  const std::size_t colon = place.path.rfind(':');
  if (colon != std::string::npos && colon != 0 && is_missing(place.path)) {
    place.source = place.path.substr(colon + 1);
    place.path.resize(colon);
    place.place_column = place.path_column + static_cast<int>(colon) + 1;
  } else if (!options_.default_object.empty() && place.path.find_first_of("/:") == std::string::npos &&
             is_source_name(place.path)) {
    place.source = std::exchange(place.path, options_.default_object);
    place.place_column = place.path_column;
  }
}

// A name without a slash is a program, which the caller finds through PATH. (To the kernel it is a file in the current
// directory, and an empty path is that directory.)
Status PlaceParser::check_file() {
  Place& place = result_.place;
  if (!options_.file_check) return ok();
  if (!options_.strict && place.path.find('/') == std::string::npos) return ok();
  const FileState state = options_.file_check(place.path.empty() ? "." : place.path);
  if (state.err != 0) return blame(0, message::kFileNotFound, state.err);
  if (!state.is_regular) return blame(0, message::kNotRegularFile);
  place.device = state.device;
  place.inode = state.inode;
  return ok();
}

// Where "(REFCTR)" starts; npos: there is none. After a symbol only parentheses around a number count.
std::size_t PlaceParser::counter_start() const {
  if (at_offset()) return rest_.find('(');
  const std::size_t open = rest_.rfind('(');
  if (open == std::string_view::npos || open + 1 >= rest_.size() || !is_digit(rest_[open + 1]))
    return std::string_view::npos;
  return open;
}

Status PlaceParser::take_counter() {
  const std::size_t open = counter_start();
  if (open == std::string_view::npos) return ok();
  const std::size_t close = rest_.find(')', open);
  if (close == std::string_view::npos) return blame(rest_end(), message::kCounterOpen);
  if (close + 1 != rest_.size()) return blame(rest_offset_ + close + 1, message::kCounterSuffix);
  std::uint64_t counter = 0;
  if (const int err = read_unsigned(rest_.substr(open + 1, close - open - 1), 0, counter))
    return blame(rest_offset_ + open + 1, message::kBadCounter, err);
  if (counter != 0) result_.place.reference_counter = counter;  // (0) is as good as none
  rest_ = rest_.substr(0, open);
  if (counter_start() != std::string_view::npos) return blame(rest_offset_ + open, message::kCounterSuffix);
  return ok();
}

// A '%' is the suffix or, after a symbol's "operator", part of the name.
Status PlaceParser::take_return() {
  std::size_t percent = rest_.find('%');
  while (percent != std::string_view::npos && !at_offset() && rest_.substr(0, percent).ends_with(kOperator))
    percent = rest_.find('%', percent + 1);
  if (percent == std::string_view::npos) return ok();
  if (rest_.substr(percent) != kReturn) return blame(rest_offset_ + percent, message::kAddressSuffix);
  rest_ = rest_.substr(0, percent);
  result_.is_return = true;
  return ok();
}

Status PlaceParser::read_offset() {
  if (!result_.place.source.empty()) return read_line();
  if (const int err = read_unsigned(rest_, 0, result_.place.offset))
    return blame(rest_offset_, message::kBadOffset, err);
  return ok();
}

Status PlaceParser::read_line() {
  std::uint64_t line = 0;
  const bool of_function = result_.place.source.find('.') == std::string::npos;  // whose own line is line 0
  if (read_unsigned(rest_, 10, line) != 0 || (line == 0 && !of_function) || line > INT32_MAX)
    return blame(rest_offset_, message::kBadLine);
  result_.place.line = static_cast<int>(line);
  return ok();
}

// SYMBOL, SYMBOL+OFFS, SYMBOL-OFFS
Status PlaceParser::read_symbol() {
  Place& place = result_.place;
  const std::size_t sign = distance_start(rest_);
  const std::string_view symbol = rest_.substr(0, sign);
  if (sign != rest_.size()) {
    std::int64_t distance = 0;
    const int err = read_signed(rest_.substr(sign + 1), 0, distance);
    if (err != 0 || distance_start(symbol) != symbol.size())
      return blame(rest_offset_ + sign + 1, message::kBadSymbolOffset, err != 0 ? err : EINVAL);
    place.offset = static_cast<std::uint64_t>(rest_[sign] == '-' ? -distance : distance);
  }
  if (symbol.empty()) return blame(rest_offset_, message::kNoSymbol);
  place.symbol = std::string(symbol);
  return ok();
}

}  // namespace

bool is_source_name(std::string_view name) {
  static constexpr std::string_view kEndings[] = {"c",   "cc",  "cpp", "cxx", "c++", "C",  "h",  "hh",
                                                  "hpp", "hxx", "inc", "s",   "S",   "rs", "go", "d",
                                                  "f",   "f90", "m",   "mm",  "y",   "l",  "zig"};
  const std::size_t dot = name.rfind('.');
  return dot != std::string_view::npos &&
         std::find(std::begin(kEndings), std::end(kEndings), name.substr(dot + 1)) != std::end(kEndings);
}

Result<ParsedPlace> parse_place(const Command& command, const ParseOptions& options) {
  return PlaceParser(command, options).parse();
}

}  // namespace uprobe::spec
