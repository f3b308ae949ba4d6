// SPDX-License-Identifier: MIT
// The session area as the tool uses it: laid out, filled and mapped. See engine/shared/session_area.h for the picture.
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

// The plan file, and one live file or several.
class Area {
 public:
  // Makes both files and maps them; writes header, events, programs and empty rings. The state is `off`. All pages but those of
  // the rings' data are allocated now: those come when they are first touched, which the target must have memory for, or by
  // LiveArea::allocate(). The plan file is sealed, so that the mapping made here stays its only writable one. Fails with Code::limit (too many or too large events, rings out of range) or
  // Code::system.
  static Result<Area> create_private(const AreaSpec& spec);
  Area(Area&&) noexcept;
  Area& operator=(Area&&) noexcept;
  ~Area();

  int fd() const;  // the plan file, opened for reading; its inode identifies the session for other processes
  // Whether the kernel keeps processes from writing the plan file. If not, at least no process gets a writable descriptor of
  // it.
  bool is_sealed() const;
  // Takes the memory away from children of this process, so that only the tool and traced processes have it.
  void keep_from_children() const;
  std::uint64_t span_bytes() const;  // the address space that a process needs for it
  // The MAP_SHARED mappings that a process has to make inside a reservation of span_bytes, for the plan file and a live part.
  std::vector<MapStep> map_steps(std::size_t part = 0) const;

  // Makes a further live file, with the switches as they are in the first one. Other threads may use the existing parts at the
  // time.
  static constexpr std::size_t kMostParts = 16;
  Result<std::size_t> add_live();
  std::size_t live_count() const;
  LiveArea& live(std::size_t part) const;

  // The state of the session, and of all events that are not switched off. Set to `recording` once at most.
  void set_state(shared::SessionState state);
  // Switches an event off or on again, in all processes at once.
  void set_event(std::uint32_t index, bool on);
  // Whether there is room for all of these.
  bool has_room(std::span<const program::EventProgram* const> programs) const;
  // Adds an event, on if the session records. Its number is the former event_count(). Code::limit when there is no room for it.
  Status add_event(const program::EventProgram& program);

  shared::AreaHeader& header();
  shared::Event& event(std::uint32_t index);
  // Of the first live part:
  shared::Ring& ring(std::uint32_t index);
  std::uint8_t* data(std::uint32_t ring);
  void* base();
  // Sums over all live parts:
  shared::EventCounts counts(std::uint32_t event) const;
  // Hits of all events that could not be recorded, by CPU. (Of CPUs that have no ring of their own, by one that stands for several.)
  std::vector<std::uint64_t> lost_by_cpu() const;
  shared::LiveHeader live_sums() const;  // its counts; the other fields have no meaning
  // The tool's own copies, never read back from the shared header. Facts about existing events may be read while another thread
  // adds one.
  std::uint32_t event_count() const;
  std::uint32_t ring_count() const;
  bool has_switches() const;  // events can be off
  bool is_cpu_ring(std::uint32_t index) const;
  // Whether a writer is in the middle of a record in such a ring, or died there.
  bool is_being_written(std::uint32_t index) const;
  std::uint64_t ring_bytes() const;
  // Offsets from the beginning of the area, as they were laid out.
  struct Places {
    std::uint64_t data;
    std::uint32_t events, counts, rings, cpu_ring_count;
    std::uint32_t dropped, dropped_stride;  // see AreaHeader
    std::uint64_t live;                     // where a live file begins
    std::uint32_t payload_limit;
  };
  Places places() const;
  // An event's program as it was compiled, except for the place of constant strings.
  std::span<const shared::Insn> program(std::uint32_t event) const;
  std::uint32_t fixed_bytes(std::uint32_t event) const;  // the fixed part of its payload
  std::span<const shared::Test> filter(std::uint32_t event) const;
  bool is_thinned(std::uint32_t event) const;  // some of its hits are left out (program::Thinning)
  // The verdict of an event's filter on a record (by the tool's own copy of the filter).
  shared::Verdict judge(std::uint32_t event, const shared::FilterInput& input) const;
  std::uint64_t dropped(std::uint32_t event) const;  // hits that the filter has dropped in the targets
  // Histograms as they were laid out, numbered as in AreaSpec.
  std::size_t histogram_count() const;
  HistogramMemory histogram(std::size_t number, std::size_t part = 0) const;
  bool has_sums() const;  // of calls
  // The number of the event's sums; nothing: its calls are not summed up.
  std::optional<std::uint32_t> sum_of(std::uint32_t event) const;
  std::span<const std::uint32_t> comm_locators(std::uint32_t event) const;  // payload offsets of its $comm locators

 private:
  struct Data;
  explicit Area(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace uprobe::trace
