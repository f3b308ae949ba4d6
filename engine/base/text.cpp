// SPDX-License-Identifier: MIT
#include "engine/base/text.h"

#include <cinttypes>
#include <cstdio>

namespace uprobe {

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

bool is_all_blank(std::string_view text) { return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos; }

}  // namespace uprobe
