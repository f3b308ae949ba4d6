// SPDX-License-Identifier: MIT
// The reader's way for recordings: the records of each ring by themselves, as they are; see reader.h.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/trace/reader.h"

namespace uprobe::trace {

namespace {

// A run is no longer than this and one record: it fits into the nearest cache.
constexpr std::size_t kMostRun = 8 << 10;  // bytes

struct PlainRecord {
  shared::RecordHead head;
  shared::PayloadHead payload;
};
static_assert(sizeof(PlainRecord) == sizeof(shared::RecordHead) + sizeof(shared::PayloadHead));

}  // namespace

std::size_t Reader::hand_on(std::uint64_t limit, std::size_t most, const Sink& sink, const RunSink& runs) {
  const bool are_plain = std::ranges::all_of(sources_, [](const Source& source) { return source.copy.is_plain(); });
  return runs && are_plain ? hand_on_runs(limit, runs) : merge(limit, most, sink);
}

std::size_t Reader::hand_on_runs(std::uint64_t limit, const RunSink& runs) {
  std::size_t done = 0;
  for (std::uint32_t ring = 0; ring < sources_.size(); ++ring) done += hand_on_ring(ring, limit, runs);
  return done;
}

std::size_t Reader::hand_on_ring(std::uint32_t ring, std::uint64_t limit, const RunSink& runs) {
  RingCopy& copy = sources_[ring].copy;
  std::size_t done = 0;
  while (!copy.empty() && copy.front_time() <= limit) {
    RecordRun run{.ring = ring};
    handed_on_ = std::max(handed_on_, gather(copy.waiting(), limit, run));
    runs(run);
    done += run.count;
    copy.pop_plain(run.records.size());
  }
  return done;
}

// Takes the records that the task of the first one has made under one name. Returns the time of the last one, in ticks. The
// records have been checked (RingCopy), and are plain: the task of each is the number of a thread of the tool's namespace.
std::uint64_t Reader::gather(std::span<std::uint8_t> waiting, std::uint64_t limit, RecordRun& run) {
  PlainRecord record;
  std::memcpy(&record, waiting.data(), sizeof record);
  const std::int32_t thread = record.payload.pid;
  const Task task(static_cast<std::uint32_t>(thread));
  run.tid = task.number().thread;
  run.pid = names_.process(task);
  const TaskNames::Period name = names_.name_at(task, clock_.to_ns(record.head.tsc));
  run.comm = name.name;
  std::uint64_t* const recorded = counts_.recorded.data();
  std::uint8_t *at = waiting.data(), *const end = at + waiting.size(), *const enough = at + kMostRun;
  std::uint64_t last = 0;
  std::uint32_t count = 0;
  do {
    const std::uint64_t ns = clock_.to_ns(record.head.tsc);
    if (ns >= name.until && count != 0) break;
    last = record.head.tsc;
    std::memcpy(at + offsetof(shared::RecordHead, tsc), &ns, sizeof ns);
    ++recorded[record.payload.type];
    ++count;
    at += record.head.length;
    if (at >= end || at >= enough) break;
    std::memcpy(&record, at, sizeof record);
  } while (record.payload.pid == thread && record.head.tsc <= limit);
  run.count = count;
  run.records = waiting.first(static_cast<std::size_t>(at - waiting.data()));
  return last;
}

}  // namespace uprobe::trace
