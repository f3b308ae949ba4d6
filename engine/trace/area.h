// SPDX-License-Identifier: MIT
// The session area from the tool's side: laid out, filled and mapped. See engine/shared/session_area.h for the picture.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/program/trigger.h"
#include "engine/shared/session_area.h"
#include "engine/trace/area_layout.h"
#include "engine/trace/live_area.h"

namespace uprobe::trace {

// The plan, and one live file or several (never fewer).
class Area {
 public:
  // Makes both files and maps them; writes header, events, programs and empty rings. state is `off`. All pages are allocated here
  // and now: a page that cannot be had later would be a SIGBUS in the target. The plan is sealed: what is mapped here is the one
  // writable mapping that there ever is. Fails with Code::limit (too many or too large events, rings out of range) or Code::system.
  static Result<Area> create_private(const AreaSpec& spec);
  Area(Area&&) noexcept;
  Area& operator=(Area&&) noexcept;
  ~Area();

  int fd() const;  // of the plan, for reading: the session's name in the world
  // Whether the kernel keeps processes from writing the plan; else only that no process gets a writable descriptor of it.
  bool is_sealed() const;
  // Children of this process do not have the memory: who has it and lives is the tool, or traced.
  void keep_from_children() const;
  std::uint64_t span_bytes() const;  // address space a process needs for it
  // What a process has to mmap, MAP_SHARED, inside a reservation of span_bytes, to have the plan and a live part.
  std::vector<MapStep> map_steps(std::size_t part = 0) const;

  // A further live file, with the switches as they are in the first one. Others may use what is there already meanwhile.
  static constexpr std::size_t kMostParts = 16;
  Result<std::size_t> add_live();
  std::size_t live_count() const;
  LiveArea& live(std::size_t part) const;

  // Of the session, and of its events but for those that are switched off. `recording` once at most.
  void set_state(shared::SessionState state);
  // Switches an event off and on again, in every process at once.
  void set_event(std::uint32_t index, bool on);
  // Whether all of these would find room.
  bool has_room(std::span<const program::EventProgram* const> programs) const;
  // A further event, on if the session records: its number is event_count() before. Code::limit when there is no room for it.
  Status add_event(const program::EventProgram& program);

  shared::AreaHeader& header();
  shared::Event& event(std::uint32_t index);
  // Of the first live part.
  shared::Ring& ring(std::uint32_t index);
  std::uint8_t* data(std::uint32_t ring);
  void* base();
  // Of all live parts together.
  shared::EventCounts counts(std::uint32_t event) const;
  shared::LiveHeader live_sums() const;  // its counts; nothing else in it has a meaning
  // The tool's own copies: never read back from the shared header. Of events that are there already they may be asked while
  // another thread adds one.
  std::uint32_t event_count() const;
  std::uint32_t ring_count() const;
  bool has_switches() const;  // events can be off
  bool is_cpu_ring(std::uint32_t index) const;
  // A writer is in the middle of a record in such a ring, or has left it there.
  bool is_being_written(std::uint32_t index) const;
  std::uint64_t ring_bytes() const;
  // Distances from the area's beginning, as they were laid out.
  struct Places {
    std::uint64_t data;
    std::uint32_t events, counts, rings, cpu_ring_count;
    std::uint32_t dropped, dropped_stride;  // see AreaHeader
  };
  Places places() const;
  // Of an event, as it was compiled; place of constant strings apart.
  std::span<const shared::Insn> program(std::uint32_t event) const;
  std::uint32_t fixed_bytes(std::uint32_t event) const;  // of its payload
  std::span<const shared::Test> filter(std::uint32_t event) const;
  // What the filter of an event says of a record (the tool's own copy of it).
  shared::Verdict judge(std::uint32_t event, const shared::FilterInput& input) const;
  std::uint64_t dropped(std::uint32_t event) const;  // hits that it has dropped, in the target
  // As they were laid out; the number of those of AreaSpec.
  std::size_t histogram_count() const;
  HistogramMemory histogram(std::size_t number, std::size_t part = 0) const;
  std::span<const std::uint32_t> comm_locators(std::uint32_t event) const;  // payload offsets of its $comm locators

 private:
  struct Data;
  explicit Area(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace uprobe::trace
