// SPDX-License-Identifier: MIT
// Instructions of whole programs: by tables where they are usual ones, else by Zydis.
#include "arch/code/scan.h"

#include <array>

#include "arch/code/fast_scan.h"
#include "arch/code/zydis.h"

namespace uprobe::arch {
namespace {

using Kind = RegisterValue::Kind;
using Operands = std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT>;

constexpr std::uint8_t kDirectMemory = 5;  // ModRM.rm with mod 0: a 32-bit displacement from rip (SDM 2A, 2.2.1.6)
constexpr unsigned kRegisterForm = 3;      // ModRM.mod

Leads leads_of(const ZydisDecodedInstruction& insn, Flow flow, bool is_direct, bool falls) {
  switch (flow) {
    case Flow::straight:
      return falls ? Leads::on : Leads::out;
    case Flow::jump:
      if (is_direct) return Leads::jump;
      return insn.raw.modrm.mod == kRegisterForm ? Leads::jump_by_register : Leads::jump_by_memory;
    case Flow::jump_if:
    case Flow::loop:
    case Flow::transaction:
      return Leads::jump_if;
    case Flow::call:
      return is_direct ? Leads::call : Leads::call_indirect;
    case Flow::system_call:
      return Leads::system_call;
    case Flow::ret:
    case Flow::trap:
      break;
  }
  return falls ? Leads::system_call : Leads::out;
}

void take_operand(const ZydisDecodedInstruction& insn, Addr at, Scanned& out) {
  if ((insn.attributes & ZYDIS_ATTRIB_HAS_MODRM) == 0 || insn.raw.modrm.mod == kRegisterForm) return;
  if (insn.raw.disp.size != 32) return;
  out.has_operand = true;
  out.is_ip_relative = insn.raw.modrm.mod == 0 && insn.raw.modrm.rm == kDirectMemory;
  out.operand = static_cast<std::uint64_t>(insn.raw.disp.value);
  if (out.is_ip_relative) out.operand += at.value + insn.length;
  out.is_address_of = insn.mnemonic == ZYDIS_MNEMONIC_LEA;
}

bool is_undefined(ZydisMnemonic mnemonic) {
  return mnemonic == ZYDIS_MNEMONIC_UD0 || mnemonic == ZYDIS_MNEMONIC_UD1 || mnemonic == ZYDIS_MNEMONIC_UD2 ||
         mnemonic == ZYDIS_MNEMONIC_HLT;
}

bool decode_raw(Bytes bytes, ZydisDecodedInstruction& insn, Operands& operands) {
  return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes.data(), bytes.size(), &insn, operands.data()));
}

ZydisRegister wide(ZydisRegister reg) { return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg); }

bool is_wide(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value >= ZYDIS_REGISTER_RAX &&
         operand.reg.value <= ZYDIS_REGISTER_R15;
}
std::uint8_t number_of(ZydisRegister reg) { return static_cast<std::uint8_t>(reg - ZYDIS_REGISTER_RAX); }
bool is_memory(const ZydisDecodedOperand& operand) { return operand.type == ZYDIS_OPERAND_TYPE_MEMORY; }

bool writes(const ZydisDecodedOperand& operand, ZydisRegister reg) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
         wide(operand.reg.value) == reg;
}

// The registers that the psABI lets a callee change; rax carries what it returns.
RegisterValue after_call(unsigned reg) {
  constexpr unsigned kChanged = 1U << 1 | 1U << 2 | 1U << 6 | 1U << 7 | 0xfU << 8;
  if (reg == 0) return {.kind = Kind::pointer};
  return {.kind = (kChanged >> reg & 1U) != 0 ? Kind::other : Kind::same};
}

