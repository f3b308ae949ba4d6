// SPDX-License-Identifier: MIT
// Rust's two manglings as text: names as rustfilt prints them, without the hash of the crate. The older one looks like C++'s.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace uprobe::elf {

// "_ZN4demo4Cart3add17h0123456789abcdefE" is demo::Cart::add. Nothing: the symbol is not Rust's.
std::optional<std::string> demangle_rust_legacy(std::string_view symbol);

// "_RNvNtCs1234_4demo4shop3add" is demo::shop::add (Rust's RFC 2603). Nothing: it is no such symbol, or one that expands too far.
std::optional<std::string> demangle_rust_v0(std::string_view symbol);

}  // namespace uprobe::elf
