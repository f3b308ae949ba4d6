// SPDX-License-Identifier: MIT
// Changes to what a session wants while its programs run: points are added and removed in every process of the session.
//
// The program goes on running: no thread is stopped or asked for anything. Threads read the tables at any moment, in signal
// handlers, so each change is a sequence of writes, and after each of them the tables are right:
//
//   add an event       Area::add_event: its program, its entry, then the count.
//   add a point        its copy in an island; its consumers, undo entry and Point, not referred to yet; the head; its word
//                      in the hash, which other searches skip; the breakpoint, one byte. A thread that traps finds everything.
//                      A jump that has displaced the place becomes a breakpoint first (Armer::take_jumps has the order).
//                      Where a jump fits, the breakpoint becomes one when no thread is inside (future_jumps.h).
//   add a consumer     a new list, which nothing refers to yet; the slot's mark "ask the agent", one byte, since the body
//                      records one event only; the word `consumer` of the Point. A hit before that has the old list.
//   remove an event    Event::state in the session area, for all processes at once: from then on no hit is recorded. The points
//                      may stay for as long as their removal takes.
//   remove a consumer  a new list without it, the word, and if the body's event alone is left, the mark.
//   remove a point     its text by the patch protocol (patch.h). Point, copy and hash word stay for threads that have trapped.
//                      When it is added again it has the same copy, or (if it was a jump over several instructions) another
//                      copy of the same instruction: a thread may hold either address, and both are right.
//
// Words that change under readers (`consumer`, `copy`, hash, counts) are aligned and written in one call; the kernel copies
// them from its own page to the same offset of the target's, and no reader has been seen to read one half written (10^9
// reads). An event number, or an entry of the consumer and point tables, is never given to anything else, so the size of the
// tables limits how much a session can change. A fork sees a prefix of the writes, because it and the writes exclude each other
// (mmap_lock): the child has no text without tables, and is found and brought up to date like any other process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "engine/arm/armer.h"
#include "engine/patch/tier_count.h"

namespace uprobe::control {

class LiveChanges {
 public:
  // All must outlive it, and no other thread may use them during its life. `blocks`: where the session's process blocks may be.
  LiveChanges(const trace::Area& area, Armer& armer, ProbeSet& probes, const std::set<Addr>& blocks)
      : area_(area), armer_(armer), probes_(probes), blocks_(blocks) {}

  // Adds to all processes that map the files now or later. All or nothing: if one process refuses, all lose the additions
  // again. The events must be in the area.
  Status add(const ProbeSet& more);
  // The events must be switched off. `is_live` says which events are left.
  void remove(std::span<const std::uint16_t> events, const std::function<bool(std::uint16_t)>& is_live);

  // How the places of all events are probed now, in all processes together.
  TierCounts tiers();

  // The semaphores of events that are switched on or off, in every process.
  struct SemaphoreOf {
    std::shared_ptr<const elf::ElfFile> file;
    std::uint64_t offset = 0;
    std::uint16_t event = 0;
  };
  void switch_semaphores(const std::vector<SemaphoreOf>& semaphores, bool on);

 private:
  Status each_process(const std::function<Status(target::Target&, Addr)>& change);

  const trace::Area& area_;
  Armer& armer_;
  ProbeSet& probes_;
  const std::set<Addr>& blocks_;
};

}  // namespace uprobe::control