RegisterValue moved(const ZydisDecodedOperand& from) {
  if (is_wide(from)) return {.kind = Kind::copy, .a = number_of(from.reg.value)};
  if (from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return {.kind = Kind::constant, .constant = from.imm.value.u};
  return is_memory(from) && from.size == 64 ? RegisterValue{.kind = Kind::pointer} : RegisterValue{};
}

bool is_plain_base(ZydisRegister reg) { return reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15; }

// A memory operand of two registers and nothing else.
bool has_two_registers(const ZydisDecodedOperand& memory, unsigned scale) {
  return is_plain_base(memory.mem.base) && is_plain_base(memory.mem.index) && memory.mem.scale == scale &&
         (!memory.mem.disp.has_displacement || memory.mem.disp.value == 0);
}

RegisterValue of_two(Kind kind, const ZydisDecodedOperand& memory) {
  return {.kind = kind, .a = number_of(memory.mem.base), .b = number_of(memory.mem.index)};
}

RegisterValue address_of(const ZydisDecodedInstruction& insn, const ZydisDecodedOperand& memory, Addr at) {
  if (memory.mem.base == ZYDIS_REGISTER_RIP)
    return {.kind = Kind::constant,
            .constant = at.value + insn.length + static_cast<std::uint64_t>(memory.mem.disp.value)};
  return has_two_registers(memory, 1) ? of_two(Kind::sum, memory) : RegisterValue{};
}

RegisterValue entry_of(const ZydisDecodedInstruction& insn, const ZydisDecodedOperand& memory, Addr at) {
  if (memory.mem.base == ZYDIS_REGISTER_RIP)
    return {.kind = Kind::fixed_entry,
            .constant = at.value + insn.length + static_cast<std::uint64_t>(memory.mem.disp.value)};
  return has_two_registers(memory, 4) ? of_two(Kind::table_entry, memory) : RegisterValue{};
}

// %fs:0x30, with which glibc encrypts the pointers that it stores (PTR_DEMANGLE in sysdeps/x86_64/nptl/tls.h): return
// addresses of setjmp, and functions.
bool is_pointer_guard(const ZydisDecodedOperand& operand) {
  return is_memory(operand) && operand.mem.segment == ZYDIS_REGISTER_FS && operand.mem.base == ZYDIS_REGISTER_NONE &&
         operand.mem.index == ZYDIS_REGISTER_NONE && operand.mem.disp.value == 0x30;
}

RegisterValue moved_if(const ZydisDecodedOperand& from) {
  RegisterValue value = moved(from);
  if (value.kind == Kind::copy)
    value.kind = Kind::same_or_copy;
  else if (value.kind == Kind::pointer)
    value.kind = Kind::same_or_pointer;
  return value;
}

// The first operand is the register itself, written explicitly.
RegisterValue written(const ZydisDecodedInstruction& insn, const Operands& operands, Addr at) {
  const auto& from = operands[1];
  // mov of 32 bits: only an immediate is an address then.
  if (insn.mnemonic == ZYDIS_MNEMONIC_MOV && !is_wide(operands[0]))
    return operands[0].size == 32 && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE
               ? RegisterValue{.kind = Kind::constant, .constant = from.imm.value.u & 0xffffffffU}
               : RegisterValue{};
  if (!is_wide(operands[0])) return {};
  if (insn.mnemonic == ZYDIS_MNEMONIC_MOV) return moved(from);
  if (insn.mnemonic == ZYDIS_MNEMONIC_POP) return {.kind = Kind::pointer};
  if (insn.mnemonic == ZYDIS_MNEMONIC_LEA) return address_of(insn, from, at);
  if (insn.mnemonic == ZYDIS_MNEMONIC_MOVSXD && is_memory(from) && from.size == 32) return entry_of(insn, from, at);
  if (insn.mnemonic == ZYDIS_MNEMONIC_XOR && is_pointer_guard(from)) return {.kind = Kind::pointer};
  if (insn.mnemonic == ZYDIS_MNEMONIC_ADD && is_wide(from))
    return {.kind = Kind::sum, .a = number_of(operands[0].reg.value), .b = number_of(from.reg.value)};
  return insn.meta.category == ZYDIS_CATEGORY_CMOV ? moved_if(from) : RegisterValue{};
}

}  // namespace

bool scan(Bytes bytes, Addr at, Scanned& out) { return fast_scan(bytes, at, out) || scan_fully(bytes, at, out); }

bool scan_fully(Bytes bytes, Addr at, Scanned& out) {
  ZydisDecodedInstruction insn;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder(), nullptr, bytes.data(), bytes.size(), &insn)))
    return false;
  out = Scanned{};
  out.length = insn.length;
  const Flow flow = flow_of(insn);
  out.falls_through = falls_through(insn, flow);
  const auto& distance = insn.raw.imm[0];
  const bool is_direct = distance.is_relative != 0;
  out.leads = leads_of(insn, flow, is_direct, out.falls_through);
  if (is_direct) out.target = at.value + insn.length + static_cast<std::uint64_t>(distance.value.s);
  out.is_padding = insn.mnemonic == ZYDIS_MNEMONIC_NOP || insn.mnemonic == ZYDIS_MNEMONIC_INT3;
  out.is_undefined = is_undefined(insn.mnemonic);
  take_operand(insn, at, out);
  out.has_immediate = !is_direct && distance.size >= 32;
  if (out.has_immediate) out.immediate = distance.value.u;
  return true;
}

// Most instructions leave most registers alone.
RegisterValue value_after(Bytes bytes, Addr at, unsigned reg) {
  return fast_keeps(bytes, reg) ? RegisterValue{.kind = Kind::same} : value_after_fully(bytes, at, reg);
}

RegisterValue value_after_fully(Bytes bytes, Addr at, unsigned reg) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_raw(bytes, insn, operands)) return {};
  if (insn.meta.category == ZYDIS_CATEGORY_CALL) return after_call(reg);
  const auto name = static_cast<ZydisRegister>(ZYDIS_REGISTER_RAX + static_cast<int>(reg));
  for (unsigned i = 0; i < insn.operand_count; ++i) {
    if (!writes(operands[i], name)) continue;
    // A second register written by the same instruction, a hidden one, an exchange: not followed.
    return i == 0 && operands[i].visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT ? written(insn, operands, at)
                                                                                 : RegisterValue{};
  }
  return {.kind = Kind::same};
}

std::optional<unsigned> jump_register(Bytes bytes) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_raw(bytes, insn, operands) || insn.meta.category != ZYDIS_CATEGORY_UNCOND_BR) return std::nullopt;
  return is_wide(operands[0]) ? std::optional<unsigned>(number_of(operands[0].reg.value)) : std::nullopt;
}

}  // namespace uprobe::arch
