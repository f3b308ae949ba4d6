// SPDX-License-Identifier: MIT
// A small assembler for code that the tool generates: 64-bit operations on registers and on [base + displacement], forward
// and backward jumps. Internal to this folder; every form that is used has a test that runs it (tests/arch/trampoline_*).
#pragma once

#include <array>
#include <cstring>

#include "arch/code/emitter.h"

namespace uprobe::arch {

// In the machine's numbering.
enum Gpr : unsigned { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 };

struct Mem {
  Gpr base;
  std::int32_t displacement;
};

// A place in the code; bound once.
struct Label {
  std::int32_t at = -1;
  std::vector<unsigned> uses;  // 32-bit fields that wait for it
};

class Assembler {
 public:
  explicit Assembler(Addr start) : start_(start) {}

  void raw(std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) code_.push_back(static_cast<std::uint8_t>(byte));
  }
  void zeros(std::size_t count) { code_.resize(code_.size() + count); }
  void number(std::uint64_t value, unsigned size) {  // of 8 bytes at most
    for (unsigned i = 0; i < size; ++i) code_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  // opcode /reg [base + displacement]; `bytes`: operand size 1, 2, 4, 8
  void op(unsigned opcode, unsigned bytes, unsigned reg, Mem mem, unsigned segment = 0) {
    if (segment != 0) raw({segment});
    prefixes(bytes, reg, mem.base);
    emit_opcode(opcode);
    operand(reg, mem);
  }
  // opcode /reg rm, both registers
  void op(unsigned opcode, unsigned bytes, unsigned reg, Gpr rm) {
    prefixes(bytes, reg, rm);
    emit_opcode(opcode);
    raw({0xc0 | (reg & 7) << 3 | (rm & 7u)});
  }
  // opcode /reg [rip + distance to label]
  void op(unsigned opcode, unsigned bytes, unsigned reg, Label& label) {
    prefixes(bytes, reg, rax);
    emit_opcode(opcode);
    raw({5 | (reg & 7) << 3});
    use(label);
  }

  void load(Gpr to, Mem from) { op(0x8b, 8, to, from); }
  void load4(Gpr to, Mem from) { op(0x8b, 4, to, from); }
  void store(Mem to, Gpr from, unsigned bytes = 8) { op(bytes == 1 ? 0x88 : 0x89, bytes, from, to); }
  void store_number(Mem to, std::uint32_t value) { op(0xc7, 4, 0, to), number(value, 4); }
  void move(Gpr to, Gpr from, unsigned bytes = 8) { op(0x89, bytes, from, to); }
  void lea(Gpr to, Mem from, unsigned bytes = 8) { op(0x8d, bytes, to, from); }
  void constant(Gpr to, std::uint64_t value) {
    if (value <= UINT32_MAX) {
      if (to >= r8) raw({0x41});
      raw({0xb8 | (to & 7u)});
      number(value, 4);
    } else {
      raw({0x48 | (to >= r8 ? 1u : 0u), 0xb8 | (to & 7u)});
      number(value, 8);
    }
  }
  void push(Gpr reg) { to_r8(reg), raw({0x50 | (reg & 7u)}); }
  void pop(Gpr reg) { to_r8(reg), raw({0x58 | (reg & 7u)}); }
  void jump(Label& label) { raw({0xe9}), use(label); }
  void call(Addr target) { raw({0xe8}), distance_to(target); }
  void jump(Addr target) { raw({0xe9}), distance_to(target); }
  // The condition as in the opcode: 2 below, 4 equal, 5 not equal, 7 above, 8 negative, 3 not below
  void jump_if(unsigned condition, Label& label) { raw({0x0f, 0x80 | condition}), use(label); }

  void bind(Label& label) {
    label.at = static_cast<std::int32_t>(size());
    for (const unsigned field : label.uses) fix(field, label);
  }
  void align(unsigned unit) {
    while (size() % unit != 0) raw({0xcc});
  }
  void put(unsigned at, std::uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) code_[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
  unsigned size() const { return static_cast<unsigned>(code_.size()); }
  Addr here() const { return start_ + code_.size(); }
  bool in_reach() const { return in_reach_; }
  std::vector<std::uint8_t> take() { return std::move(code_); }

 private:
  void distance_to(Addr target) {
    const auto distance = static_cast<std::int64_t>(target.value - (here().value + 4));
    if (distance != static_cast<std::int32_t>(distance)) in_reach_ = false;
    number(static_cast<std::uint64_t>(distance), 4);
  }
  void to_r8(Gpr reg) {
    if (reg >= r8) raw({0x41});
  }
  void prefixes(unsigned bytes, unsigned reg, Gpr rm) {
    if (bytes == 2) raw({0x66});
    const unsigned rex = 0x40u | (bytes == 8 ? 8u : 0u) | (reg >= r8 ? 4u : 0u) | (rm >= r8 ? 1u : 0u);
    if (rex != 0x40 || bytes == 1) raw({rex});  // of one byte: sil and dil, not dh and bh
  }
  void emit_opcode(unsigned opcode) {
    if (opcode > 0xff) raw({opcode >> 8});
    raw({opcode & 0xff});
  }
  void operand(unsigned reg, Mem mem) {
    const bool is_short = mem.displacement >= INT8_MIN && mem.displacement <= INT8_MAX;
    raw({(is_short ? 0x40u : 0x80u) | (reg & 7) << 3 | (mem.base & 7u)});
    if ((mem.base & 7u) == 4) raw({0x24});  // rsp and r12 need a SIB byte
    number(static_cast<std::uint32_t>(mem.displacement), is_short ? 1 : 4);
  }
  void use(Label& label) {
    const unsigned field = size();
    number(0, 4);
    if (label.at >= 0) return fix(field, label);
    label.uses.push_back(field);
  }
  void fix(unsigned field, const Label& label) {
    put(field, static_cast<std::uint32_t>(label.at - static_cast<std::int32_t>(field + 4)), 4);
  }

  Addr start_;
  std::vector<std::uint8_t> code_;
  bool in_reach_ = true;
};

}  // namespace uprobe::arch
