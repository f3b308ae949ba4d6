// SPDX-License-Identifier: MIT
#include "arch/code/packed.h"

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

}  // namespace

bool computes_packed(Bytes bytes) {
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (bytes.empty() || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes.data(), bytes.size(), &insn, operands)))
    return false;
  const bool has_result = insn.operand_count_visible != 0 && is_vector(operands[0]);
  return has_result && operands[0].element_count > 1 && !is_plain(insn);
}

}  // namespace uprobe::arch
