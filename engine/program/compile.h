// SPDX-License-Identifier: MIT
// From a parsed definition to the program for the agent's hits and the layout for the reader's output.
#pragma once

#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/spec/probe_spec.h"

namespace uprobe::program {

// Bytes of the payload before the first argument.
inline constexpr std::uint32_t kEntryHead = 16;
inline constexpr std::uint32_t kReturnHead = 24;  // __probe_func and __probe_ret_ip

// The record's fields: packed in argument order without alignment. Code::limit for more arguments or bytes than a
// record takes (the parser has refused them already; a spec made by hand may have them).
Result<EventLayout> make_layout(const spec::ProbeSpec& spec);

// The program. Code::refused for a bitfield that is wider than its container (strict parsing lets the kernel's wrapped
// widths pass).
Result<EventProgram> compile(const spec::ProbeSpec& spec);

}  // namespace uprobe::program
