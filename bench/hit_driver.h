// SPDX-License-Identifier: MIT
// The agent's hit function, called by hand: a library of its own, so that the agent's copies of memcpy and its kin stay
// inside, as they do in libuprobe.so.
#pragma once

#include "engine/shared/process_block.h"
#include "engine/shared/session_area.h"

namespace uprobe::bench {

// A hit as the signal handler would describe it.
struct HandHit {
  shared::ProcessBlock* block;
  const shared::Point* point;
  shared::Registers* registers;
  shared::u32 tid;
};

extern "C" {
// `count` hits, one after the other. Every few hundred the driver marks the rings of `area` as read: they have no reader.
void uprobe_bench_hits(const HandHit* hit, shared::AreaHeader* area, shared::u64 count);
// `count` hits, one each `ticks` of the time stamp counter; late ones follow at once. Another process reads the
// rings.
void uprobe_bench_paced_hits(const HandHit* hit, shared::u64 count, shared::u64 ticks);
}

}  // namespace uprobe::bench
