// SPDX-License-Identifier: MIT
#include "arch/code/packed.h"

#include <algorithm>
#include <array>

#include "arch/code/zydis.h"

namespace uprobe::arch {
namespace {

bool is_vector(const ZydisDecodedOperand& operand) {
  if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) return false;
  const ZydisRegisterClass kind = ZydisRegisterGetClass(operand.reg.value);
  return kind == ZYDIS_REGCLASS_XMM || kind == ZYDIS_REGCLASS_YMM || kind == ZYDIS_REGCLASS_ZMM ||
         kind == ZYDIS_REGCLASS_MMX;
}

// Moves, conversions of one number, and logic, by which compilers also make zero, a sign or a select of one number.
bool is_plain(const ZydisDecodedInstruction& insn) {
  switch (insn.meta.category) {
    case ZYDIS_CATEGORY_DATAXFER:
    case ZYDIS_CATEGORY_LOGICAL:
    case ZYDIS_CATEGORY_LOGICAL_FP:
    case ZYDIS_CATEGORY_CONVERT:
      return true;
    default:
      return false;
  }
}

using Operands = std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT>;

bool decode_operands(Bytes bytes, ZydisDecodedInstruction& insn, Operands& operands) {
  return !bytes.empty() &&
         ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes.data(), bytes.size(), &insn, operands.data()));
}

}  // namespace

bool computes_packed(Bytes bytes) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_operands(bytes, insn, operands)) return false;
  const bool has_result = insn.operand_count_visible != 0 && is_vector(operands[0]);
  return has_result && operands[0].element_count > 1 && !is_plain(insn);
}

bool just_computes(Bytes bytes) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_operands(bytes, insn, operands)) return false;
  if (flow_of(insn) != Flow::straight) return false;
  return std::none_of(operands.begin(), operands.begin() + insn.operand_count, [](const ZydisDecodedOperand& operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_MEMORY && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  });
}

}  // namespace uprobe::arch
