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

namespace uprobe::trace {

// Of a session in which events can be off.
struct EventSwitch {
  std::uint32_t number = 0;  // probes of one event have the same
  bool is_off = false;       // at the beginning
  bool at_entry = false;     // shared::kEventAtEntry
  std::uint32_t first_trigger = 0, trigger_count = 0;
};

struct EventHistogram {
  std::uint32_t event = 0;  // EventSwitch::number
  program::HistogramPlan plan;
};

struct AreaSpec {
  std::vector<const program::EventProgram*> events;
  std::uint64_t ring_bytes = 4u << 20;  // a power of two, kMinRingBytes..kMaxRingBytes
  std::uint32_t ring_count = 4;         // 1..kMaxRings
  std::uint32_t cpu_ring_count = 0;     // the first so many are CPU rings; at most ring_count
  // Room for what add_event() brings.
  std::uint32_t more_events = 0, more_insns = 0, more_tests = 0, more_text = 0;
  std::vector<EventSwitch> switches = {};  // of each event; empty: no event is ever off, and there are no triggers
  std::vector<program::TriggerProgram> triggers = {};
  std::vector<EventHistogram> histograms = {};
};

// Where a histogram is. All of it is the target's to change.
struct HistogramMemory {
  const shared::HistogramSlot* slots = nullptr;
  const std::uint8_t* entries = nullptr;
  const std::uint64_t* dropped = nullptr;
  const std::uint32_t* next_entry = nullptr;
  std::uint32_t slot_count = 0, entry_count = 0, key_bytes = 0, sum_count = 0;
};

// One mmap that a process makes to have the area: `length` bytes of the file at `file_offset` go to base + `offset`.
struct MapStep {
  std::uint64_t offset = 0, length = 0, file_offset = 0;
};

// The area, mapped in this process (ring data twice in a row). Owns the mapping and the descriptor.
class Area {
 public:
  // Sizes the (empty) memfd, maps it and writes header, events, programs and empty rings. state is `off`. All pages are
  // allocated here and now: a page that cannot be had later would be a SIGBUS in the target. The size is sealed where
  // the memfd allows it (MFD_ALLOW_SEALING), so that a target cannot pull the pages from under the tool. Fails with
  // Code::limit (too many or too large events, rings out of range) or Code::system.
  static Result<Area> create(Fd memfd, const AreaSpec& spec);
  // The same over a memfd of its own.
  static Result<Area> create_private(const AreaSpec& spec);
  Area(Area&&) noexcept;
  Area& operator=(Area&&) noexcept;
  ~Area();

  int fd() const;
  // Children of this process do not have the memory: who has it and lives is the tool, or traced.
  void keep_from_children() const;
  std::uint64_t file_bytes() const;
  std::uint64_t span_bytes() const;        // address space a process needs for it
  std::vector<MapStep> map_steps() const;  // what a target has to mmap, MAP_SHARED, inside a reservation of span_bytes

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
  shared::Ring& ring(std::uint32_t index);
  shared::MailSlot& mail(std::uint32_t index);
  std::uint8_t* data(std::uint32_t ring);  // 2 * ring_bytes readable
  void* base();
  // The tool's own copies: never read back from the shared header. Of events that are there already they may be asked while
  // another thread adds one.
  std::uint32_t event_count() const;
  std::uint32_t ring_count() const;
  bool has_switches() const;  // events can be off
  bool is_cpu_ring(std::uint32_t index) const;
  // A writer is in the middle of a record there, or has left it there.
  bool is_being_written(std::uint32_t index);
  std::uint64_t ring_bytes() const;
  // Distances from the area's beginning, as they were laid out.
  struct Places {
    std::uint64_t data;
    std::uint32_t events, rings, cpu_ring_count;
    std::uint32_t dropped, dropped_stride;  // see AreaHeader
  };
  Places places() const;
  // Of an event, as it was compiled; place of constant strings apart.
  std::span<const shared::Insn> program(std::uint32_t event) const;
  std::uint32_t fixed_bytes(std::uint32_t event) const;  // of its payload
  std::span<const shared::Test> filter(std::uint32_t event) const;
  // What the filter of an event says of a record (the tool's own copy of it).
  shared::Verdict judge(std::uint32_t event, const shared::FilterInput& input) const;
  std::uint64_t dropped(std::uint32_t event);  // hits that it has dropped, in the target
  // As they were laid out; the number of those of AreaSpec.
  std::size_t histogram_count() const;
  HistogramMemory histogram(std::size_t number);
  std::span<const std::uint32_t> comm_locators(std::uint32_t event) const;  // payload offsets of its $comm locators

 private:
  struct Data;
  explicit Area(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace uprobe::trace
