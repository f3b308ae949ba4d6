// SPDX-License-Identifier: MIT
// One of the tool's open files, opened once more in the target.
//
// A process that shares the target's descriptors may exchange them at any time. So the tool writes nothing through a descriptor of
// the target, and believes a mapping that the target has made of one only after check_mapped().
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/result.h"
#include "engine/target/target.h"

namespace uprobe::control {

// The target's descriptor, close-on-exec, open for what `fd` is open for; the caller closes it there. By its name in the tool's
// /proc entry; through a socket where the target cannot see or open that (another user, namespace or root, no /proc). `scratch`:
// 512 bytes of the target's memory.
Result<int> pass_file(target::Target& target, Addr scratch, int fd);

// Closes `number` in the target if the file that the tool knows as `fd` is open there.
void close_in(target::Target& target, int number, int fd);

struct MappedRange {
  Addr begin;
  std::uint64_t bytes;
};
// Code::refused unless the target has mapped all of these ranges from the file that the tool knows as `fd`.
Status check_mapped(target::Target& target, std::span<const MappedRange> ranges, int fd);

// Whether a path means in the process what it means here, and a process id too.
bool shares_our_view(pid_t pid);

}  // namespace uprobe::control
