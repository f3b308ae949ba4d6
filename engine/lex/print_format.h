// SPDX-License-Identifier: MIT
// A format of printf's, as data: what each conversion prints, and the text between them. It comes from a file, so anything may
// stand there; what is not known is refused, never guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::spec {

inline constexpr std::uint32_t kMostPrintWidth = 128;        // characters; of a number's precision too
inline constexpr std::uint32_t kMostPrintPrecision = 65535;  // characters of a string

// "path=%-10s": the text before the '%', and what follows it.
struct Conversion {
  std::string before;      // with one '%' for "%%"
  char letter = 'd';       // d, u, o, x, X, c, s, p, f, F, e, E, g, G, a, A
  std::uint8_t bytes = 8;  // the most that it takes of an integer: 1 for "hh", 2 for "h"
  bool is_left = false, has_zeros = false, has_plus = false, has_blank = false, has_prefix = false;  // - 0 + blank #
  std::uint32_t width = 0;
  std::optional<std::uint32_t> precision = {};
  bool operator==(const Conversion&) const = default;
};

struct PrintFormat {
  std::vector<Conversion> conversions;
  std::string after;  // the text after the last one
};

// Code::refused: a conversion has another letter, takes its width from an argument, or is too wide. A newline at the end is left
// out.
Result<PrintFormat> read_print_format(std::string_view text);

// The word before the '=' at the end of the text before a conversion, "path" of ", path=" and of "path = \"0x"; empty: there is
// none.
std::string_view name_before(std::string_view text);

}  // namespace uprobe::spec
