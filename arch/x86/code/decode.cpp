// SPDX-License-Identifier: MIT
// Bytes to Decoded and Insn. Nothing is judged here.
#include "arch/code/decode.h"

#include <algorithm>

#include "arch/code/zydis.h"

namespace uprobe::arch {

const ZydisDecoder& decoder() {
  static const ZydisDecoder kDecoder = [] {
    ZydisDecoder made;
    ZydisDecoderInit(&made, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return made;
  }();
  return kDecoder;
}

std::string decoder_version() {
  const ZyanU64 version = ZydisGetVersion();
  return "Zydis " + std::to_string(ZYDIS_VERSION_MAJOR(version)) + "." + std::to_string(ZYDIS_VERSION_MINOR(version)) +
         "." + std::to_string(ZYDIS_VERSION_PATCH(version));
}

namespace {

using Operands = std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT>;

Flow conditional_flow(const ZydisDecodedInstruction& insn) {
  switch (insn.mnemonic) {
    case ZYDIS_MNEMONIC_XBEGIN:
      return Flow::transaction;
    case ZYDIS_MNEMONIC_XEND:
      return Flow::straight;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JRCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JCXZ:
      return Flow::loop;
    default:
      return Flow::jump_if;
  }
}

}  // namespace

Flow flow_of(const ZydisDecodedInstruction& insn) {
  switch (insn.meta.category) {
    case ZYDIS_CATEGORY_CALL:
      return Flow::call;
    case ZYDIS_CATEGORY_COND_BR:
      return conditional_flow(insn);
    case ZYDIS_CATEGORY_UNCOND_BR:  // xabort does nothing outside a transaction and undoes everything inside one
      return insn.mnemonic == ZYDIS_MNEMONIC_XABORT ? Flow::straight : Flow::jump;
    case ZYDIS_CATEGORY_RET:
      return insn.mnemonic == ZYDIS_MNEMONIC_RET ? Flow::ret : Flow::trap;
    case ZYDIS_CATEGORY_SYSCALL:
      return insn.mnemonic == ZYDIS_MNEMONIC_SYSCALL ? Flow::system_call : Flow::trap;
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SYSRET:
      return Flow::trap;
    default:
      break;
  }
  const bool faults_by_design = insn.mnemonic == ZYDIS_MNEMONIC_UD0 || insn.mnemonic == ZYDIS_MNEMONIC_UD1 ||
                                insn.mnemonic == ZYDIS_MNEMONIC_UD2 || insn.mnemonic == ZYDIS_MNEMONIC_UIRET;
  return faults_by_design ? Flow::trap : Flow::straight;
}

bool falls_through(const ZydisDecodedInstruction& insn, Flow flow) {
  if (insn.mnemonic == ZYDIS_MNEMONIC_HLT) return false;
  if (flow == Flow::jump || flow == Flow::ret) return false;
  if (flow != Flow::trap) return true;
  return insn.mnemonic == ZYDIS_MNEMONIC_SYSENTER || insn.mnemonic == ZYDIS_MNEMONIC_INT;
}

namespace {

Base base_of(ZydisRegister base) {
  switch (base) {
    case ZYDIS_REGISTER_NONE:
      return Base::none;
    case ZYDIS_REGISTER_RIP:
      return Base::rip;
    case ZYDIS_REGISTER_EIP:
      return Base::eip;
    case ZYDIS_REGISTER_RSP:
      return Base::rsp;
    case ZYDIS_REGISTER_ESP:
      return Base::esp;
    default:
      return Base::other;
  }
}

void take_operand(const ZydisDecodedOperand& operand, Decoded& out) {
  if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
    if (operand.reg.value == ZYDIS_REGISTER_SS && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0)
      out.writes_ss = true;
    if (operand.reg.value == ZYDIS_REGISTER_RSP && operand.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT &&
        out.flow == Flow::call)
      out.branches_to_rsp = true;
    return;
  }
  // Hidden memory operands (the stack of push, the strings of movs) have no bytes of their own.
  if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || operand.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT) return;
  out.has_memory = true;
  out.base = base_of(operand.mem.base);
  out.has_index = operand.mem.index != ZYDIS_REGISTER_NONE;
}

bool has_prefix(const ZydisDecodedInstruction& insn, std::uint8_t value) {
  const auto* end = insn.raw.prefixes + insn.raw.prefix_count;
  return std::any_of(insn.raw.prefixes, end, [value](const auto& prefix) { return prefix.value == value; });
}

void take_branch(const ZydisDecodedInstruction& insn, Addr at, Decoded& out) {
  out.is_far = insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  const auto& distance = insn.raw.imm[0];
  if (distance.is_relative == 0) return;
  out.is_direct = true;
  out.target_offset = distance.offset;
  out.target = at + insn.length + static_cast<std::uint64_t>(distance.value.s);
}

Decoded convert(const ZydisDecodedInstruction& insn, const Operands& operands, Bytes bytes, Addr at) {
  Decoded out;
  std::copy_n(bytes.begin(), insn.length, out.bytes.begin());
  out.length = insn.length;
  out.opcode = insn.opcode;
  out.modrm_offset = insn.raw.modrm.offset;
  out.disp_offset = insn.raw.disp.offset;
  out.disp_bytes = insn.raw.disp.size / 8;
  out.disp = insn.raw.disp.value;
  out.mnemonic = ZydisMnemonicGetString(insn.mnemonic);
  out.category = ZydisCategoryGetString(insn.meta.category);
  out.isa_set = ZydisISASetGetString(insn.meta.isa_set);
  out.flow = flow_of(insn);
  out.falls_through = falls_through(insn, out.flow);
  out.is_privileged = (insn.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0;
  const bool is_wide = insn.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && insn.raw.rex.W != 0;
  out.has_narrow_operand = has_prefix(insn, 0x66) && !is_wide;
  for (unsigned i = 0; i < insn.operand_count; ++i) take_operand(operands[i], out);
  take_branch(insn, at, out);
  return out;
}

bool decode_raw(Bytes bytes, ZydisDecodedInstruction& insn, Operands& operands) {
  return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes.data(), bytes.size(), &insn, operands.data()));
}

}  // namespace

std::optional<Decoded> decode_fully(Bytes bytes, Addr at) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_raw(bytes, insn, operands)) return std::nullopt;
  return convert(insn, operands, bytes, at);
}

Result<Insn> decode(Bytes bytes, Addr at) {
  const auto decoded = decode_fully(bytes, at);
  if (!decoded) return Error{Code::damaged, "the bytes are not an instruction"};
  Insn insn;
  insn.length = decoded->length;
  insn.reads_ip_memory = decoded->base == Base::rip || decoded->base == Base::eip;
  insn.is_branch = decoded->flow != Flow::straight;
  insn.is_call = decoded->flow == Flow::call;
  insn.is_return = decoded->flow == Flow::ret;
  insn.is_direct = decoded->is_direct;
  insn.falls_through = decoded->falls_through;
  if (decoded->is_direct) insn.target = decoded->target;
  return insn;
}

std::string disassemble(Bytes bytes, Addr at) {
  ZydisDecodedInstruction insn;
  Operands operands;
  if (!decode_raw(bytes, insn, operands)) return {};
  ZydisFormatter formatter;
  ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_ATT);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
  std::array<char, 128> text = {};
  const auto status = ZydisFormatterFormatInstruction(&formatter, &insn, operands.data(), insn.operand_count_visible,
                                                      text.data(), text.size(), at.value, nullptr);
  return ZYAN_SUCCESS(status) ? std::string(text.data()) : std::string();
}

}  // namespace uprobe::arch
