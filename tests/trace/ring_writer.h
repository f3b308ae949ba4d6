// SPDX-License-Identifier: MIT
// The agent's side of a ring, written once more for the tests by the protocol in session_area.h: claim, stamp, build in place,
// commit, give back. Also the fixtures that most tests here need.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/trace/area.h"
#include "engine/trace/reader.h"

namespace uprobe::test {

using shared::PayloadHead;
using shared::RecordHead;
using trace::Area;

// A payload of an entry event: the head, then `rest`.
inline std::vector<std::uint8_t> make_payload(std::uint16_t type, std::uint32_t tid,
                                              std::span<const std::uint8_t> rest = {}) {
  std::vector<std::uint8_t> payload(sizeof(PayloadHead) + rest.size());
  const PayloadHead head{
      .type = type, .flags = 0, .preempt_count = 0, .pid = static_cast<std::int32_t>(tid), .ip = 0x1234};
  std::memcpy(payload.data(), &head, sizeof head);
  std::copy(rest.begin(), rest.end(), payload.begin() + sizeof head);
  return payload;
}

// The same for a thread of another PID namespace.
inline std::vector<std::uint8_t> make_payload(std::uint16_t type, const shared::TaskNumber& task,
                                              std::span<const std::uint8_t> rest = {}) {
  std::vector<std::uint8_t> payload = make_payload(type, 0u, rest);
  const shared::TaskWords words = shared::words_of(task.process, task.of_child);
  const std::uint32_t first = type | words.process, second = task.thread | words.thread;
  std::memcpy(payload.data(), &first, sizeof first);
  std::memcpy(payload.data() + shared::kTaskOffset, &second, sizeof second);
  return payload;
}

// One 64-bit argument at offset 16.
inline std::vector<std::uint8_t> make_payload(std::uint16_t type, std::uint32_t tid, std::uint64_t argument) {
  std::uint8_t bytes[8];
  std::memcpy(bytes, &argument, sizeof bytes);
  return make_payload(type, tid, bytes);
}

inline std::uint64_t argument_of(const trace::EventRecord& record) {
  std::uint64_t argument = 0;
  std::memcpy(&argument, record.payload.data() + sizeof(PayloadHead), sizeof argument);
  return argument;
}

// An event program of `fixed_bytes` whose fields do not matter.
inline program::EventProgram make_program(std::uint32_t fixed_bytes) {
  program::EventProgram program;
  program.layout.event = "e";
  program.layout.fixed_bytes = fixed_bytes;
  program.insns = {{.op = shared::Op::end, .size = 0, .count = 0, .offset = 0, .immediate = 0}};
  return program;
}

inline Area make_area(std::uint32_t rings, std::uint64_t ring_bytes, const std::vector<program::EventProgram>& events,
                      std::uint32_t cpu_rings = 0) {
  trace::AreaSpec spec{.events = {}, .ring_bytes = ring_bytes, .ring_count = rings, .cpu_ring_count = cpu_rings};
  for (const program::EventProgram& event : events) spec.events.push_back(&event);
  return Area::create_private(spec).take();
}

// Writes into one ring as the agent does, one step at a time if wanted.
class RingWriter {
 public:
  RingWriter(Area& area, std::uint32_t ring) : RingWriter(area.live(0), ring, area.ring_bytes()) {}
  RingWriter(trace::LiveArea& live, std::uint32_t ring, std::uint64_t ring_bytes)
      : ring_(live.ring(ring)), data_(live.data(ring)), ring_bytes_(ring_bytes) {}

  bool claim(std::uint32_t tid) {
    std::uint32_t free = 0;
    return std::atomic_ref(ring_.owner).compare_exchange_strong(free, tid);
  }
  void stamp(std::uint64_t tsc) { std::atomic_ref(ring_.stamp).store(tsc, std::memory_order_release); }
  void give_back() { std::atomic_ref(ring_.owner).store(0, std::memory_order_release); }

  // False: no room. `trim` bytes of the record's end are not written (a writer that is killed half way).
  bool build(std::uint64_t tsc, std::span<const std::uint8_t> payload, std::uint16_t flags = 0, std::size_t trim = 0) {
    const std::uint64_t commit = std::atomic_ref(ring_.commit).load(std::memory_order_relaxed);
    const std::uint32_t tail = std::atomic_ref(ring_.tail).load(std::memory_order_acquire);
    const auto head = static_cast<std::uint32_t>(commit >> 32);
    const auto length = static_cast<std::uint32_t>((sizeof(RecordHead) + payload.size() + 7) / 8 * 8);
    if (std::uint64_t{head - tail} * 8 + length > ring_bytes_) return false;
    const RecordHead record{.length = length,
                            .number = static_cast<std::uint32_t>(commit),
                            .tsc = tsc,
                            .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                            .cpu = 3,
                            .flags = flags};
    std::uint8_t* at = data_ + (std::uint64_t{head} * 8 & (ring_bytes_ - 1));
    std::memcpy(at, &record, sizeof record);
    std::memcpy(at + sizeof record, payload.data(), payload.size() - trim);
    next_commit_ = std::uint64_t{head + length / 8} << 32 | static_cast<std::uint32_t>(record.number + 1);
    return true;
  }
  void commit() { std::atomic_ref(ring_.commit).store(next_commit_, std::memory_order_release); }

  // A whole write, in a ring without other writers.
  bool write(std::uint64_t tsc, std::span<const std::uint8_t> payload, std::uint16_t flags = 0) {
    if (!claim(1)) return false;
    stamp(tsc);
    const bool fits = build(tsc, payload, flags);
    if (fits) commit();
    give_back();
    return fits;
  }

 private:
  shared::Ring& ring_;
  std::uint8_t* data_;
  std::uint64_t ring_bytes_;
  std::uint64_t next_commit_ = 0;
};

// One tick is one nanosecond, and time stands still unless a test moves it.
struct FakeTime {
  std::uint64_t now = 1'000'000'000;
  trace::Clock clock{{0, 0}, {1'000'000, 1'000'000}};

  trace::ReaderOptions options() {
    trace::ReaderOptions options;
    options.now = [this] { return now; };
    options.thread_is_alive = [](std::uint32_t) { return true; };
    return options;
  }
};

// Keeps the records that the reader hands on.
struct Collected {
  struct Item {
    std::uint64_t ns;
    std::uint32_t tid;
    std::uint16_t type, cpu, flags;
    std::vector<std::uint8_t> payload;
  };
  std::vector<Item> items;

  trace::Sink sink() {
    return [this](const trace::EventRecord& record) {
      items.push_back({record.ns,
                       record.tid,
                       record.type,
                       record.cpu,
                       record.flags,
                       {record.payload.begin(), record.payload.end()}});
    };
  }
  std::vector<std::uint64_t> times() const {
    std::vector<std::uint64_t> all;
    for (const Item& item : items) all.push_back(item.ns);
    return all;
  }
};

}  // namespace uprobe::test
