// SPDX-License-Identifier: MIT
#include "arch/code/stack_use.h"

#include <algorithm>
#include <array>

#include "arch/code/zydis.h"

namespace uprobe::arch {
namespace {

using Becomes = StackUse::Becomes;
using Operands = std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT>;

bool is_register(const ZydisDecodedOperand& operand, ZydisRegister which) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value == which;
}

bool writes(const ZydisDecodedInstruction& insn, const Operands& operands, ZydisRegister which) {
  return std::any_of(operands.begin(), operands.begin() + insn.operand_count, [&](const auto& operand) {
    const bool is_it = operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
                       ZydisRegisterGetLargestEnclosing(insn.machine_mode, operand.reg.value) == which;
    return is_it && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  });
}

// What `which` holds after an instruction that names it as its destination.
StackUse::Register assigned(const ZydisDecodedInstruction& insn, const Operands& operands, ZydisRegister which) {
  if (!is_register(operands[0], which)) return {Becomes::unknown, 0};
  const ZydisDecodedOperand& source = operands[1];
  const Becomes own = which == ZYDIS_REGISTER_RSP ? Becomes::from_sp : Becomes::from_frame;
  switch (insn.mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
      if (source.type != ZYDIS_OPERAND_TYPE_IMMEDIATE) break;
      return {own, insn.mnemonic == ZYDIS_MNEMONIC_ADD ? source.imm.value.s : -source.imm.value.s};
    case ZYDIS_MNEMONIC_MOV:
      if (is_register(source, ZYDIS_REGISTER_RSP)) return {Becomes::from_sp, 0};
      if (is_register(source, ZYDIS_REGISTER_RBP)) return {Becomes::from_frame, 0};
      break;
    case ZYDIS_MNEMONIC_LEA:
      if (source.mem.index != ZYDIS_REGISTER_NONE) break;
      if (source.mem.base == ZYDIS_REGISTER_RSP) return {Becomes::from_sp, source.mem.disp.value};
      if (source.mem.base == ZYDIS_REGISTER_RBP) return {Becomes::from_frame, source.mem.disp.value};
      break;
    default:
      break;
  }
  return {Becomes::unknown, 0};
}

StackUse::Register stack_pointer_after(const ZydisDecodedInstruction& insn, const Operands& operands) {
  const std::int64_t word = insn.operand_width == 16 ? 2 : 8;
  if (insn.meta.category == ZYDIS_CATEGORY_CALL) return {};
  if (insn.mnemonic == ZYDIS_MNEMONIC_LEAVE) return {Becomes::from_frame, 8};
  // `pop %rsp` names it, too.
  if (!is_register(operands[0], ZYDIS_REGISTER_RSP)) {
    if (insn.meta.category == ZYDIS_CATEGORY_PUSH) return {Becomes::from_sp, -word};
    if (insn.meta.category == ZYDIS_CATEGORY_POP) return {Becomes::from_sp, word};
  }
  if (!writes(insn, operands, ZYDIS_REGISTER_RSP)) return {};
  return assigned(insn, operands, ZYDIS_REGISTER_RSP);
}

// The one that is read, its address taken with it, or written.
std::optional<StackPlace> place_named(const ZydisDecodedInstruction& insn, const Operands& operands,
                                      ZydisOperandActions how) {
  for (unsigned i = 0; i < insn.operand_count_visible; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || operand.mem.index != ZYDIS_REGISTER_NONE) continue;
    const bool by_frame = operand.mem.base == ZYDIS_REGISTER_RBP;
    if (!by_frame && operand.mem.base != ZYDIS_REGISTER_RSP) continue;
    const bool is_address = operand.mem.type == ZYDIS_MEMOP_TYPE_AGEN;
    const bool is_used_so = is_address ? how == ZYDIS_OPERAND_ACTION_MASK_READ : (operand.actions & how) != 0;
    if (!is_used_so) continue;
    return StackPlace{by_frame, operand.mem.disp.value, is_address ? 0U : operand.size / 8U};
  }
  return std::nullopt;
}

}  // namespace

std::optional<StackUse> stack_use(Bytes bytes) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes.data(), bytes.size(), &insn, operands.data())))
    return std::nullopt;
  StackUse use;
  use.sp = stack_pointer_after(insn, operands);
  if (insn.mnemonic != ZYDIS_MNEMONIC_CALL && writes(insn, operands, ZYDIS_REGISTER_RBP))
    use.frame = assigned(insn, operands, ZYDIS_REGISTER_RBP);
  use.reads = place_named(insn, operands, ZYDIS_OPERAND_ACTION_MASK_READ);
  use.writes = place_named(insn, operands, ZYDIS_OPERAND_ACTION_MASK_WRITE);
  return use;
}

}  // namespace uprobe::arch
