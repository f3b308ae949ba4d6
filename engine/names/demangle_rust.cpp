// SPDX-License-Identifier: MIT
// Anybody may have made the symbol: its steps, its nesting and its text are bounded.
#include "engine/names/demangle_rust.h"

#include <array>
#include <cstdint>
#include <utility>

namespace uprobe::elf {
namespace {

constexpr std::size_t kMostText = std::size_t{16} << 10;
constexpr int kMostSteps = 4096, kDeepest = 64;
constexpr std::uint32_t kFirstPrintable = 32, kLastCharacter = 0x10ffff;
constexpr char kDelete = 127;
constexpr std::size_t kHashBytes = 17;  // 'h' and 16 digits

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_decimal(c) || (c >= 'a' && c <= 'f'); }

// In UTF-8: a first byte that says how many follow, with six bits in each of those.
void put_character(std::string& to, std::uint32_t code) {
  if (code < 128) return to.push_back(static_cast<char>(code));
  const unsigned more = code < 2048 ? 1 : code < 65536 ? 2 : 3;
  to.push_back(static_cast<char>((256 - (128 >> more)) | code >> (6 * more)));
  for (unsigned left = more; left-- > 0;) to.push_back(static_cast<char>(128 | (code >> (6 * left) & 63)));
}

// "$LT$" and the like; the number of bytes read, 0: it is none.
std::size_t put_escape(std::string& to, std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 8> kEscapes = {{{"$SP$", '@'},
                                                                                 {"$BP$", '*'},
                                                                                 {"$RF$", '&'},
                                                                                 {"$LT$", '<'},
                                                                                 {"$GT$", '>'},
                                                                                 {"$LP$", '('},
                                                                                 {"$RP$", ')'},
                                                                                 {"$C$", ','}}};
  for (const auto& [escape, sign] : kEscapes)
    if (text.starts_with(escape)) return to.push_back(sign), escape.size();
  if (!text.starts_with("$u")) return 0;
  std::uint32_t code = 0;
  std::size_t at = 2;
  for (; at < text.size() && at < 8 && is_hex(text[at]); ++at)
    code = code * 16 + static_cast<std::uint32_t>(is_decimal(text[at]) ? text[at] - '0' : text[at] - 'a' + 10);
  if (at == 2 || at >= text.size() || text[at] != '$' || code < kFirstPrintable || code > kLastCharacter) return 0;
  put_character(to, code);
  return at + 1;
}

void put_legacy(std::string& to, std::string_view part) {
  if (part.starts_with("_$")) part.remove_prefix(1);
  while (!part.empty()) {
    std::size_t read = put_escape(to, part);
    if (read == 0 && part.starts_with("..")) to += "::", read = 2;
    if (read == 0) to += part[0], read = 1;
    part.remove_prefix(read);
  }
}

bool is_hash(std::string_view part) {
  if (part.size() != kHashBytes || part[0] != 'h') return false;
  for (const char c : part.substr(1))
    if (!is_hex(c)) return false;
  return true;
}

// A recursive descent. After a failure nothing more is read or written.
class V0 {
 public:
  explicit V0(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    path(true);
    // The crate that the function was made for, and what compilers add.
    if (good_ && at_ < text_.size() && text_[at_] != '.' && text_[at_] != '$') {
      const std::size_t length = out_.size();
      path(false);
      out_.resize(std::min(length, out_.size()));
    }
    if (!good_ || (at_ < text_.size() && text_[at_] != '.' && text_[at_] != '$')) return {};
    return out_;
  }

 private:
  class Level {
   public:
    explicit Level(V0& in) : in_(in) {
      if (++in_.depth_ > kDeepest || ++in_.steps_ > kMostSteps || in_.out_.size() > kMostText) in_.good_ = false;
    }
    Level(const Level&) = delete;
    ~Level() { --in_.depth_; }

   private:
    V0& in_;
  };

