// SPDX-License-Identifier: MIT
// The `OBJECT:SYMBOL` of an argument: "@./libx.so:counter+8:u32", "+0(@libc.so.6:environ):x64".
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace uprobe::spec {

struct ObjectName {
  std::size_t end = 0;    // of SYMBOL[+-OFFS], in the body
  std::size_t bytes = 0;  // of OBJECT, with its ':'
};

// Nothing if a type follows the ':': "@counter:u32".
std::optional<ObjectName> find_object(std::string_view body);

}  // namespace uprobe::spec
