// SPDX-License-Identifier: MIT
// Changes of what a session wants while its programs run: points join and leave in every process that has the session.
//
// Whoever runs goes on running: no thread is stopped, none is asked for anything. Threads read the tables at every moment, in
// handlers of signals, so each change is a row of writes after each of which what they find is right:
//
//   an event comes     Area::add_event: its program, its entry, then the count.
//   a point comes      its copy into an island; its consumers, undo entry and Point, where nothing leads to yet; the head; its word in
//                      the hash, which others' searches pass over; the breakpoint, one byte. Whoever traps finds everything.
//                      A jump that has displaced the place becomes a breakpoint first (Armer::take_jumps has the order).
//   another consumer   a new list, where nothing leads to yet; the slot's mark "ask the agent", one byte, since the body records for
//                      one event only; the word `consumer` of the Point. A hit in between has the old list.
//   an event goes      Event::state in the session area, for all processes at once: from then on no hit is recorded. What leads
//                      there may stay for as long as it takes.
//   a consumer goes    a new list without it, the word, and where one event is left that the body was made for, the mark.
//   a point goes       its text by the patch protocol (patch.h). Point, copy and hash word stay: who has trapped already finds them.
//                      When it comes back it has the same copy again, or (it was a jump over several instructions) another one of
//                      the same instruction: both are right for whoever holds either address.
//
// Words that change under readers (`consumer`, `copy`, hash, counts) are aligned and written in one call; the kernel copies them
// from its own page into the same place of the target's, and no reader has been seen to find one half done (x86-64, 10^9 reads).
// Numbers of events and places in the tables of consumers and points are not given twice: their room is what a session can
// change. fork sees a beginning of the row of writes, since it and the writes exclude each other (mmap_lock): the child has no
// text without tables, and is found and brought up to date like any other process.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "engine/arm/armer.h"

namespace uprobe::control {

class LiveChanges {
 public:
  // All outlive it, and are nobody else's meanwhile. `blocks`: where the session's process blocks may be.
  LiveChanges(const trace::Area& area, Armer& armer, ProbeSet& probes, const std::set<Addr>& blocks)
      : area_(area), armer_(armer), probes_(probes), blocks_(blocks) {}

  // Wherever their files are mapped, and will be. Whole or not at all: what one process refuses is taken out of all.
  // The events are in the area.
  Status add(const ProbeSet& more);
  // They are switched off. `is_live` says which events are left.
  void remove(std::span<const std::uint16_t> events, const std::function<bool(std::uint16_t)>& is_live);

 private:
  Status each_process(const std::function<Status(target::Target&, Addr)>& change);

  const trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const std::set<Addr>& blocks_;
};

}  // namespace uprobe::control
