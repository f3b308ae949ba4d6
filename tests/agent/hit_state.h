// SPDX-License-Identifier: MIT
// The whole state of a thread before and after a probed instruction, for hit_subject.S.
#pragma once

#include <iterator>
#include <random>

#include "tests/agent/agent_in_test.h"

namespace uprobe::test {

struct HitState {
  u64 registers[15];  // rax rbx rcx rdx rsi rdi rbp r8..r15
  u64 flags;
  u64 red_zone[16];
  u8 vectors[16][32];
  u64 mxcsr;
  u64 moved;  // of rsp
};
static_assert(sizeof(HitState) == 784);

extern "C" {
void hit_check(const HitState* in, HitState* out);
void hit_check_alike(const HitState* in, HitState* out);
extern const char hit_site[], hit_simple_site[], hit_load_site[];
long hit_simple(long value);
long hit_load(const long* from);
void hit_foreign();
}

inline constexpr u64 kReservedFlags = 0x202;
inline constexpr u64 kArithmetic = 0x8d5, kDirection = 0x400, kNested = 0x4000, kAlignment = 0x40000, kId = 0x200000;

// Some virtual machines clear the nested-task flag of user code at every interrupt and system call: there no test can show that
// a hit keeps it.
inline bool machine_keeps_nested_task() {
  static const bool keeps = [] {
    u64 flags = 0;
    asm volatile(
        "sub $128, %%rsp; pushfq; orq $0x4000, (%%rsp); popfq; mov $39, %%eax; syscall; pushfq; popq %0;"
        "pushfq; andq $~0x4000, (%%rsp); popfq; add $128, %%rsp"
        : "=r"(flags)
        :
        : "rax", "rcx", "r11", "cc", "memory");
    return (flags & kNested) != 0;
  }();
  return keeps;
}

inline HitState make_state(u64 seed, u64 flags) {
  std::mt19937_64 random(seed);
  HitState state{};
  for (u64& value : state.registers) value = random();
  for (u64& value : state.red_zone) value = random();
  for (auto& vector : state.vectors)
    for (u8& byte : vector) byte = static_cast<u8>(random());
  state.flags = kReservedFlags | (machine_keeps_nested_task() ? flags : flags & ~kNested);
  state.mxcsr = 0x1f80 | (random() % 4) << 13;
  return state;
}

// One pass through the probed instruction; all registers but rbx are unchanged.
inline bool passes_unnoticed(u64 seed, u64 flags) {
  const HitState in = make_state(seed, flags);
  HitState out{};
  hit_check(&in, &out);
  HitState expected = in;
  expected.registers[1] += 1;
  return std::memcmp(&out, &expected, sizeof out) == 0;
}

inline bool has_avx() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx");
}

inline constexpr u64 kFlagSets[] = {
    0, kArithmetic, kDirection, kNested, kAlignment, kId, kArithmetic | kDirection | kNested | kAlignment | kId};

// The depth below the red zone of `sp` that a hit of `in` reaches: the stack is painted first.
inline u32 stack_use(const HitState& in, u64 sp) {
  constexpr u32 kPainted = 2048;
  HitState out{};
  auto* const below = reinterpret_cast<volatile u8*>(sp - 128 - kPainted);
  for (u32 i = 0; i < kPainted; ++i) below[i] = 0xb7;
  hit_check(&in, &out);
  u32 untouched = 0;
  while (untouched < kPainted && below[untouched] == 0xb7) ++untouched;
  return kPainted - untouched;
}

}  // namespace uprobe::test
