// SPDX-License-Identifier: MIT
// Facts of the kernel that this file builds on (kernel/seccomp.c, net/core/filter.c):
//   - jumps lead forward only, and a program has at most BPF_MAXINSNS instructions; so each path ends;
//   - a division by a register that is 0 ends the program with answer 0, which kills the thread;
//   - answers are ordered by their action as a signed number, the smallest being the most restrictive.
#include "engine/inject/seccomp_program.h"

#include <linux/seccomp.h>

#include <cstddef>
#include <vector>

#include "arch/shared/kernel.h"

namespace uprobe::control {
namespace {

constexpr std::size_t kMostSteps = 1 << 16;  // of all paths together
constexpr std::uint32_t kUnclear = SECCOMP_RET_KILL_PROCESS;

struct Word {
  std::uint32_t value = 0;
  bool is_known = true;  // else it may be any number
};
constexpr Word kUnknown{.value = 0, .is_known = false};

struct Path {
  std::size_t at = 0;
  Word a, x;  // 0, as the kernel begins
  std::array<Word, BPF_MEMWORDS> memory = {};
};

// Whether there is such a word of struct seccomp_data. It lies within one field.
bool is_word(std::uint32_t offset) { return offset % 4 == 0 && offset < sizeof(seccomp_data); }

Word word_at(const FilteredCall& call, std::uint32_t offset) {
  constexpr std::uint32_t kArguments = offsetof(seccomp_data, args), kUpper = 4, kBits = 32;
  if (offset == offsetof(seccomp_data, nr)) return {static_cast<std::uint32_t>(call.number)};
  if (offset == offsetof(seccomp_data, arch)) return {shared::kAuditArch};
  if (offset < kArguments) return kUnknown;
  const auto& argument = call.arguments.at((offset - kArguments) / 8);
  if (!argument) return kUnknown;
  return {static_cast<std::uint32_t>(offset % 8 == kUpper ? *argument >> kBits : *argument)};
}

bool is_calculation(unsigned operation) { return operation <= BPF_NEG || operation == BPF_XOR; }

// Not of a division by 0. A shift by more than a word's bits is left unknown.
Word calculated(unsigned operation, Word a, Word b) {
  constexpr std::uint32_t kBits = 32;
  const bool is_shift = operation == BPF_LSH || operation == BPF_RSH;
  if (!a.is_known || !b.is_known || (is_shift && b.value >= kBits)) return kUnknown;
  switch (operation) {
    case BPF_ADD:
      return {a.value + b.value};
    case BPF_SUB:
      return {a.value - b.value};
    case BPF_MUL:
      return {a.value * b.value};
    case BPF_DIV:
      return {a.value / b.value};
    case BPF_OR:
      return {a.value | b.value};
    case BPF_AND:
      return {a.value & b.value};
    case BPF_XOR:
      return {a.value ^ b.value};
    case BPF_LSH:
      return {a.value << b.value};
    case BPF_RSH:
      return {a.value >> b.value};
    default:
      return {-a.value};
  }
}

bool is_condition(unsigned operation) {
  return operation == BPF_JEQ || operation == BPF_JGT || operation == BPF_JGE || operation == BPF_JSET;
}

bool holds(unsigned operation, std::uint32_t a, std::uint32_t b) {
  switch (operation) {
    case BPF_JEQ:
      return a == b;
    case BPF_JGT:
      return a > b;
    case BPF_JGE:
      return a >= b;
    default:
      return (a & b) != 0;
  }
}

class Run {
 public:
  Run(std::span<const sock_filter> program, const FilteredCall& call) : program_(program), call_(call) {}

  std::uint32_t strictest() {
    paths_.push_back({});
    for (std::size_t steps = 0; !paths_.empty(); ++steps)
      if (steps == kMostSteps || !step()) return kUnclear;
    return strictest_;
  }

