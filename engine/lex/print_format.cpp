// SPDX-License-Identifier: MIT
#include "engine/lex/print_format.h"

#include <algorithm>
#include <utility>

#include "engine/lex/words.h"

namespace uprobe::spec {
namespace {

constexpr std::string_view kLetters = "duoxXcspfFeEgGaA", kFloating = "fFeEgGaA", kSizes = "hlqjztL";

// Reads the conversion after a '%'.
class ConversionReader {
 public:
  explicit ConversionReader(std::string_view& text) : text_(text), all_(text) {}

  Result<Conversion> read() {
    take_flags();
    if (!take_number(made_.width) || made_.width > kMostPrintWidth) return refused("is too wide");
    if (take('.') && !take_precision()) return refused("is too precise");
    take_size();
    if (text_.empty()) return refused("does not end");
    made_.letter = text_.front() == 'i' ? 'd' : text_.front();
    text_.remove_prefix(1);
    return check();
  }

 private:
  bool take(char c) {
    const bool is_there = text_.starts_with(c);
    if (is_there) text_.remove_prefix(1);
    return is_there;
  }

  void take_flags() {
    for (bool more = true; more;) {
      more = false;
      for (auto [c, flag] :
           {std::pair('-', &made_.is_left), std::pair('0', &made_.has_zeros), std::pair('+', &made_.has_plus),
            std::pair(' ', &made_.has_blank), std::pair('#', &made_.has_prefix)})
        if (take(c)) *flag = more = true;
    }
  }

  // Nothing is 0.
  bool take_number(std::uint32_t& number) {
    number = 0;
    while (!text_.empty() && is_digit(text_.front()) && number <= kMostPrintPrecision) {
      number = 10 * number + static_cast<std::uint32_t>(text_.front() - '0');
      text_.remove_prefix(1);
    }
    return number <= kMostPrintPrecision;
  }

  bool take_precision() { return take_number(made_.precision.emplace()); }

  void take_size() {
    const std::size_t end = std::min(text_.find_first_not_of(kSizes), text_.size());
    const std::string_view size = text_.substr(0, end);
    if (size.starts_with('h')) made_.bytes = size == "hh" ? 1 : 2;
    is_wide_ = size.starts_with('l') || size.starts_with('L');
    text_.remove_prefix(end);
  }

  // Wide characters are numbers and addresses here.
  Result<Conversion> check() {
    if (kLetters.find(made_.letter) == std::string_view::npos) return refused("is not known");
    const bool is_floating = kFloating.find(made_.letter) != std::string_view::npos;
    if (is_floating && made_.has_prefix) return refused("is not known");
    if (made_.letter != 's' && made_.precision.value_or(0) > kMostPrintWidth) return refused("is too precise");
    if (is_wide_ && made_.letter == 's') made_.letter = 'p';
    if (is_wide_ && made_.letter == 'c') made_.letter = 'd';
    return std::move(made_);
  }

  Error refused(const char* why) const {
    std::size_t bytes = all_.size() - text_.size();  // what was read, up to a letter
    const bool has_letter = bytes != 0 && !is_digit(all_[bytes - 1]) && is_identifier(all_.substr(bytes - 1, 1));
    bytes = std::min<std::size_t>({bytes + (has_letter ? 0 : 1), all_.size(), 16});
    return Error{.code = Code::refused, .text = "the conversion '%" + std::string(all_.substr(0, bytes)) + "' " + why};
  }

  std::string_view& text_;
  const std::string_view all_;
  Conversion made_;
  bool is_wide_ = false;
};

std::string_view without_end(std::string_view text, std::string_view characters) {
  const std::size_t last = text.find_last_not_of(characters);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

Result<PrintFormat> read_print_format(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  PrintFormat format;
  while (!text.empty()) {
    const std::size_t percent = std::min(text.find('%'), text.size());
    format.after += text.substr(0, percent);
    text.remove_prefix(percent);
    if (text.starts_with("%%")) {
      format.after += '%';
      text.remove_prefix(2);
      continue;
    }
    if (text.empty()) break;
    text.remove_prefix(1);
    auto conversion = ConversionReader(text).read();
    if (!conversion) return conversion.error();
    conversion->before = std::exchange(format.after, {});
    format.conversions.push_back(conversion.take());
  }
  return format;
}

std::string_view name_before(std::string_view text) {
  if (text.ends_with("0x")) text.remove_suffix(2);
  text = without_end(text, "\"'([{< ");
  if (!text.ends_with('=')) return {};
  text.remove_suffix(1);
  text = without_end(text, " ");
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto begin = std::find_if_not(text.rbegin(), text.rend(), is_part).base();
  const std::string_view name = text.substr(static_cast<std::size_t>(begin - text.begin()));
  return is_identifier(name) ? name : std::string_view{};
}

}  // namespace uprobe::spec
