// Small pieces of text that several layers print alike.
#pragma once

#include <cstdint>
#include <string>

namespace uprobe {

// "0x6ae40": lower case, not padded.
std::string hex(std::uint64_t value);

}  // namespace uprobe
