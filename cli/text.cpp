// SPDX-License-Identifier: MIT
// Escapes text, groups digits, guesses names.
#include "cli/text.h"

#include <algorithm>
#include <numeric>

namespace uprobe::cli {

namespace {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not valid UTF-8
};

bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// The smallest value that needs this many bytes: anything below is an overlong form, a classic way past filters.
constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};

CodePoint decode(std::string_view input) {
  const auto lead = static_cast<unsigned char>(input[0]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf8 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (bytes == 0 || input.size() < bytes) return {};
  std::uint32_t value = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(input[i]);
    if (!is_continuation(byte)) return {};
    value = value << 6 | (byte & 0x3fu);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

// C0, DEL and C1 controls move the cursor; bidirectional marks and line separators reorder or split what is shown.
bool is_printable(std::uint32_t value) {
  if (value < 0x20 || (value >= 0x7f && value < 0xa0)) return false;
  if (value >= 0x200b && value <= 0x200f) return false;
  if (value >= 0x2028 && value <= 0x202e) return false;
  if (value >= 0x2060 && value <= 0x206f) return false;
  return value != 0xfeff;
}

std::string escaped_byte(char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  switch (byte) {
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    default:
      break;
  }
  const auto value = static_cast<unsigned char>(byte);
  return {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
}

// Optimal string alignment: insert, drop, change, or swap two neighbours, each for 1.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::vector<Glyph> glyphs(std::string_view input) {
  std::vector<Glyph> result;
  std::size_t at = 0;
  while (at < input.size()) {
    const CodePoint point = decode(input.substr(at));
    if (point.bytes != 0 && is_printable(point.value)) {
      result.push_back({std::string(input.substr(at, point.bytes)), 1, at});
      at += point.bytes;
      continue;
    }
    const std::string text = escaped_byte(input[at]);
    result.push_back({text, text.size(), at});
    ++at;
  }
  return result;
}

std::string escape(std::string_view input) {
  std::string result;
  for (const Glyph& glyph : glyphs(input)) result += glyph.text;
  return result;
}

std::string escape_lines(std::string_view lines) {
  std::string result;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    result += escape(lines.substr(0, end));
    if (end == std::string_view::npos) break;
    result += '\n';
    lines.remove_prefix(end + 1);
  }
  return result;
}

std::string grouped(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(std::uint64_t number, std::string_view singular, std::string_view plural) {
  return grouped(number) + " " + std::string(number == 1 ? singular : plural);
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // With more than a third of the letters wrong it is no good guess; very long words are not worth the quadratic work.
  if (word.size() > 64) return {};
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const std::size_t steps = distance(word, candidate);
    if (steps >= least) continue;
    least = steps;
    best = candidate;
  }
  return best;
}

}  // namespace uprobe::cli