  char peek() const { return good_ && at_ < text_.size() ? text_[at_] : '\0'; }
  char next() {
    const char c = peek();
    if (c == '\0') good_ = false;
    ++at_;
    return c;
  }
  bool eat(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void put(std::string_view what) {
    if (good_ && out_.size() + what.size() <= kMostText) out_ += what;
  }

  std::uint64_t base62();
  std::uint64_t optional62(char mark) { return eat(mark) ? base62() + 1 : 0; }
  std::string_view identifier(bool& is_punycode);
  void put_identifier(std::string_view name, bool is_punycode);
  template <class Read>
  void back(Read read);
  void path(bool is_value);
  void impl_path();
  void nested(bool is_value);
  void generic_argument();
  void type();
  void pointer(std::string_view sign, std::string_view qualifier);
  void function_type();
  void dyn_type();
  void dyn_trait();
  void constant();
  void lifetime(std::uint64_t index);
  std::uint64_t binder();
  template <class Read>
  std::size_t list(Read read) {
    std::size_t count = 0;
    for (; good_ && !eat('E'); ++count) {
      if (count != 0) put(", ");
      read();
    }
    return count;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
  bool good_ = true;
  int depth_ = 0, steps_ = 0;
  std::uint64_t lifetimes_ = 0;
};

// "_" is 0, "0_" is 1. Of the hash of a crate, which has more digits than fit, nothing is used.
std::uint64_t V0::base62() {
  std::uint64_t value = 0;
  if (eat('_')) return 0;
  while (good_ && !eat('_')) {
    const char c = next();
    const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
    if (!is_decimal(c) && !lower && !upper) good_ = false;
    const int digit = is_decimal(c) ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 36;
    value = value * 62 + static_cast<std::uint64_t>(digit);
  }
  return value + 1;
}

std::string_view V0::identifier(bool& is_punycode) {
  is_punycode = eat('u');
  std::size_t length = 0;
  if (!is_decimal(peek())) good_ = false;
  if (!eat('0'))
    while (is_decimal(peek()) && length <= text_.size()) length = length * 10 + static_cast<std::size_t>(next() - '0');
  eat('_');
  if (!good_ || length > text_.size() - at_) return good_ = false, std::string_view();
  const std::string_view name = text_.substr(at_, length);
  at_ += length;
  return name;
}

void V0::put_identifier(std::string_view name, bool is_punycode) {
  if (is_punycode) put("punycode{");
  put(name);
  if (is_punycode) put("}");
}

// A back reference leads to an earlier byte.
template <class Read>
void V0::back(Read read) {
  const std::size_t from = at_ - 1;
  const std::uint64_t to = base62();
  if (to >= from) good_ = false;
  if (!good_) return;
  const std::size_t after = std::exchange(at_, static_cast<std::size_t>(to));
  read();
  at_ = after;
}

void V0::path(bool is_value) {
  const Level level(*this);
  bool is_punycode = false;
  switch (next()) {
    case 'C': {
      optional62('s');
      const std::string_view name = identifier(is_punycode);
      return put_identifier(name, is_punycode);
    }
    case 'N':
      return nested(is_value);
    case 'M':
      impl_path();
      put("<");
      type();
      return put(">");
    case 'X':
      impl_path();
      [[fallthrough]];
    case 'Y':
      put("<");
      type();
      put(" as ");
      path(false);
      return put(">");
    case 'I':
      path(is_value);
      put(is_value ? "::<" : "<");
      list([this] { generic_argument(); });
      return put(">");
    case 'B':
      return back([this, is_value] { path(is_value); });
    default:
      good_ = false;
  }
}

// Where the impl stands is not a part of the name.
void V0::impl_path() {
  const std::size_t length = out_.size();
  optional62('s');
  path(false);
  out_.resize(std::min(length, out_.size()));
}

void V0::nested(bool is_value) {
  const char space = next();
  path(is_value);
  const std::uint64_t number = optional62('s');
  bool is_punycode = false;
  const std::string_view name = identifier(is_punycode);
  if (space >= 'A' && space <= 'Z') {
    put("::{");
    put(space == 'C' ? "closure" : space == 'S' ? "shim" : std::string_view(&space, 1));
    if (!name.empty()) put(":"), put_identifier(name, is_punycode);
    put("#" + std::to_string(number));
    return put("}");
  }
  if (name.empty()) return;
  put("::");
  put_identifier(name, is_punycode);
}

void V0::generic_argument() {
  if (eat('L')) return lifetime(base62());
  if (eat('K')) return constant();
  type();
}

void V0::lifetime(std::uint64_t index) {
  if (index == 0) return put("'_");
  if (index > lifetimes_) return void(good_ = false);
  const std::uint64_t number = lifetimes_ - index;
  if (number >= 26) return put("'_" + std::to_string(number));
  const char name[] = {'\'', static_cast<char>('a' + number)};
  put({name, sizeof name});
}

// The lifetimes that it adds.
std::uint64_t V0::binder() {
  const std::uint64_t count = optional62('G');
  if (count > static_cast<std::uint64_t>(kDeepest)) good_ = false;
  if (count == 0 || !good_) return 0;
  put("for<");
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i != 0) put(", ");
    ++lifetimes_;
    lifetime(1);
  }
  put("> ");
  return count;
}

void V0::pointer(std::string_view sign, std::string_view qualifier) {
  put(sign);
  if (sign == "&" && eat('L'))
    if (const std::uint64_t index = base62(); index != 0) lifetime(index), put(" ");
  put(qualifier);
  type();
}

void V0::type() {
  const Level level(*this);
  static constexpr std::array<std::string_view, 26> kBasic = {
      "i8",   "bool", "char", "f64", "str", "f32", "",    "u8", "isize", "usize", "",    "i32", "u32",
      "i128", "u128", "_",    "",    "",    "i16", "u16", "()", "...",   "",      "i64", "u64", "!"};
  const char c = next();
  if (c >= 'a' && c <= 'z' && !kBasic[static_cast<std::size_t>(c - 'a')].empty())
    return put(kBasic[static_cast<std::size_t>(c - 'a')]);
  switch (c) {
    case 'R':
      return pointer("&", "");
    case 'Q':
      return pointer("&", "mut ");
    case 'P':
      return pointer("*", "const ");
    case 'O':
      return pointer("*", "mut ");
    case 'A':
    case 'S':
      put("[");
      type();
      if (c == 'A') put("; "), constant();
      return put("]");
    case 'T': {
      put("(");
      const std::size_t count = list([this] { type(); });
      return put(count == 1 ? ",)" : ")");
    }
    case 'F':
      return function_type();
    case 'D':
      return dyn_type();
    case 'B':
      return back([this] { type(); });
    default:
      --at_;
      path(false);
  }
}

void V0::function_type() {
  const std::uint64_t bound = binder();
  if (eat('U')) put("unsafe ");
  if (eat('K')) {
    bool is_punycode = false;
    put("extern \"");
    put(eat('C') ? std::string_view("C") : identifier(is_punycode));
    put("\" ");
  }
  put("fn(");
  list([this] { type(); });
  put(")");
  if (!eat('u')) put(" -> "), type();
  lifetimes_ -= bound;
}

void V0::dyn_type() {
  put("dyn ");
  const std::uint64_t bound = binder();
  for (std::size_t count = 0; good_ && !eat('E'); ++count) {
    if (count != 0) put(" + ");
    dyn_trait();
  }
  lifetimes_ -= bound;
  if (!eat('L')) return void(good_ = false);
  if (const std::uint64_t index = base62(); index != 0) put(" + "), lifetime(index);
}

void V0::dyn_trait() {
  path(false);
  for (bool is_first = !out_.ends_with('>'); eat('p'); is_first = false) {
    if (!is_first && out_.ends_with('>')) out_.pop_back();
    put(is_first ? "<" : ", ");
    bool is_punycode = false;
    const std::string_view name = identifier(is_punycode);
    put_identifier(name, is_punycode);
    put(" = ");
    type();
    put(">");
  }
}

void V0::constant() {
  const Level level(*this);
  if (eat('p')) return put("_");
  if (eat('B')) return back([this] { constant(); });
  const char kind = next();
  if (std::string_view("aslxnihtmyojbc").find(kind) == std::string_view::npos) return void(good_ = false);
  if (eat('n')) put("-");
  std::uint64_t value = 0;
  const std::size_t from = at_;
  while (is_hex(peek())) {
    const char c = next();
    value = value << 4 | static_cast<std::uint64_t>(is_decimal(c) ? c - '0' : c - 'a' + 10);
  }
  const std::string_view digits = text_.substr(std::min(from, text_.size()), at_ - from);
  if (!eat('_')) return void(good_ = false);
  if (kind == 'b') return put(value == 0 ? "false" : "true");
  if (digits.size() > 16) return put("0x"), put(digits);
  if (kind != 'c') return put(std::to_string(value));
  if (value < kFirstPrintable || value > kLastCharacter) return void(good_ = false);
  std::string character = "'";
  put_character(character, static_cast<std::uint32_t>(value));
  put(character + "'");
}

}  // namespace

std::optional<std::string> demangle_rust_legacy(std::string_view symbol) {
  if (!symbol.starts_with("_ZN")) return {};
  std::string text;
  for (std::size_t at = 3; at < symbol.size();) {
    std::size_t length = 0;
    for (; at < symbol.size() && is_decimal(symbol[at]) && length <= symbol.size(); ++at)
      length = length * 10 + static_cast<std::size_t>(symbol[at] - '0');
    if (length == 0 || length > symbol.size() - at) return {};
    const std::string_view part = symbol.substr(at, length);
    at += length;
    if (at < symbol.size() && symbol[at] == 'E') {
      const std::string_view end = symbol.substr(at + 1);
      if (!is_hash(part) || text.empty() || (!end.empty() && end[0] != '.')) return {};
      return text;
    }
    if (!text.empty()) text += "::";
    put_legacy(text, part);
  }
  return {};
}

std::optional<std::string> demangle_rust_v0(std::string_view symbol) {
  if (!symbol.starts_with("_R") || symbol.size() < 4) return {};
  for (const char c : symbol)
    if (c <= ' ' || c == kDelete) return {};
  return V0(symbol.substr(2)).read();
}

}  // namespace uprobe::elf
