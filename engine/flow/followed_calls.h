// SPDX-License-Identifier: MIT
// Which system calls the agent has to see, and whether a file may make some.
#pragma once

#include <cstdint>
#include <string>

namespace uprobe::plan {

// Whether the calls with this number are the agent's business.
bool is_followed_call(std::uint32_t number);
bool is_clone_call(std::uint32_t number);
bool is_open_call(std::uint32_t number);
// Calls that the agent makes in a moment, mostly, for a thread that comes by a jump (preload/quick_calls.cpp).
bool is_quick_call(std::uint32_t number);

// A quick look at a part of a file: bytes of a followed call are somewhere in it. Most files have none and need not be read
// any further.
bool may_have_followed_calls(const std::string& path, std::uint64_t offset, std::uint64_t bytes);

}  // namespace uprobe::plan
