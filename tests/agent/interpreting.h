// SPDX-License-Identifier: MIT
// Runs event programs in the agent's interpreter: the fixture of its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/agent/agent_in_test.h"

namespace uprobe::test {

using agent::Built;
using shared::Insn;
using shared::Op;
using shared::Reg;

inline constexpr u8 kCanary = 0xa5;
inline constexpr u32 kHead = sizeof(shared::PayloadHead);
inline constexpr u64 kKernel = 0xffffffff81000000, kNonCanonical = 0x8000000000000000 - 0x1000;

inline Insn insn(Op op, u8 size = 0, u16 count = 0, u32 offset = 0, u64 immediate = 0) {
  return {op, size, count, offset, immediate};
}
inline Insn begin() { return insn(Op::begin); }
inline Insn constant(u64 value) { return insn(Op::load_constant, 0, 0, 0, value); }
inline Insn dereference(u64 offset = 0) { return insn(Op::dereference, 0, 0, 0, offset); }
inline Insn store(u32 offset, u8 size) { return insn(Op::store_value, size, 0, offset); }
inline Insn string(u32 offset, u64 skip = 0) { return insn(Op::store_string, 0, 0, offset, skip); }

// An area with the parts that build_payload reads: header, programs and texts.
struct MiniArea {
  shared::AreaHeader header{};
  Insn insns[512]{};
  char text[256]{};
};

struct Outcome {
  Built built = Built::ok;
  std::vector<u8> payload;  // the used part
  u16 flags = 0;

  template <class T>
  T at(u32 offset) const {
    T value{};
    if (offset + sizeof value <= payload.size()) std::memcpy(&value, payload.data() + offset, sizeof value);
    return value;
  }
  // The dynamic data at the locator at `offset`; its length field has to agree.
  std::string dynamic(u32 offset) const {
    const u32 locator = at<u32>(offset), place = locator & 0xffff, length = locator >> 16;
    if (length == 0) return "(fault)";
    EXPECT_LE(place + length, payload.size());
    return std::string(reinterpret_cast<const char*>(payload.data()) + place,
                       std::min<std::size_t>(length, payload.size() - place));
  }
};

class Interpret : public testing::Test {
 protected:
  void SetUp() override {
    install_agent_handlers();
    block_ = &empty_block();
    area_.header.insn_offset = offsetof(MiniArea, insns);
    area_.header.insn_count = 512;
    area_.header.text_offset = offsetof(MiniArea, text);
    area_.header.text_bytes = sizeof area_.text;
    for (u32 i = 0; i < shared::kRegCount; ++i) registers_.value[i] = 0x1111111111111111ull * i + 0x80;
    point_.file_bias = 0x7000000;
  }

  Outcome run(const std::vector<Insn>& program, u32 fixed, u32 limit = shared::kMaxPayload, bool may_fault = true) {
    std::copy(program.begin(), program.end(), area_.insns);
    shared::Event event{};
    event.insn_count = static_cast<u32>(program.size());
    event.fixed_bytes = fixed;
    event.type = 7;
    return run_event(event, limit, may_fault);
  }

  Outcome run_event(const shared::Event& event, u32 limit, bool may_fault = true) {
    std::vector<u8> memory(3 * kPage + limit + most_, kCanary);
    agent::Payload payload{memory.data() + kPage, limit, 0, 0, false, most_};
    const agent::Hit hit{block_, &point_, &registers_, 4711, may_fault, false, false, 0, word_of(&vectors_)};
    Outcome outcome;
    outcome.built = agent::build_payload(hit, &area_.header, event, payload);
    outcome.flags = payload.record_flags;
    const auto is_canary = [](u8 byte) { return byte == kCanary; };
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kPage, is_canary)) << "written before the payload";
    EXPECT_TRUE(std::all_of(memory.begin() + kPage + limit, memory.end(), is_canary)) << "written after the payload";
    EXPECT_LE(payload.used, std::max(limit, event.fixed_bytes));
    if (outcome.built == Built::ok) outcome.payload.assign(payload.at, payload.at + payload.used);
    return outcome;
  }

  // The kernel's layout of a handler's stack (SDM vol. 1, 13.4; uapi/asm/sigcontext.h).
  struct alignas(64) Saved {
    u8 legacy[160];
    u8 xmm[16][16];
    u8 unused[48];
    u32 magic, size;
    u64 features;
    u8 more[32];
    u64 in_use;
    u8 header[56];
    u8 upper[16][16];
  };
  static_assert(offsetof(Saved, magic) == 464 && offsetof(Saved, in_use) == 512 && offsetof(Saved, upper) == 576);

  Saved vectors_{};
  MiniArea area_;
  u32 most_ = shared::kMaxPayload;
  shared::ProcessBlock* block_ = nullptr;
  shared::Registers registers_{};
  shared::Point point_{};
};

}  // namespace uprobe::test
