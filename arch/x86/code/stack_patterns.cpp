// SPDX-License-Identifier: MIT
#include "arch/code/stack_patterns.h"

namespace uprobe::arch {
namespace {

using shared::Reg;

// In the machine's numbering.
constexpr Reg kRegisters[] = {Reg::ax, Reg::cx, Reg::dx,  Reg::bx,  Reg::sp,  Reg::bp,  Reg::si,  Reg::di,
                              Reg::r8, Reg::r9, Reg::r10, Reg::r11, Reg::r12, Reg::r13, Reg::r14, Reg::r15};

std::optional<StackRelease> pop_of(Bytes code) {
  constexpr std::uint8_t kRexB = 0x41, kPop = 0x58;
  const bool is_upper = code.size() == 2 && code[0] == kRexB;
  if (code.size() != (is_upper ? 2U : 1U) || (code.back() & 0xf8) != kPop) return std::nullopt;
  const Reg reg = kRegisters[(code.back() & 7U) | (is_upper ? 8U : 0U)];
  if (reg == Reg::sp) return std::nullopt;
  return StackRelease{8, reg};
}

// add $n, %rsp
std::optional<StackRelease> add_of(Bytes code) {
  constexpr std::uint8_t kRexW = 0x48, kByte = 0x83, kLong = 0x81, kToRsp = 0xc4;
  if (code.size() < 4 || code[0] != kRexW || code[2] != kToRsp) return std::nullopt;
  if (code[1] == kByte && code.size() == 4 && code[3] < 0x80) return StackRelease{code[3], Reg::flags};
  if (code[1] != kLong || code.size() != 7) return std::nullopt;
  const std::uint32_t moves = code[3] | std::uint32_t{code[4]} << 8 | std::uint32_t{code[5]} << 16;
  return code[6] == 0 ? std::optional(StackRelease{moves, Reg::flags}) : std::nullopt;
}

// Of a push or pop, whose opcodes begin at `first`; kNoRegister: it is another instruction.
unsigned stack_register(Bytes insn, std::uint8_t first) {
  const bool is_high = insn.size() == 2 && insn[0] == 0x41;  // REX.B
  const std::uint8_t opcode = insn.back();
  if ((insn.size() != 1 && !is_high) || (opcode & 0xf8) != first) return kNoRegister;
  return (opcode & 7U) + (is_high ? 8U : 0U);
}

}  // namespace

std::uint16_t popped_by(Bytes code) {
  constexpr std::uint8_t kRepne = 0xf2, kRep = 0xf3, kReturn = 0xc3, kReturnAndPop = 0xc2;
  std::size_t at = 0;
  while (at < code.size() && (code[at] == kRep || code[at] == kRepne)) ++at;
  if (at < code.size() && code[at] == kReturn) return 8;
  if (at + 2 >= code.size() || code[at] != kReturnAndPop) return 0;
  const unsigned more = code[at + 1] | unsigned{code[at + 2]} << 8;
  return more <= 0xffff - 8 ? static_cast<std::uint16_t>(8 + more) : std::uint16_t{0};
}

StackMove stack_move_of(Bytes code) {
  constexpr std::uint8_t kLeave = 0xc9, kPopRsp = 0x5c, kLoad = 0x8b, kStore = 0x89, kAddress = 0x8d, kXchg = 0x87;
  constexpr unsigned kRsp = 4, kRbp = 5;
  if (code[0] == kLeave) return StackMove::to_frame;
  if (code[0] == kPopRsp) return StackMove::to_another;
  if (code.size() < 3 || (code[0] & 0xf8) != 0x48) return StackMove::none;  // REX.W
  const unsigned reg = (code[2] >> 3 & 7) | (code[0] & 4U) << 1, rm = (code[2] & 7) | (code[0] & 1U) << 3;
  const bool is_register = code[2] >= 0xc0;
  if (code[1] == kAddress) return reg == kRsp ? StackMove::to_frame : StackMove::none;
  if (code[1] == kXchg) return reg == kRsp || (is_register && rm == kRsp) ? StackMove::to_another : StackMove::none;
  const bool loads = code[1] == kLoad && reg == kRsp, stores = code[1] == kStore && is_register && rm == kRsp;
  if (!loads && !stores) return StackMove::none;
  const bool is_frame = loads ? is_register && rm == kRbp : reg == kRbp;
  return is_frame ? StackMove::to_frame : StackMove::to_another;
}

std::optional<StackRelease> stack_release(Bytes code) {
  const auto pop = pop_of(code);
  return pop ? pop : add_of(code);
}

unsigned pushed_register(Bytes insn) { return stack_register(insn, 0x50); }
unsigned popped_register(Bytes insn) { return stack_register(insn, 0x58); }

// sub $SIZE, %rsp
bool reserves_stack(Bytes insn) {
  return insn.size() >= 4 && insn[0] == 0x48 && (insn[1] == 0x83 || insn[1] == 0x81) && insn[2] == 0xec;
}

// From (%rsp), or by adding to %rsp.
bool uses_return_address(Bytes insn) {
  constexpr std::uint8_t kLoad = 0x8b, kExchange = 0x87, kAdd = 0x03, kAddByte = 0x83, kAddLong = 0x81, kLea = 0x8d;
  constexpr std::uint8_t kAddToSp = 0xc4, kLeaOfSp = 0x64, kSib = 0x24;
  if (insn.size() < 4 || (insn[0] & 0xf8) != 0x48) return false;  // REX.W
  const std::uint8_t opcode = insn[1], modrm = insn[2];
  if (opcode == kAddByte || opcode == kAddLong) return modrm == kAddToSp;
  if (opcode == kLea) return modrm == kLeaOfSp && insn[3] == kSib;
  const bool is_top = (modrm & 0xc7) == 0x04 && insn[3] == kSib;
  return is_top && (opcode == kLoad || opcode == kExchange || opcode == kAdd);
}

}  // namespace uprobe::arch
