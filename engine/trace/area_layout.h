// SPDX-License-Identifier: MIT
// Where each table of a session area stands (engine/shared/session_area.h), and the mapping of its two files.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/program/trigger.h"

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

// Distances from the beginning of the area. `live` begins the live file, `data` the rings' data.
struct AreaLayout {
  explicit AreaLayout(const AreaSpec& spec);

  std::uint64_t events = 0, insns = 0, tests = 0, triggers = 0, histograms = 0, text = 0;
  std::uint64_t live = 0, counts = 0, histogram_counts = 0, left = 0, switches = 0, rings = 0, dropped = 0, scratch = 0,
                data = 0;
  std::uint64_t event_room = 0, insn_room = 0, test_room = 0, text_room = 0;
  std::uint64_t dropped_rows = 0, dropped_stride = 0;
  std::uint64_t ring_bytes = 0;
  std::uint32_t ring_count = 0, cpu_ring_count = 0;
  struct Map {
    std::uint64_t slots = 0, entries = 0;
    std::uint32_t slot_count = 0, entry_count = 0, key_bytes = 0, sum_count = 0;
  };
  std::vector<Map> maps = {};              // of histograms
  std::vector<std::uint64_t> limits = {};  // of triggers, in the beginning
  std::vector<std::uint32_t> states = {};  // of switches

  std::uint64_t live_file_bytes() const { return data - live + ring_bytes * ring_count; }
  std::uint64_t live_span() const { return data - live + 2 * ring_bytes * ring_count; }
  std::uint64_t span() const { return live + live_span(); }

 private:
  void take_rooms(const AreaSpec& spec);
  void lay_out_live(const AreaSpec& spec);
  void lay_out_histograms(const AreaSpec& spec);
};

// One mmap that a process makes to have the area: `length` bytes of the file at `file_offset` go to base + `offset`.
struct MapStep {
  std::uint64_t offset = 0, length = 0, file_offset = 0;
  int fd = -1;
  bool writable = false;  // else it is for reading: the file cannot be mapped otherwise
};

// Code::limit where no area can be laid out for it.
Status check_spec(const AreaSpec& spec);
Status check_size(const program::EventProgram& event);
Error limit_error(std::string text);

// Sizes the file and takes all its pages at once: a page that cannot be had later would be a SIGBUS. The size is sealed.
Status size_file(int fd, std::uint64_t bytes);
Result<Fd> make_file(const char* name, std::uint64_t bytes);

// Address space with nothing in it yet; unmaps itself.
class Reservation {
 public:
  Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  Status reserve(std::uint64_t bytes);
  Status map(const MapStep& step);  // writable, whatever the step says
  std::uint8_t* base() const { return base_; }
  void keep_from_children() const;

 private:
  std::uint8_t* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace uprobe::trace
