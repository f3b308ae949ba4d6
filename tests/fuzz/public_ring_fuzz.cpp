// SPDX-License-Identifier: MIT
// Fuzzes uprobe_ring_take() of the public header: the input is what a hostile process writes into a ring and its data, before and
// between the calls. Every call has to end, to stay inside of memory that is exactly as large as it may use, and to hand out
// whole records.
//
// Input: steps until it is used up. A step is a byte that chooses the action, then the bytes for it: see Ring::step.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "library/uprobe/ring.h"
#include "tests/fuzz/driver.h"

namespace {

constexpr std::uint32_t kRingBytes = 4096, kMost = 1024;

void require(bool condition) {
  if (!condition) std::abort();
}

class Ring {
 public:
  Ring(const std::uint8_t* input, std::size_t size) : at_(input), left_(size), part_(sizeof(uprobe_ring) + kRingBytes) {
    uprobe_ring_session session{};
    session.ring_count = 1, session.record_most = kMost, session.ring_bytes = kRingBytes;
    session.file_bytes = part_.size(), session.data_offset = sizeof(uprobe_ring);
    require(uprobe_ring_begin(&reader_, part_.data(), &session, 0) == 1);
  }

  bool step() {
    const std::uint8_t what = byte();
    if (what < 0x40) bytes(&words().commit, sizeof words().commit);
    if (what >= 0x40 && what < 0x60) bytes(&words().tail, sizeof words().tail);
    if (what >= 0x60 && what < 0x90) bytes(data() + (what * 97 + byte()) % (kRingBytes - 256), byte());
    if (what >= 0x90 && what < 0xd0) publish();
    if (what >= 0xd0) take();
    return left_ != 0;
  }

 private:
  std::uint8_t byte() {
    std::uint8_t value = 0;
    bytes(&value, 1);
    return value;
  }
  void bytes(void* to, std::size_t size) {
    const std::size_t count = std::min(size, left_);
    if (count != 0) std::memcpy(to, at_, count);
    at_ += count, left_ -= count;
  }
  uprobe_ring& words() { return *reinterpret_cast<uprobe_ring*>(part_.data()); }
  std::uint8_t* data() { return part_.data() + sizeof(uprobe_ring); }

  // A good record, unless it wraps.
  void publish() {
    const std::uint32_t payload = 16 + byte() % 64, length = (sizeof(uprobe_ring_record) + payload + 7) / 8 * 8;
    const auto position = static_cast<std::uint32_t>(words().commit >> 32);
    const auto number = static_cast<std::uint32_t>(words().commit);
    const uprobe_ring_record head{
        .length = length, .number = number, .tsc = 1, .payload_bytes = payload, .cpu = 0, .flags = 0};
    const std::size_t place = std::size_t{position} * 8 % kRingBytes;
    std::memcpy(data() + place, &head, std::min(sizeof head, kRingBytes - place));
    words().commit = std::uint64_t{position + length / 8} << 32 | (number + 1);
  }

  void take() {
    std::vector<std::uint8_t> copy(kMost + byte() % 2 * 512);
    const std::uint64_t before = reader_.taken;
    const std::size_t got = uprobe_ring_take(&reader_, copy.data(), copy.size());
    std::uint64_t records = 0;
    for (std::size_t at = 0; at < got; ++records) {
      uprobe_ring_record head;
      require(got - at >= sizeof head + sizeof(uprobe_ring_payload));
      std::memcpy(&head, copy.data() + at, sizeof head);
      require(head.length <= got - at && head.payload_bytes <= head.length - sizeof head);
      at += head.length;
    }
    require(records == reader_.taken - before);
  }

  const std::uint8_t* at_;
  std::size_t left_;
  std::vector<std::uint8_t> part_;
  uprobe_ring_reader reader_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Ring ring(data, size);
  while (ring.step()) continue;
  return 0;
}

// Records that are read, one that is cut, a ring that has come around, a commit that is far away.
std::vector<std::string> fuzz_seeds() {
  const std::string record("\x90\x10", 2), take("\xd0\x01", 2), far("\0\5\0\0\0\xff\xff\xff\x7f", 9),
      data("\x60\1\10abcdefgh", 11);
  std::string full;
  for (int i = 0; i < 200; ++i) full += record;
  return {record + record + take + record + take, full + take + record + take, record + data + take,
          record + far + take + record};
}
