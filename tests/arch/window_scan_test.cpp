// SPDX-License-Identifier: MIT
// scan() and the contents of registers, one row per form; and scan() against the full decoder over this program's own code.
#include <gtest/gtest.h>

#include "arch/code/decode.h"
#include "arch/code/scan.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

constexpr Addr kAt{0x1000};
using Kind = RegisterValue::Kind;

Scanned scanned(const char* hex) {
  Scanned insn;
  EXPECT_TRUE(scan(from_hex(hex), kAt, insn)) << hex;
  return insn;
}

TEST(Scan, SaysWhereControlGoes) {
  const struct {
    const char* bytes;
    Leads leads;
    bool falls_through;
    std::uint64_t target;
  } rows[] = {
      {"90", Leads::on, true, 0},
      {"eb 10", Leads::jump, false, 0x1012},
      {"e9 00 01 00 00", Leads::jump, false, 0x1105},
      {"74 fe", Leads::jump_if, true, 0x1000},
      {"0f 84 00 00 01 00", Leads::jump_if, true, 0x11006},
      {"e3 02", Leads::jump_if, true, 0x1004},
      {"c7 f8 00 01 00 00", Leads::jump_if, true, 0x1106},
      {"e8 fb ff ff ff", Leads::call, true, 0x1000},
      {"ff d0", Leads::call_indirect, true, 0},
      {"ff 15 00 00 00 00", Leads::call_indirect, true, 0},
      {"ff e0", Leads::jump_by_register, false, 0},
      {"3e ff e0", Leads::jump_by_register, false, 0},
      {"ff 24 c5 00 20 40 00", Leads::jump_by_memory, false, 0},
      {"c3", Leads::out, false, 0},
      {"f3 c3", Leads::out, false, 0},
      {"0f 0b", Leads::out, false, 0},
      {"f4", Leads::out, false, 0},
      {"cc", Leads::out, false, 0},
      {"0f 05", Leads::system_call, true, 0},
      {"cd 80", Leads::system_call, true, 0},
  };
  for (const auto& row : rows) {
    const Scanned insn = scanned(row.bytes);
    EXPECT_EQ(insn.leads, row.leads) << row.bytes;
    EXPECT_EQ(insn.falls_through, row.falls_through) << row.bytes;
    EXPECT_EQ(insn.target, row.target) << row.bytes;
  }
}

TEST(Scan, SaysWhichAddressesAreNamed) {
  EXPECT_EQ(scanned("48 8d 05 10 00 00 00").operand, 0x1017U);
  EXPECT_TRUE(scanned("48 8d 05 10 00 00 00").is_address_of);
  EXPECT_TRUE(scanned("48 8d 05 10 00 00 00").is_ip_relative);
  EXPECT_EQ(scanned("c7 05 10 00 00 00 2a 00 00 00").operand, 0x101aU);  // an immediate after the displacement
  EXPECT_FALSE(scanned("c7 05 10 00 00 00 2a 00 00 00").is_address_of);
  EXPECT_EQ(scanned("ff 24 c5 00 20 40 00").operand, 0x402000U);
  EXPECT_FALSE(scanned("ff 24 c5 00 20 40 00").is_ip_relative);
  EXPECT_FALSE(scanned("48 8b 44 24 08").has_operand);
  EXPECT_EQ(scanned("bf 00 20 40 00").immediate, 0x402000U);
  EXPECT_FALSE(scanned("83 c0 10").has_immediate);
}

TEST(Scan, KnowsPadding) {
  for (const char* padding : {"90", "66 90", "0f 1f 00", "66 2e 0f 1f 84 00 00 00 00 00", "cc"})
    EXPECT_TRUE(scanned(padding).is_padding) << padding;
  for (const char* other : {"f3 0f 1e fa", "f3 90", "87 db", "00 00", "c3", "0f 0b"})
    EXPECT_FALSE(scanned(other).is_padding) << other;
  EXPECT_TRUE(scanned("0f 0b").is_undefined);
}

TEST(Scan, AgreesWithTheFullDecoder) {
  const auto* code = reinterpret_cast<const std::uint8_t*>(&scan);
  for (std::size_t at = 0; at < 4096; ++at) {
    const Bytes bytes(code + at, kMaxInsnBytes);
    Scanned insn;
    const auto full = decode(bytes, kAt);
    ASSERT_EQ(scan(bytes, kAt, insn), static_cast<bool>(full)) << to_hex(bytes);
    if (!full) continue;
    EXPECT_EQ(insn.length, full->length) << to_hex(bytes);
    EXPECT_EQ(insn.falls_through, full->falls_through) << to_hex(bytes);
    EXPECT_EQ(insn.target, full->is_direct ? full->target.value : 0) << to_hex(bytes);
    EXPECT_EQ(insn.has_operand && insn.is_ip_relative, full->reads_ip_memory && bytes[0] != 0x67) << to_hex(bytes);
  }
}

