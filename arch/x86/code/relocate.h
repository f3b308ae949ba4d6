// SPDX-License-Identifier: MIT
// Displaced instructions: the bytes that do at `to` what the instruction does at `from`. Bytes in, bytes out; no OS.
//
// Five limits of every displaced copy that no rewriting can lift:
//   - an x87 instruction leaves its own address in the x87 environment (FIP), so fnstenv, fxsave and the like show the
//     address of the copy after a displaced one;
//   - a displaced call pushes its return address with `push`, which a hardware shadow stack does not see: displace no
//     call in a process that has one;
//   - a displaced indirect call pushes before it reads its target: a target in the very eight bytes below rsp, reached
//     through another register than rsp, would be overwritten (no compiler keeps one there across a call). Where the
//     operand is seen to be near rsp it is read first, at the price of 144 bytes of stack for a moment;
//   - a popf that sets the trap flag traps after the jump back, one instruction of the program early: the agent handles
//     that before it leads a thread to the copy (preload/trap.cpp);
//   - a displaced system call is made from the copy. Seccomp filters and syscall user dispatch that look at the
//     instruction pointer see that address, and so does a handler that runs while the call waits (in rcx as well).
//     Where such a handler decides by it, displace nothing: between musl's __cp_begin and __cp_end (glibc 2.41 and
//     later: __syscall_cancel_arch_start and _end), or a cancelled thread goes on waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"

namespace uprobe::arch {

using Bytes = std::span<const std::uint8_t>;

inline constexpr unsigned kMaxInsnBytes = 15;
// A copy never needs more: pushes, literals and the jump back included.
inline constexpr unsigned kMaxCopyBytes = 64;

// One decoded instruction, as much as the planner needs.
struct Insn {
  std::uint8_t length = 0;
  bool reads_ip_memory = false;  // has a rip-relative operand
  bool is_branch = false;        // any control flow: jmp, jcc, call, ret, loop, xbegin, int, syscall, ...
  bool is_call = false;
  bool is_return = false;
  bool is_direct = false;     // is_branch with an immediate target
  bool falls_through = true;  // control can reach the next instruction from here; of a call: after it returns
  Addr target;                // of a direct branch
};

// Decodes the instruction at the start of `bytes` as if it stood at `at`. Fails (Code::damaged) when the bytes are no
// instruction or end too early.
Result<Insn> decode(Bytes bytes, Addr at);

// "mov %rsp,%rbp" in AT&T syntax; empty when undecodable. By Zydis; the CLI prints Capstone's.
std::string disassemble(Bytes bytes, Addr at);

// The decoder's library: "Zydis 4.0.0".
std::string decoder_version();

// The displaced copy of the single instruction at the start of `insn` (may be followed by other bytes), made to run at
// `to`, within +-2 GiB of `from`. It ends with a jump back to from + length where control can fall through. Refused
// (Code::refused, reason without address) when the instruction is not on the allow-list or an operand is out of reach.
Result<std::vector<std::uint8_t>> displace(Bytes insn, Addr from, Addr to);

// Whether the instruction can be displaced at all, leaving reach aside: the reason if not.
Status can_displace(Bytes insn, Addr from);

// What a thread inside a copy is doing, in terms of the original program: from `offset` up to the next mark its
// address stands for `original`, and its rsp is `pushed` bytes lower than it would be there.
struct CopyMark {
  std::uint8_t offset = 0;
  std::uint8_t pushed = 0;
  Addr original;

  bool operator==(const CopyMark&) const = default;
};

// A copy and its marks, sorted by offset, the first at 0. A fault in the copy happened at `original` with rsp + pushed:
// no copy has changed any other state before its last instruction that can fault. (Of an indirect call the eight bytes
// below rsp already hold the return address by then; the call was about to write it there.)
struct Copy {
  std::vector<std::uint8_t> bytes;
  std::vector<CopyMark> marks;
};

// displace() with the marks. The copy goes on at `next` in place of from + length when `next` is given, so that the
// copies of consecutive instructions can be chained; a call's return address stays the original one.
Result<Copy> make_copy(Bytes insn, Addr from, Addr to, Addr next = {});

// The size of the copy, the same for every `to` and `next`: for planning before `to` is known. Fails like can_displace.
Result<std::size_t> copy_bytes(Bytes insn, Addr from);

}  // namespace uprobe::arch