 private:
  // One instruction of the last path. False: there is none that the kernel would take.
  bool step() {
    Path& path = paths_.back();
    if (path.at >= program_.size()) return false;
    const sock_filter& insn = program_[path.at++];
    switch (BPF_CLASS(insn.code)) {
      case BPF_LD:
      case BPF_LDX:
        return load(path, insn);
      case BPF_ST:
      case BPF_STX:
        return store(path, insn);
      case BPF_ALU:
        return calculate(path, insn);
      case BPF_JMP:
        return jump(path, insn);
      case BPF_RET:
        return end(path, insn);
      default:
        return copy(path, insn);
    }
  }

  bool load(Path& path, const sock_filter& insn) {
    const bool to_x = BPF_CLASS(insn.code) == BPF_LDX;
    Word& to = to_x ? path.x : path.a;
    switch (BPF_MODE(insn.code)) {
      case BPF_IMM:
        to = {insn.k};
        return true;
      case BPF_LEN:
        to = {static_cast<std::uint32_t>(sizeof(seccomp_data))};
        return true;
      case BPF_MEM:
        if (insn.k >= path.memory.size()) return false;
        to = path.memory[insn.k];
        return true;
      case BPF_ABS:
        if (to_x || !is_word(insn.k)) return false;
        to = word_at(call_, insn.k);
        return true;
      default:
        return false;
    }
  }

  static bool store(Path& path, const sock_filter& insn) {
    if (insn.k >= path.memory.size()) return false;
    path.memory[insn.k] = BPF_CLASS(insn.code) == BPF_ST ? path.a : path.x;
    return true;
  }

  bool calculate(Path& path, const sock_filter& insn) {
    const unsigned operation = BPF_OP(insn.code);
    if (!is_calculation(operation)) return false;
    const Word by = operation == BPF_NEG ? Word{} : BPF_SRC(insn.code) == BPF_X ? path.x : Word{insn.k};
    const bool may_end = operation == BPF_DIV && (!by.is_known || by.value == 0);
    if (may_end) note(SECCOMP_RET_KILL_THREAD);
    if (may_end && by.is_known)
      paths_.pop_back();
    else
      path.a = calculated(operation, path.a, by);
    return true;
  }

  // A condition that is not known is taken both ways.
  bool jump(Path& path, const sock_filter& insn) {
    const unsigned operation = BPF_OP(insn.code);
    if (operation == BPF_JA) {
      path.at += insn.k;
      return true;
    }
    if (!is_condition(operation)) return false;
    const Word by = BPF_SRC(insn.code) == BPF_X ? path.x : Word{insn.k};
    if (path.a.is_known && by.is_known) {
      path.at += holds(operation, path.a.value, by.value) ? insn.jt : insn.jf;
      return true;
    }
    Path other = path;
    path.at += insn.jt;
    other.at += insn.jf;
    paths_.push_back(other);
    return true;
  }

  bool end(const Path& path, const sock_filter& insn) {
    const Word answer = BPF_RVAL(insn.code) == BPF_A ? path.a : Word{insn.k};
    note(answer.is_known ? answer.value : kUnclear);
    paths_.pop_back();
    return true;
  }

  static bool copy(Path& path, const sock_filter& insn) {
    if (BPF_MISCOP(insn.code) == BPF_TAX)
      path.x = path.a;
    else
      path.a = path.x;
    return true;
  }

  void note(std::uint32_t answer) {
    strictest_ = is_first_ ? answer : stricter_answer(strictest_, answer);
    is_first_ = false;
  }

  const std::span<const sock_filter> program_;
  const FilteredCall& call_;
  std::vector<Path> paths_;
  std::uint32_t strictest_ = kUnclear;
  bool is_first_ = true;
};

std::int32_t rank(std::uint32_t answer) { return static_cast<std::int32_t>(answer & SECCOMP_RET_ACTION_FULL); }

}  // namespace

std::uint32_t answer_of(std::span<const sock_filter> program, const FilteredCall& call) {
  if (program.empty() || program.size() > BPF_MAXINSNS) return kUnclear;
  return Run(program, call).strictest();
}

std::uint32_t stricter_answer(std::uint32_t one, std::uint32_t other) { return rank(other) < rank(one) ? other : one; }

bool is_allowed(std::uint32_t answer) {
  const std::uint32_t action = answer & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

}  // namespace uprobe::control
