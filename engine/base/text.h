// SPDX-License-Identifier: MIT
// Small pieces of text that several layers print alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace uprobe {

// "0x6ae40": lower case, not padded.
std::string hex(std::uint64_t value);

// Two digits for each byte, lower case.
std::string hex_digits(std::span<const std::uint8_t> bytes);

// Nothing but ASCII white space, or nothing at all.
bool is_all_blank(std::string_view text);

}  // namespace uprobe
