// SPDX-License-Identifier: MIT
// Fuzzes the tool against the process block of a target that lies: the tool reads the block, examines its probes, changes and
// removes them. All of it must end and stay inside the tool's memory, and no write may leave the target's.
//
// Input: the tool's part of the head, then the first entries of each table, as the target leaves them.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/patch/disarm.h"
#include "engine/patch/semaphores.h"
#include "engine/process/block.h"
#include "engine/shared/trampoline.h"
#include "tests/arm/fake_target.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe;
using control::Block;
using control::NewPoint;
using shared::ProcessBlock;

constexpr Addr kBlock{0x10000000}, kCode{0x400000}, kIsland{0x500000}, kData{0x601000};
constexpr std::uint32_t kEntries = 8, kCodeBytes = 4096, kIslandBytes = 65536;

class Processors : public control::Serializer {
 public:
  Status serialize() override { return ok(); }
};

NewPoint make_point(Block& block, std::uint32_t index) {
  NewPoint point;
  point.address = kCode + 64 * index;
  point.copy = kIsland + 256 * index + shared::kCopyAfterThunk;
  point.copy_bytes = 20, point.mark_count = 2, point.code_bytes = 5;
  point.insn = {0x48, 0x89, 0xe5};
  point.following = {0x89, 0xe5, 0x90, 0x90};
  if (index % 2 == 0) point.jump_bytes = shared::kJumpBytes, point.jump_to = point.copy - shared::kThunkBytes;
  const auto event = static_cast<std::uint16_t>(index);
  const auto list = block.list_for(
      {{.session = 0, .kind = 0, .event = event, .next = 0, .distance = 0, .pops = 0, .lead = 0, .restored = 0}},
      false);
  point.consumers = list ? *list : 0;
  return point;
}

// The places for the parts of an input, as in an honest block.
std::vector<std::pair<Addr, std::size_t>> parts_of(const ProcessBlock& head) {
  return {{kBlock, shared::kToolOwnedBytes},
          {kBlock + head.point_offset, kEntries * sizeof(shared::Point)},
          {kBlock + head.undo_offset, kEntries * sizeof(shared::Undo)},
          {kBlock + head.consumer_offset, kEntries * sizeof(shared::Consumer)},
          {kBlock + head.code_file_offset, sizeof(shared::CodeFile)},
          {kBlock + offsetof(ProcessBlock, semaphore_count), 16 + kEntries * sizeof(shared::Semaphore)}};
}

struct Process {
  test::FakeTarget memory;
  ProcessBlock head;

  Process() {
    memory.map_anonymous(kBlock, Block::bytes_for({kEntries}));
    memory.map_anonymous(kCode, kCodeBytes);
    memory.map_anonymous(kIsland, kIslandBytes);
    memory.map_anonymous(kData, kCodeBytes, "/data");
    auto block = Block::create(memory, kBlock, {kEntries});
    if (!block) std::abort();
    std::vector<NewPoint> points;
    for (std::uint32_t i = 0; i < kEntries; ++i) points.push_back(make_point(*block, i));
    if (!block->note_code(memory, {kCode.value, kCode.value + kCodeBytes, 0}) || !block->add(memory, points))
      std::abort();
    if (!control::count_semaphores(memory, *block, memory.maps().take(), {kData + 8, kData + 10})) std::abort();
    for (const shared::Point& point : block->points()) {
      const shared::ArmedText text = shared::armed_text(point);
      if (!memory.write(Addr{point.address}, text.bytes, text.length)) std::abort();
    }
    head = memory.get<ProcessBlock>(kBlock);
  }
};

void require(bool condition) {
  if (!condition) std::abort();
}

// The uses that a session makes of a block.
void use(test::FakeTarget& target, Block& block) {
  Processors processors;
  for (std::uint32_t i = 0; i < block.points().size(); ++i) {
    const std::vector<shared::Consumer> list = block.list_of(i);
    require(block.has(i, list));
    static_cast<void>(block.leads_to(i));
    static_cast<void>(block.after_prefix_window(i));
    static_cast<void>(control::has_armed_text(target, block, block.points()[i]));
    if (i == 0)
      static_cast<void>(block.set_following(target, i, std::vector<std::uint8_t>(block.points()[i].following_bytes)));
    if (i == 1) static_cast<void>(block.keep_only(target, i, list));
  }
  static_cast<void>(block.add(target, {make_point(block, kEntries)}));
  const std::vector<Addr> wanted = {kData + 8, kData + 64};
  if (control::count_semaphores(target, block, target.maps().take(), wanted))
    require(control::are_counted(target, block, wanted));
  static_cast<void>(control::take_out(target, block, processors));
  static_cast<void>(block.begin_anew(target));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Process honest;
  test::FakeTarget target = honest.memory;
  for (const auto& [at, bytes] : parts_of(honest.head)) {
    const std::size_t count = std::min(bytes, size);
    if (count != 0) require(bool(target.write(at, data, count)));
    data += count, size -= count;
  }
  if (auto block = Block::read(target, kBlock)) use(target, *block);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  Process honest;
  std::string all;
  for (const auto& [at, bytes] : parts_of(honest.head)) {
    std::string part(bytes, '\0');
    require(bool(honest.memory.read(at, part.data(), part.size())));
    all += part;
  }
  return {all};
}
