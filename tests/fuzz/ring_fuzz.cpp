// SPDX-License-Identifier: MIT
// Fuzzes the reading of rings: the input is a hostile target's writes to the shared area (header, ring words, data), before and
// between polls. Reader and text formatter must end, stay inside, and add up.
//
// Input: 2 bytes of choices, then steps until it is used up. A step is a byte that chooses the ring and the action, then the
// bytes for it: see Attack::step.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/output/text.h"
#include "engine/shared/task_name.h"
#include "engine/trace/reader.h"
#include "tests/fuzz/driver.h"

namespace {

using uprobe::program::EventProgram;
using uprobe::program::Kind;
using uprobe::shared::Op;
using uprobe::trace::Area;

constexpr std::uint64_t kRingBytes = 8192;
constexpr std::uint32_t kRings = 3;

// An event with a field of each kind, and $comm.
EventProgram make_event(bool is_return) {
  EventProgram event;
  event.layout.event = "fuzz";
  event.layout.is_return = is_return;
  std::uint32_t offset = is_return ? 24 : 16;
  const auto add = [&](const char* name, Kind kind, std::uint8_t size, std::uint32_t count) {
    event.layout.fields.push_back({.name = name, .kind = kind, .size = size, .offset = offset, .count = count});
    offset += size * std::max<std::uint32_t>(count, 1);
  };
  event.insns = {{.op = Op::store_comm, .size = 0, .count = 0, .offset = offset, .immediate = 0},
                 {.op = Op::end, .size = 0, .count = 0, .offset = 0, .immediate = 0}};
  add("comm", Kind::string, 4, 0);
  add("u", Kind::unsigned_decimal, 8, 0);
  add("s", Kind::signed_decimal, 2, 3);
  add("x", Kind::hex, 4, 0);
  add("c", Kind::character, 1, 2);
  add("strings", Kind::string, 4, 3);
  event.layout.fixed_bytes = offset;
  return event;
}

const std::vector<EventProgram>& events() {
  static const std::vector<EventProgram> all = {make_event(false), make_event(true)};
  return all;
}

Area& shared_area() {
  static Area area =
      Area::create_private({.events = {&events()[0], &events()[1]}, .ring_bytes = kRingBytes, .ring_count = kRings})
          .take();
  return area;
}

class Attack {
 public:
  Attack(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {
    Area& area = shared_area();
    const std::uint64_t fixed = area.span_bytes() - 2 * kRingBytes * kRings;
    std::memset(area.base(), 0, fixed);
    for (std::uint32_t i = 0; i < kRings; ++i) std::memset(area.data(i), 0, kRingBytes);
  }

  bool more() const { return left_ != 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  // Up to `size` bytes of input go to `to`.
  void bytes(void* to, std::size_t size) {
    const std::size_t count = std::min(size, left_);
    if (count != 0) std::memcpy(to, at_, count);
    at_ += count;
    left_ -= count;
  }

  // True: the reader polls now.
  bool step() {
    const std::uint8_t what = byte();
    Area& area = shared_area();
    const std::uint32_t index = what % kRings;
    uprobe::shared::Ring& ring = area.ring(index);
    switch (what >> 5) {
      case 0:
        bytes(&ring, 24);
        return false;
      case 1:
        bytes(&ring.tail, sizeof ring.tail);
        return false;
      case 2:
        bytes(area.base(), sizeof(uprobe::shared::AreaHeader));
        return false;
      case 3:
        write_data(area.data(index));
        return false;
      case 4:
      case 5:
        publish(ring, area.data(index));
        return false;
      default:
        return true;
    }
  }

 private:
  void write_data(std::uint8_t* data) {
    std::uint16_t place = 0;
    bytes(&place, sizeof place);
    bytes(data + place % kRingBytes, byte());
  }
  // A record that is almost right: the head fits, the payload is the input's.
  void publish(uprobe::shared::Ring& ring, std::uint8_t* data) {
    const std::uint32_t payload = 16 + byte();
    const std::uint32_t length = (24 + payload + 7) / 8 * 8;
    const auto position = static_cast<std::uint32_t>(ring.commit >> 32);
    std::uint8_t* record = data + (std::uint64_t{position} * 8 & (kRingBytes - 1));
    const uprobe::shared::RecordHead head{.length = length,
                                          .number = static_cast<std::uint32_t>(ring.commit),
                                          .tsc = std::uint64_t{byte()} << 16,
                                          .payload_bytes = payload,
                                          .cpu = byte(),
                                          .flags = byte()};
    std::memcpy(record, &head, sizeof head);
    bytes(record + sizeof head, payload);
    ring.commit = std::uint64_t{position + length / 8} << 32 | static_cast<std::uint32_t>(head.number + 1);
  }

  const std::uint8_t* at_;
  std::size_t left_;
};

void require(bool condition) {
  if (!condition) std::abort();
}

// Whole records of one task, in order of time. Returns how many.
std::uint32_t check(const uprobe::trace::RecordRun& run) {
  std::uint32_t count = 0;
  std::uint64_t last = 0;
  for (std::span<const std::uint8_t> left = run.records; !left.empty(); ++count) {
    uprobe::shared::RecordHead head;
    uprobe::shared::PayloadHead payload;
    require(left.size() >= sizeof head + sizeof payload);
    std::memcpy(&head, left.data(), sizeof head);
    std::memcpy(&payload, left.data() + sizeof head, sizeof payload);
    require(head.length <= left.size() && head.payload_bytes <= head.length - sizeof head);
    require(payload.type < 2 && head.payload_bytes >= events()[payload.type].layout.fixed_bytes);
    require(static_cast<std::uint32_t>(payload.pid) == run.tid && head.tsc >= last);
    require((head.flags & (uprobe::shared::kRecordStack | uprobe::shared::kRecordTaskName)) == 0);
    last = head.tsc;
    left = left.subspan(head.length);
  }
  require(count == run.count && run.ring < kRings);
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Attack attack(data, size);
  const std::uint8_t choices = attack.byte();
  const uprobe::program::EventLayout layouts[] = {events()[0].layout, events()[1].layout};
  uprobe::format::TextFormatter formatter(layouts, {.escape_control = (choices & 1) != 0});
  uprobe::trace::TaskNames names("/nonexistent");
  uprobe::trace::Clock clock({0, 0}, {1'000'000, 1'000'000});
  std::uint64_t now = 1 << 20;
  uprobe::trace::ReaderOptions options;
  if ((choices & 2) != 0) options.pending_bytes = 0;
  options.thread_is_alive = [](std::uint32_t tid) { return tid % 2 == 0; };
  options.now = [&] { return now; };
  uprobe::trace::Reader reader(shared_area(), clock, names, options);

  uprobe::format::Buffer out;
  std::uint64_t lines = 0;
  const auto sink = [&](const uprobe::trace::EventRecord& record) {
    require(record.type < 2 && record.payload.size() <= uprobe::shared::kMostPayload);
    out.clear();
    formatter.append(record, names.name(record.tid), out);
    require(out.size() != 0 && out.view().back() == '\n');
    ++lines;
  };
  const uprobe::trace::RunSink runs = [&](const uprobe::trace::RecordRun& run) { lines += check(run); };
  const bool takes_runs = (choices & 4) != 0;
  while (attack.more()) {
    if (!attack.step()) continue;
    now += std::uint64_t{attack.byte()} << 22;
    reader.poll(sink, takes_runs ? runs : uprobe::trace::RunSink());
  }
  reader.finish(sink, takes_runs ? runs : uprobe::trace::RunSink());
  require(lines == reader.counts().recorded[0] + reader.counts().recorded[1]);
  return 0;
}

// A good session, one with a claimed ring, and a head that is far away.
std::vector<std::string> fuzz_seeds() {
  const auto record = [](char ring, std::uint16_t type, const std::string& rest) {
    std::string payload(16, '\1');
    payload[0] = static_cast<char>(type);
    payload[1] = '\0';
    payload += rest;
    const char head[] = {static_cast<char>(0x80 + ring), static_cast<char>(rest.size()), '\x10', '\3', '\2'};
    return std::string(head, sizeof head) + payload;
  };
  const std::string poll = "\xe0\x08", entry = record(0, 0, std::string(60, '\4')),
                    exit = record(1, 1, std::string(80, '\5'));
  const std::string claim = std::string("\x02", 1) + std::string(16, '\0') + std::string("\x05\0\0\0\0\0\0\0", 8);
  const std::string far_head = std::string("\0\x01\0\0\0\xff\xff\xff\x7f", 9) + std::string(15, '\0');
  const std::string plain = "\x80\x28\x10\3" + std::string(57, '\0');  // flags, payload
  return {"\4" + plain + plain + poll + plain + exit + poll + plain + poll, "\1" + entry + exit + poll + entry + poll,
          "\2" + claim + entry + poll + poll + poll + exit, "\3" + entry + far_head + poll + entry};
}
