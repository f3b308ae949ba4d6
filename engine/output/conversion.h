// SPDX-License-Identifier: MIT
// Prints values as printf's conversions do (engine/lex/print_format.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/lex/print_format.h"

namespace uprobe::format {

// The most bytes of a number: a double's digits before the point, its precision, its sign.
inline constexpr std::size_t kConvertedBytes = 512;

// What a width adds before or after a value of so many characters.
std::size_t padding(const spec::Conversion& conversion, std::size_t characters);

// Both need kConvertedBytes. A letter that is no integer's prints a decimal one. `bytes`: of the value, 1, 2, 4 or 8.
char* put_integer(char* at, const spec::Conversion& conversion, std::uint64_t value, std::uint8_t bytes);
char* put_floating(char* at, const spec::Conversion& conversion, double value);

}  // namespace uprobe::format
