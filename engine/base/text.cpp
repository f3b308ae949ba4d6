#include "engine/base/text.h"

#include <cinttypes>
#include <cstdio>

namespace uprobe {

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

}  // namespace uprobe
