// SPDX-License-Identifier: MIT
// Hits by jump in this very program, with and without a body that records by itself, and their records.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/agent/hit_state.h"
#include "tests/agent/jump_probe.h"
#include "tests/agent/torture.h"

namespace uprobe::test {

using shared::Insn;
using shared::Op;
using shared::RecordHead;
using shared::Reg;

inline constexpr u32 kMostStack = 1232;  // below the red zone; jump.S checks for more
inline constexpr u32 kClaimed = 4;

inline u32 cpus() { return static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)); }

inline Insn insn(Op op, u8 size = 0, u16 count = 0, u32 offset = 0, u64 immediate = 0) {
  return {op, size, count, offset, immediate};
}
inline Insn load(Reg reg) { return insn(Op::load_register, static_cast<u8>(reg)); }

// Every register, 8 bytes each, and the word at the stack pointer.
inline std::vector<Insn> all_registers() {
  std::vector<Insn> program;
  for (u32 r = 0; r < shared::kRegCount; ++r) {
    program.push_back(insn(Op::begin));
    program.push_back(insn(Op::load_register, static_cast<u8>(r)));
    program.push_back(insn(Op::store_value, 8, 0, 16 + 8 * r));
  }
  constexpr u32 kStackWord = 16 + 8 * shared::kRegCount;
  for (const Insn& more :
       {insn(Op::begin), load(Reg::sp), insn(Op::dereference), insn(Op::store_value, 8, 0, kStackWord)})
    program.push_back(more);
  program.push_back(insn(Op::end));
  return program;
}
inline constexpr u32 kAllRegisters = 16 + 8 * shared::kRegCount + 8;

struct Recorded {
  RecordHead head{};
  std::vector<u8> payload;
  u32 ring = 0;
  u64 word(u32 offset) const {
    u64 value = 0;
    std::memcpy(&value, payload.data() + offset, 8);
    return value;
  }
};

// Takes the records since the last time.
inline std::vector<Recorded> take(OneEvent& session) {
  std::vector<Recorded> all;
  for (u32 i = 0; i < session.area().ring_count(); ++i) {
    shared::Ring& ring = session.area().ring(i);
    for (const u32 end = static_cast<u32>(ring.commit >> 32); ring.tail != end;) {
      const u8* at = session.area().data(i) + (u64{ring.tail} * 8 & (session.area().ring_bytes() - 1));
      Recorded one;
      one.ring = i;
      std::memcpy(&one.head, at, sizeof one.head);
      one.payload.assign(at + sizeof one.head, at + sizeof one.head + one.head.payload_bytes);
      ring.tail += one.head.length / 8;
      all.push_back(std::move(one));
    }
  }
  return all;
}

class Jump : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!has_avx()) GTEST_SKIP() << "no AVX here";
    install_agent_handlers();
    if (point_block().head.rseq_offset == 0) GTEST_SKIP() << "no rseq here";
  }
  static bool fast() { return GetParam(); }
};

// The lowest byte of the stack that a hit writes to; below it the stack is painted first.
[[gnu::noinline]] inline u64 lowest_written(const HitState& in) {
  constexpr u64 kFrame = 160, kPainted = 4096;  // kFrame: of this frame, and of the red zone after it
  HitState out{};
  auto* const below = reinterpret_cast<volatile u8*>(word_of(&out) - kFrame - kPainted);
  for (u64 i = 0; i < kPainted; ++i) below[i] = 0xb7;
  hit_check(&in, &out);
  u64 untouched = 0;
  while (untouched < kPainted && below[untouched] == 0xb7) ++untouched;
  return reinterpret_cast<u64>(below) + untouched;
}

}  // namespace uprobe::test
