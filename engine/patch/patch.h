// SPDX-License-Identifier: MIT
// Changes the text of a running process from the original to a jump, or back, while its threads may be anywhere.
//
//     original      o o o o o     an instruction, or several
//                   B o o o o     a breakpoint: a thread that arrives traps; the agent sends it to the copy
//                   B j j j j     the bytes after the first, which no thread executes now
//     jump          J j j j j
//
// and back in the reverse order. Between two of these steps every processor has to have seen the earlier one (serialize.h).
// Each point is published before the first step, so that the agent knows where to send a thread that traps, and stays
// published: no thread waits and no hit is lost.
//
// The patch does not look at threads. For a jump over several instructions the caller has made sure that no thread stands at,
// or will come back to, an instruction after the first. When a jump is removed no thread can: it is in the copy, which stays.
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

// The expected and the new bytes at `at`: `size` bytes of both.
struct Patch {
  Addr at;
  std::uint8_t size = 1;
  std::array<std::uint8_t, kMostPatched> before{}, after{};
};

enum class Patched : std::uint8_t {
  done,
  refused,     // the text was not `before`, or was changed by another process: left as it was found
  failed,      // it could not be read or written; bytes already written were restored where that was possible
  breakpoint,  // one is its first byte and has to stay, because the bytes after it could not be changed safely
};

// The patch from the armed text of a point to the original.
Patch patch_back(const shared::Point& point, const shared::Undo& undo);
// The same from the text as it is now, where a future jump (engine/shared/future_jump.h) is a breakpoint.
Patch patch_back_now(target::Target& target, const shared::Point& point, const shared::Undo& undo);

// Applies all patches of a process, which must not overlap, and returns the outcome of each, in the order of `patches`. A patch
// that only sets or removes a breakpoint is one write, made first. A byte that belongs to no patch is never written: the
// program may change its own text at any time.
std::vector<Patched> patch_running(target::Target& target, std::span<const Patch> patches, Serializer& serializer);

}  // namespace uprobe::control
