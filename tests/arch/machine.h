// SPDX-License-Identifier: MIT
// Runs one instruction from a chosen machine state, in its place and displaced, and reports differences: general registers,
// flags, x87, MXCSR, vector and mask registers, fs and gs base, memory, stack and red zone, the place where control arrives,
// and the signal if there is one. One Machine per process at a time: its memory has fixed addresses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "arch/code/decode.h"

namespace uprobe::arch::test {

using Random = std::mt19937_64;

// In the order of the encoding: rax rcx rdx rbx rsp rbp rsi rdi r8-r15.
struct Registers {
  std::array<std::uint64_t, 16> gpr = {};
  std::uint64_t flags = 0;
};

// thunk.S knows it by its offsets.
struct MachineContext {
  Registers in;
  Registers out;
  std::uint64_t host_rsp = 0;
  std::uint64_t entry = 0;
  std::uint8_t* xsave_in = nullptr;
  std::uint8_t* xsave_out = nullptr;
  std::uint64_t xsave_mask = 0;
  std::uint64_t host_fsbase = 0;
  std::uint64_t out_fsbase = 0;
  std::uint64_t out_gsbase = 0;
  std::uint64_t has_fsgsbase = 0;
};
static_assert(offsetof(MachineContext, out) == 136 && offsetof(MachineContext, has_fsgsbase) == 336);

// The parts of the state before the instruction that are not random.
enum class Scene : std::uint8_t {
  data,         // rbx rbp rsi rdi r8 r12 r13 r14 point into memory, r9 and rcx are small, the rest is random
  branch,       // rax rdx r10 r11 r15 and every word of memory and stack are a landing place
  flags,        // every word of the stack is a harmless flags image
  nothing,      // every register is random; some point into memory
  fault,        // as data; a test of the table expects a signal of every run
  may_fault,    // as data; whether there is a signal depends on the machine
  system_call,  // as data, with the number of a call that changes nothing, or of none, in rax
};

struct Signal {
  int number = 0;  // 0: none
  int code = 0;
  std::uint64_t address = 0;
  std::uint64_t rip = 0;
};

// All state that an instruction can change.
struct Outcome {
  Registers registers;
  std::uint64_t fsbase = 0;
  std::uint64_t gsbase = 0;
  std::vector<std::uint8_t> xsave;
  std::vector<std::uint8_t> memory;  // data and stack
  unsigned arrived = 0;              // a Landing, beyond kTarget another target; meaningless after a signal
  Signal signal;
};

enum Landing : unsigned { kNowhere, kAfter, kTarget };

struct Comparison {
  std::string difference;  // empty: none
  Outcome native;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

class Machine {
 public:
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // A direct branch is first aimed at a landing place and a rip-relative operand at the data. The caller has checked
  // that the instruction is displaceable.
  // Registers of `loose` (bit n: gpr[n]) may differ: what rdtsc and rdrand give is never the same twice.
  // A difference counts when it repeats: a context switch may change what the processor tells of the last x87 instruction (APM
  // volume 2, 11.4.4), which fnstenv and fnsave store.
  Comparison compare(Bytes insn, Scene scene, Random& random, unsigned loose = 0);

  // The instruction as the last compare() ran it.
  Bytes aimed() const { return aimed_; }

 private:
  void fill_state(Scene scene, Random& random);
  void fill_registers(Scene scene, Random& random);
  void fill_vectors(Random& random);
  void fill_memory(Scene scene, Random& random);
  void aim(Bytes insn, Random& random);
  void place();
  Comparison run_both(std::uint64_t to, unsigned loose);
  Outcome run(std::uint64_t entry);
  std::uint8_t* writable(std::uint64_t address);

  MachineContext context_;
  std::vector<std::uint8_t> aimed_;
  std::vector<std::uint8_t> memory_;  // data and stack as they are before each run
  std::uint8_t* xsave_ = nullptr;     // two areas, 64-byte aligned
  std::size_t xsave_bytes_ = 0;
  std::uint8_t* near_ = nullptr;  // where the code can be written
  std::uint8_t* far_ = nullptr;
  std::uint64_t from_ = 0;
};

// Whether the processor and the kernel have the feature, by its name in /proc/cpuinfo; "": always true.
bool has_feature(const std::string& name);

}  // namespace uprobe::arch::test