TEST(Scan, SaysWhatARegisterHolds) {
  const struct {
    const char* bytes;
    unsigned reg;
    Kind kind;
    unsigned a, b;
  } rows[] = {
      {"48 89 c3", 3, Kind::copy, 0, 0},  // mov %rax,%rbx
      {"48 89 c3", 0, Kind::same, 0, 0},
      {"89 c3", 3, Kind::other, 0, 0},                       // mov %eax,%ebx
      {"88 c3", 3, Kind::other, 0, 0},                       // mov %al,%bl
      {"48 8b 47 08", 0, Kind::pointer, 0, 0},               // mov 8(%rdi),%rax
      {"8b 47 08", 0, Kind::other, 0, 0},                    // mov 8(%rdi),%eax
      {"4d 63 04 94", 8, Kind::table_entry, 12, 2},          // movslq (%r12,%rdx,4),%r8
      {"48 63 44 94 04", 0, Kind::other, 0, 0},              // movslq 4(%rsp,%rdx,4),%rax
      {"48 63 04 d3", 0, Kind::other, 0, 0},                 // movslq (%rbx,%rdx,8),%rax
      {"48 63 05 00 01 00 00", 0, Kind::fixed_entry, 0, 0},  // movslq 0x100(%rip),%rax
      {"48 01 d0", 0, Kind::sum, 0, 2},                      // add %rdx,%rax
      {"01 d0", 0, Kind::other, 0, 0},                       // add %edx,%eax
      {"48 83 c0 08", 0, Kind::other, 0, 0},                 // add $8,%rax
      {"48 8d 04 13", 0, Kind::sum, 3, 2},                   // lea (%rbx,%rdx),%rax
      {"48 8d 44 13 08", 0, Kind::other, 0, 0},              // lea 8(%rbx,%rdx),%rax
      {"48 8d 05 00 01 00 00", 0, Kind::constant, 0, 0},
      {"48 0f 44 c2", 0, Kind::same_or_copy, 2, 0},            // cmove %rdx,%rax
      {"48 0f 44 07", 0, Kind::same_or_pointer, 0, 0},         // cmove (%rdi),%rax
      {"58", 0, Kind::pointer, 0, 0},                          // pop %rax
      {"48 93", 3, Kind::other, 0, 0},                         // xchg %rax,%rbx
      {"e8 00 00 00 00", 0, Kind::pointer, 0, 0},              // a call returns in rax,
      {"e8 00 00 00 00", 1, Kind::other, 0, 0},                // changes rcx
      {"e8 00 00 00 00", 3, Kind::same, 0, 0},                 // and keeps rbx
      {"0f 05", 1, Kind::other, 0, 0},                         // a system call changes rcx
      {"64 48 33 04 25 30 00 00 00", 0, Kind::pointer, 0, 0},  // xor %fs:0x30,%rax
      {"64 48 33 04 25 28 00 00 00", 0, Kind::other, 0, 0},
      {"48 f7 e2", 2, Kind::other, 0, 0},  // mul %rdx
      {"48 a5", 6, Kind::other, 0, 0},     // movsq
      {"e2 00", 1, Kind::other, 0, 0},     // loop
  };
  for (const auto& row : rows) {
    const auto value = value_after(from_hex(row.bytes), kAt, row.reg);
    EXPECT_EQ(value.kind, row.kind) << row.bytes;
    EXPECT_EQ(value.a, row.a) << row.bytes;
    EXPECT_EQ(value.b, row.b) << row.bytes;
  }
  EXPECT_EQ(value_after(from_hex("48 8d 05 00 01 00 00"), kAt, 0).constant, 0x1107U);
  EXPECT_EQ(value_after(from_hex("b8 00 20 40 80"), kAt, 0).constant, 0x80402000U);
  EXPECT_EQ(value_after(from_hex("48 63 05 00 01 00 00"), kAt, 0).constant, 0x1107U);
}

TEST(Scan, KnowsTheRegisterOfAJump) {
  EXPECT_EQ(jump_register(from_hex("ff e0")), 0U);
  EXPECT_EQ(jump_register(from_hex("3e 41 ff e3")), 11U);
  EXPECT_FALSE(jump_register(from_hex("ff 20")));
  EXPECT_FALSE(jump_register(from_hex("ff d0")));
}

}  // namespace
}  // namespace uprobe::arch::test
