// SPDX-License-Identifier: MIT
// Changing the text of a process that runs: from the original to a jump and back, while its threads may be anywhere.
//
//     original      48 89 5c 24 08     mov %rbx,8(%rsp)
//                   cc 89 5c 24 08     whoever arrives traps; the agent sends it to the copy
//                   cc 12 34 56 78     the bytes behind, which nobody executes now
//     jump          e9 12 34 56 78
//
// and the same way back. Between two of these every processor has to have seen the one before (serialize.h). Each point is
// published before, so that a thread that traps is sent on, and stays published: nobody waits and no hit is lost.
//
// Threads are not looked at. Where a jump comes over several instructions, the caller has made sure that nobody stands at, or
// will come back to, one behind the first. Where it goes nobody can: a thread is in the copy, which stays.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/patch/serialize.h"
#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

inline constexpr std::size_t kMostPatched = shared::kJumpBytes;

// What stands at `at`, and what is to stand there: `size` bytes of both.
struct Patch {
  Addr at;
  std::uint8_t size = 1;
  std::array<std::uint8_t, kMostPatched> before{}, after{};
};

enum class Patched : std::uint8_t {
  done,
  refused,     // something else stood there than `before`, or came in between: left as it was found
  failed,      // it could not be read or written; what had been written is undone where that was possible
  breakpoint,  // 0xcc is its first byte, and has to stay: what is behind could not be changed safely
};

// From the armed text of a point to what stood there before.
Patch patch_back(const shared::Point& point, const shared::Undo& undo);

// All patches of a process at once; they do not overlap. What became of each, in the order of `patches`. A breakpoint that comes
// or goes, and nothing else, is one write, made first. A byte that belongs to no patch is never written: the program may change
// its own text at any time.
std::vector<Patched> patch_running(target::Target& target, std::span<const Patch> patches, Serializer& serializer);

}  // namespace uprobe::control
