// SPDX-License-Identifier: MIT
// Numbers as the kernel reads them (kstrtoul and friends): base 0 means 0x.. hexadecimal, 0.. octal, else decimal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace uprobe::spec {

// The whole of `text` is one number, with at most one '+' before it. Returns 0, EINVAL (malformed) or ERANGE (over 64
// bits).
int read_unsigned(std::string_view text, unsigned base, std::uint64_t& value);

// The same with at most one sign; ERANGE outside of the signed 64-bit numbers.
int read_signed(std::string_view text, unsigned base, std::int64_t& value);

// The digits at the start of `text`, base 0, no sign; a number over 64 bits wraps. `used` becomes their count, 0 if there is no
// number.
std::uint64_t read_wrapping(std::string_view text, std::size_t& used);

}  // namespace uprobe::spec
