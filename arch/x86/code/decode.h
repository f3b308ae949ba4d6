// SPDX-License-Identifier: MIT
// What the allow-list and the relocator need to know of one instruction, without a decoder's types: internal to this
// folder and its tests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "arch/code/relocate.h"

namespace uprobe::arch {

// Where control goes after the instruction.
enum class Flow : std::uint8_t {
  straight,
  jump,
  jump_if,  // the sixteen conditions
  loop,     // loop, loope, loopne, jrcxz, jecxz: exist with an 8-bit distance only
  call,
  ret,
  transaction,  // xbegin
  system_call,  // syscall
  trap,         // other ways into the kernel, or a fault by design
};

// The base register of the explicit memory operand.
enum class Base : std::uint8_t { none, rip, eip, rsp, esp, other };

// One instruction. Offsets count from its first byte; 0 means that there is no such part.
struct Decoded {
  std::array<std::uint8_t, kMaxInsnBytes> bytes = {};
  std::uint8_t length = 0;
  std::uint8_t opcode = 0;
  std::uint8_t modrm_offset = 0;
  std::uint8_t disp_offset = 0;
  std::uint8_t disp_bytes = 0;
  std::uint8_t target_offset = 0;  // of the distance of a direct branch
  std::int64_t disp = 0;
  Addr target;  // of a direct branch

  // Names of static storage, in the decoder's spelling: "vpaddd", "AVX512", "AVX512F_512".
  std::string_view mnemonic;
  std::string_view category;
  std::string_view isa_set;

  Flow flow = Flow::straight;
  Base base = Base::none;
  bool has_memory = false;  // an explicit memory operand, also of lea and nop
  bool has_index = false;
  bool is_direct = false;
  bool is_far = false;
  bool is_privileged = false;
  bool has_narrow_operand = false;  // prefix 66 that no REX.W overrides
  bool writes_ss = false;
  bool falls_through = true;
  bool branches_to_rsp = false;  // call *%rsp
};

// Nothing when the bytes are no instruction or end too early.
std::optional<Decoded> decode_fully(Bytes bytes, Addr at);

}  // namespace uprobe::arch
