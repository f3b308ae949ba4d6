// SPDX-License-Identifier: MIT
#include "engine/trace/area_layout.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>

#include "engine/shared/call_sums.h"
#include "engine/shared/session_area.h"

namespace uprobe::trace {
namespace {

constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::uint32_t value_count(const program::HistogramPlan& plan) {
  return static_cast<std::uint32_t>(std::ranges::count(plan.values, false, &program::HistogramWord::is_hitcount));
}

}  // namespace

AreaLayout::AreaLayout(const AreaSpec& spec)
    : ring_bytes(spec.ring_bytes),
      ring_count(spec.ring_count),
      cpu_ring_count(spec.cpu_ring_count),
      string_limit(spec.string_limit) {
  take_rooms(spec);
  events = round_up(sizeof(shared::AreaHeader), alignof(shared::Event));
  insns = events + event_room * sizeof(shared::Event);
  tests = insns + insn_room * sizeof(shared::Insn);
  triggers = round_up(tests + test_room * sizeof(shared::Test), alignof(shared::Trigger));
  histograms = round_up(triggers + spec.triggers.size() * sizeof(shared::Trigger), alignof(shared::Histogram));
  text = histograms + spec.histograms.size() * sizeof(shared::Histogram);
  live = round_up(text + text_room, kPage);
  lay_out_live(spec);
}

void AreaLayout::take_rooms(const AreaSpec& spec) {
  event_room = spec.events.size() + spec.more_events;
  insn_room = spec.more_insns;
  test_room = spec.more_tests;
  text_room = spec.more_text;
  for (const program::EventProgram* event : spec.events) {
    insn_room += event->insns.size() + event->note.size();
    test_room += event->filter.size();
    text_room += event->text.size();
  }
  for (const program::TriggerProgram& trigger : spec.triggers) {
    test_room += trigger.condition.tests.size();
    text_room += trigger.condition.text.size();
    limits.push_back(trigger.count);
  }
  states.resize(spec.switches.size(), shared::kSwitchOn);
  for (const EventSwitch& of : spec.switches) states[of.number] = of.is_off ? shared::kSwitchOff : shared::kSwitchOn;
}

void AreaLayout::lay_out_live(const AreaSpec& spec) {
  counts = live + sizeof(shared::LiveHeader);
  histogram_counts = counts + event_room * sizeof(shared::EventCounts);
  left = histogram_counts + spec.histograms.size() * sizeof(shared::HistogramCounts);
  switches = left + limits.size() * sizeof(std::uint64_t);
  rings = round_up(switches + states.size() * sizeof(std::uint32_t), alignof(shared::Ring));
  dropped = rings + ring_count * sizeof(shared::Ring);
  if (test_room != 0) {
    dropped_rows = std::max(1u, cpu_ring_count);
    dropped_stride = round_up(event_room * sizeof(std::uint64_t), alignof(shared::Ring));
  }
  data = round_up(dropped + 2 * dropped_rows * dropped_stride, alignof(shared::HistogramCounts));
  lay_out_sums(spec);
  lay_out_histograms(spec);
  data = round_up(data, kPage);
}

// A row for each CPU, as long as the rows are not too large, and one more; the same for each bank. Chunks: all that the rows of one
// function can need, and some for each further row.
void AreaLayout::lay_out_sums(const AreaSpec& spec) {
  constexpr std::uint64_t kChunksOfRow = 3, kChunksOfBank = 8, kUsualBanks = 256;
  sum_count = static_cast<std::uint32_t>(
      std::ranges::count_if(spec.events, [](const auto* event) { return event->sums_calls; }));
  if (sum_count == 0) return;
  const std::uint64_t row_bytes = sum_count * sizeof(shared::SumRow);
  const std::uint64_t most_rows = spec.sums_by_process ? shared::kMostBankRowBytes / (row_bytes * kUsualBanks)
                                                       : shared::kMostSumRowBytes / row_bytes;
  sum_rows = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most_rows, 1, std::uint64_t{cpu_ring_count} + 1));
  const std::uint64_t bank_bytes = sum_rows * row_bytes;
  bank_count = static_cast<std::uint32_t>(
      spec.sums_by_process ? std::clamp<std::uint64_t>(shared::kMostBankRowBytes / bank_bytes, 2, shared::kMostSumBanks)
                           : 1);
  chunk_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      sum_rows * (shared::kSumGroups + bank_count * sum_count * kChunksOfRow + (bank_count - 1) * kChunksOfBank),
      shared::kMostSumChunkBytes / shared::kSumChunkBytes));
  sums = data;
  sum_chunks = sums + sizeof(shared::SumsHead) + bank_count * bank_bytes;
  sum_banks = sum_chunks + std::uint64_t{chunk_count} * shared::kSumChunkBytes;
  data = round_up(sum_banks + bank_count * sizeof(shared::SumBank), alignof(shared::SumsHead));
}

