// SPDX-License-Identifier: MIT
// One instruction for those who read whole programs: where it leads, which addresses it names, and what it leaves in a
// register. Much cheaper than Decoded; judges nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/code/relocate.h"

namespace uprobe::arch {

enum class Leads : std::uint8_t {
  on,       // to the next instruction only
  jump,     // direct, never falls through
  jump_if,  // direct, may fall through: conditions, loops, xbegin
  call,     // direct
  call_indirect,
  jump_by_register,
  jump_by_memory,
  out,          // ret, a fault by design, hlt: nothing in the code says where to
  system_call,  // syscall and other ways into the kernel that come back
};

struct Scanned {
  std::uint8_t length = 0;
  Leads leads = Leads::on;
  bool falls_through = true;
  bool is_padding = false;      // a nop of any length, or int3: what compilers and linkers fill gaps with
  bool is_undefined = false;    // ud2 and kin: put where control never goes
  bool is_address_of = false;   // lea: `operand` is a value here, not a place that is read
  bool has_operand = false;     // a rip-relative operand, or a 32-bit displacement: `operand` is its address
  bool is_ip_relative = false;  // which of the two
  bool has_immediate = false;   // of 32 bits or more, sign-extended
  std::uint64_t target = 0;     // of a direct branch or call
  std::uint64_t operand = 0;
  std::uint64_t immediate = 0;

  bool operator==(const Scanned&) const = default;
};

// The instruction at the start of `bytes` as if it stood at `at`; false when the bytes are none.
bool scan(Bytes bytes, Addr at, Scanned& out);

// What a 64-bit general register holds after an instruction, in terms of what registers held before it.
struct RegisterValue {
  enum class Kind : std::uint8_t {
    same,          // what it held before
    copy,          // what register `a` held
    same_or_copy,  // either: cmov
    constant,      // `constant`: lea of a rip-relative address, mov of an immediate
    pointer,  // eight bytes from memory or from the stack, what a call returned, or what glibc hid from overwriting
    same_or_pointer,
    table_entry,  // four bytes, sign-extended, from a + 4 * b
    fixed_entry,  // four bytes, sign-extended, from `constant`
    sum,          // a + b
    other,
  };
  Kind kind = Kind::other;
  std::uint8_t a = 0, b = 0;
  std::uint64_t constant = 0;
};
// `reg` is the register's number in the encoding (rax 0, rcx 1, rdx 2, rbx 3, rsp 4 ... r15 15).
RegisterValue value_after(Bytes bytes, Addr at, unsigned reg);

// The register of an indirect jump: jmp *%rax.
std::optional<unsigned> jump_register(Bytes bytes);

}  // namespace uprobe::arch
