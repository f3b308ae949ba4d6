// SPDX-License-Identifier: MIT
// The offset of each table in a session area (engine/shared/session_area.h), and the mapping of its two files.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/program/trigger.h"
#include "engine/shared/session_area.h"
#include "engine/shared/string_data.h"

namespace uprobe::trace {

// The switch of an event, in a session in which events can be off.
struct EventSwitch {
  std::uint32_t number = 0;  // probes of one event have the same number
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
  std::uint32_t cpu_ring_count = 0;     // how many rings, from the first on, are CPU rings; at most ring_count
  std::uint32_t string_limit = shared::kUsualString;  // AreaHeader::string_limit
  // Room for later add_event() calls.
  std::uint32_t more_events = 0, more_insns = 0, more_tests = 0, more_text = 0;
  std::vector<EventSwitch> switches = {};  // of each event; empty: no event is ever off, and there are no triggers
  std::vector<program::TriggerProgram> triggers = {};
  std::vector<EventHistogram> histograms = {};
  bool sums_by_process = false;  // each process has rows of its own for the sums of its calls
};

// Offsets from the beginning of the area. The live file begins at `live`, the rings' data at `data`.
struct AreaLayout {
  explicit AreaLayout(const AreaSpec& spec);

  std::uint64_t events = 0, insns = 0, tests = 0, triggers = 0, histograms = 0, text = 0;
  std::uint64_t live = 0, counts = 0, histogram_counts = 0, left = 0, switches = 0, rings = 0, dropped = 0, scratch = 0,
                data = 0;
  std::uint64_t event_room = 0, insn_room = 0, test_room = 0, text_room = 0;
  std::uint64_t dropped_rows = 0, dropped_stride = 0;
  std::uint64_t sums = 0, sum_chunks = 0;  // of shared::SumsHead and of the first chunk
  std::uint32_t sum_count = 0, sum_rows = 0, chunk_count = 0;
  std::uint64_t ring_bytes = 0;
  std::uint32_t ring_count = 0, cpu_ring_count = 0;
  std::uint32_t string_limit = 0;
  struct Map {
    std::uint64_t slots = 0, entries = 0;
    std::uint32_t slot_count = 0, entry_count = 0, key_bytes = 0, sum_count = 0;
  };
  std::vector<Map> maps = {};              // per histogram
  std::vector<std::uint64_t> limits = {};  // per trigger, initial value
  std::vector<std::uint32_t> states = {};  // per switch
  std::uint64_t sum_banks = 0;             // of shared::SumBank[]
  std::uint32_t bank_count = 0;

  std::uint32_t payload_limit() const {  // AreaHeader::payload_limit
    return string_limit == 0 ? shared::kMaxPayload : shared::payload_limit(ring_bytes);
  }
  std::uint64_t fixed_bytes() const { return data - live; }  // of the live file, before the rings' data
  std::uint64_t live_file_bytes() const { return fixed_bytes() + ring_bytes * ring_count; }
  std::uint64_t live_span() const { return data - live + 2 * ring_bytes * ring_count; }
  std::uint64_t span() const { return live + live_span(); }

 private:
  void take_rooms(const AreaSpec& spec);
  void lay_out_live(const AreaSpec& spec);
  void lay_out_sums(const AreaSpec& spec);
  void lay_out_histograms(const AreaSpec& spec);
};

// One of the mappings by which a process gets the area: `length` bytes of the file at `file_offset`, at base + `offset`.
struct MapStep {
  std::uint64_t offset = 0, length = 0, file_offset = 0;
  int fd = -1;
  bool writable = false;  // else for reading: the file cannot be mapped otherwise
};

// Code::limit where no area can be laid out for it.
Status check_spec(const AreaSpec& spec);
Status check_size(const program::EventProgram& event);
Error limit_error(std::string text);

// Sets the size and seals it, and allocates the pages of the first `allocated` bytes; the others come when they are first touched.
Status size_file(int fd, std::uint64_t bytes, std::uint64_t allocated);
Result<Fd> make_file(const char* name, std::uint64_t bytes, std::uint64_t allocated);
// Allocates the pages in the first `bytes` of a file that are not there yet. Code::system where there is no memory.
Status allocate_pages(int fd, std::uint64_t bytes);

// Reserved address space; unmaps itself.
class Reservation {
 public:
  Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  Status reserve(std::uint64_t bytes);
  Status map(const MapStep& step);  // always writable
  std::uint8_t* base() const { return base_; }
  void keep_from_children() const;

 private:
  std::uint8_t* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace uprobe::trace