// The slots and entries of each histogram, then the scratch payloads.
void AreaLayout::lay_out_histograms(const AreaSpec& spec) {
  for (const EventHistogram& histogram : spec.histograms) {
    const program::HistogramPlan& plan = histogram.plan;
    Map map{.entry_count = 1U << plan.bits, .key_bytes = plan.key_bytes};
    map.slot_count = 2 * map.entry_count;
    map.sum_count = shared::histogram_sums(value_count(plan));
    map.slots = data;
    map.entries = data + map.slot_count * sizeof(shared::HistogramSlot);
    const std::uint64_t entry = shared::histogram_entry_bytes(plan.key_bytes, value_count(plan));
    data = round_up(map.entries + map.entry_count * entry, alignof(shared::HistogramCounts));
    maps.push_back(map);
  }
  if (spec.histograms.empty()) return;
  scratch = data;
  data += std::uint64_t{ring_count} * shared::kScratchBytes;
}

Error limit_error(std::string text) { return Error{.code = Code::limit, .text = std::move(text)}; }

Status check_size(const program::EventProgram& event) {
  const std::uint32_t bytes = event.layout.fixed_bytes;
  if (bytes >= sizeof(shared::PayloadHead) && bytes <= shared::kMaxPayload) return ok();
  return limit_error("event " + event.layout.event + " is too large");
}

Status check_spec(const AreaSpec& spec) {
  if (!std::has_single_bit(spec.ring_bytes) || spec.ring_bytes < shared::kMinRingBytes ||
      spec.ring_bytes > shared::kMaxRingBytes)
    return limit_error("a ring of " + std::to_string(spec.ring_bytes) + " bytes is not a power of two from " +
                       std::to_string(shared::kMinRingBytes) + " to " + std::to_string(shared::kMaxRingBytes));
  if (spec.ring_count == 0 || spec.ring_count > shared::kMaxRings)
    return limit_error(std::to_string(spec.ring_count) + " rings: 1 to " + std::to_string(shared::kMaxRings) +
                       " are possible");
  if (spec.string_limit > shared::kMostString) return limit_error("strings of more than 65535 bytes");
  if (spec.cpu_ring_count > spec.ring_count) return limit_error("more CPU rings than rings");
  if (spec.events.size() + spec.more_events > shared::kMaxEvents)
    return limit_error("more than " + std::to_string(shared::kMaxEvents) + " events");
  for (const program::EventProgram* event : spec.events) RETURN_IF_ERROR(check_size(*event));
  if (AreaLayout(spec).data > std::numeric_limits<std::uint32_t>::max())
    return limit_error("the programs of all events together are too large");
  return ok();
}

Status allocate_pages(int fd, std::uint64_t bytes) {
  int failed = 0;
  do {
    failed = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 ? errno : 0;
  } while (failed == EINTR);
  return failed == 0 || failed == EOPNOTSUPP ? ok() : system_error("allocate the session area", failed);
}

Status size_file(int fd, std::uint64_t bytes, std::uint64_t allocated) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return system_error("size the session area", errno);
  RETURN_IF_ERROR(allocate_pages(fd, allocated));
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return system_error("seal the session area", errno);
  return ok();
}

Result<Fd> make_file(const char* name, std::uint64_t bytes, std::uint64_t allocated) {
  Fd memfd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return system_error("memfd_create", errno);
  RETURN_IF_ERROR(size_file(memfd.get(), bytes, allocated));
  return memfd;
}

Reservation::~Reservation() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

Status Reservation::reserve(std::uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return system_error("reserve address space for the session area", errno);
  base_ = static_cast<std::uint8_t*>(base);
  bytes_ = bytes;
  return ok();
}

Status Reservation::map(const MapStep& step) {
  void* at = ::mmap(base_ + step.offset, step.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, step.fd,
                    static_cast<off_t>(step.file_offset));
  if (at == MAP_FAILED) return system_error("map the session area", errno);
  return ok();
}

void Reservation::keep_from_children() const { static_cast<void>(::madvise(base_, bytes_, MADV_DONTFORK)); }

}  // namespace uprobe::trace
