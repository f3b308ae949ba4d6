// Displaced instructions: the bytes that do at `to` what the instruction does at `from`. Bytes in, bytes out; no OS.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"

namespace uprobe::x86 {

using Bytes = std::span<const std::uint8_t>;

inline constexpr unsigned kMaxInsnBytes = 15;
// A copy never needs more: pushes, literals and the jump back included.
inline constexpr unsigned kMaxCopyBytes = 64;

// One decoded instruction, as much as the planner needs.
struct Insn {
  std::uint8_t length = 0;
  bool reads_rip_memory = false;  // has a rip-relative operand
  bool is_branch = false;         // any control flow: jmp, jcc, call, ret, loop, xbegin, ...
  bool is_call = false;
  bool is_return = false;
  bool is_direct = false;         // is_branch with an immediate target
  Addr target;                    // of a direct branch
};

// Decodes the instruction at the start of `bytes` as if it stood at `at`. Fails (Code::damaged) when the bytes are no
// instruction or end too early.
Result<Insn> decode(Bytes bytes, Addr at);

// "mov %rsp,%rbp" in AT&T syntax; empty when undecodable. By Zydis; the CLI prints Capstone's.
std::string disassemble(Bytes bytes, Addr at);

// The displaced copy of the single instruction at the start of `insn` (may be followed by other bytes), made to run at
// `to`, within +-2 GiB of `from`. It ends with a jump back to from + length where control can fall through. Refused
// (Code::refused, reason without address) when the instruction is not on the allow-list or an operand is out of reach.
Result<std::vector<std::uint8_t>> displace(Bytes insn, Addr from, Addr to);

// Whether the instruction can be displaced at all, leaving reach aside: the reason if not.
Status can_displace(Bytes insn, Addr from);

}  // namespace uprobe::x86
