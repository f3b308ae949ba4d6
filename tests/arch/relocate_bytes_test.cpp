// SPDX-License-Identifier: MIT
// Bytes in, bytes out: one row per form of copy, the refusals with their reasons, and hostile input.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "arch/code/relocate.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

constexpr Addr kFrom{0x100000};
constexpr Addr kTo{0x180000};
// The jump back from the end of a copy of the same length as the instruction.
constexpr const char* kBack = "e9 fb ff f7 ff";

struct Row {
  const char* insn;
  const char* copy;
  bool jumps_back = false;  // kBack follows
};

class Forms : public testing::TestWithParam<Row> {};

TEST_P(Forms, BytesOut) {
  const Row& row = GetParam();
  const auto insn = from_hex(row.insn);
  const std::string expected = to_hex(from_hex(std::string(row.copy) + (row.jumps_back ? kBack : "")));
  const auto copy = displace(insn, kFrom, kTo);
  ASSERT_TRUE(copy) << row.insn << ": " << copy.error().text;
  EXPECT_EQ(to_hex(*copy), expected) << disassemble(insn, kFrom);
  EXPECT_TRUE(can_displace(insn, kFrom));
}

TEST_P(Forms, OneSizeWhereverItGoes) {
  const auto insn = from_hex(GetParam().insn);
  const auto planned = copy_bytes(insn, kFrom);
  ASSERT_TRUE(planned);
  EXPECT_LE(*planned, kMaxCopyBytes);
  for (const std::uint64_t to : {0x1000UL, 0x100000UL, 0x100001UL, 0x7fff0000UL}) {
    const auto copy = displace(insn, kFrom, Addr{to});
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->size(), *planned);
  }
}

TEST_P(Forms, MarksAreSortedAndInside) {
  const auto insn = from_hex(GetParam().insn);
  const auto copy = make_copy(insn, kFrom, kTo);
  ASSERT_TRUE(copy);
  ASSERT_FALSE(copy->marks.empty());
  EXPECT_EQ(copy->marks.front(), (CopyMark{0, 0, kFrom}));
  EXPECT_LT(copy->marks.back().offset, copy->bytes.size());
  EXPECT_TRUE(std::is_sorted(copy->marks.begin(), copy->marks.end(),
                             [](const CopyMark& a, const CopyMark& b) { return a.offset < b.offset; }));
}

TEST_P(Forms, EveryTruncationIsRefusedOrAnotherInstruction) {
  const auto insn = from_hex(GetParam().insn);
  for (std::size_t size = 0; size < insn.size(); ++size) {
    const Bytes cut = Bytes(insn).first(size);
    const auto decoded = decode(cut, kFrom);
    EXPECT_FALSE(decoded) << GetParam().insn << " cut to " << size;
    const auto copy = displace(cut, kFrom, kTo);
    ASSERT_FALSE(copy);
    EXPECT_EQ(copy.error().code, Code::refused);
  }
}

constexpr Row kPlain[] = {
    {"48 89 e5", "48 89 e5", true},  // mov %rsp,%rbp
    {"90", "90", true},              // nop
    {"66 90", "66 90", true},        // xchg %ax,%ax
    {"f3 90", "f3 90", true},        // pause
    {"66 2e 0f 1f 84 00 00 00 00 00", "66 2e 0f 1f 84 00 00 00 00 00", true},
    {"66 66 2e 0f 1f 84 00 00 00 00 00", "66 66 2e 0f 1f 84 00 00 00 00 00", true},
    {"f3 0f 1e fa", "f3 0f 1e fa", true},        // endbr64
    {"f3 48 a5", "f3 48 a5", true},              // rep movsq
    {"f0 48 0f b1 0f", "f0 48 0f b1 0f", true},  // lock cmpxchg %rcx,(%rdi)
    {"64 48 8b 04 25 28 00 00 00", "64 48 8b 04 25 28 00 00 00", true},
    {"48 b8 88 77 66 55 44 33 22 11", "48 b8 88 77 66 55 44 33 22 11", true},
    {"a1 88 77 66 55 44 33 22 11", "a1 88 77 66 55 44 33 22 11", true},
    {"54", "54", true},                    // push %rsp
    {"ff 34 24", "ff 34 24", true},        // push (%rsp)
    {"8f 44 24 08", "8f 44 24 08", true},  // pop 8(%rsp)
    {"9c", "9c", true},                    // pushf
    {"9d", "9d", true},                    // popf
    {"c9", "c9", true},                    // leave
    {"c8 10 00 01", "c8 10 00 01", true},  // enter $16,$1
    {"0f a2", "0f a2", true},              // cpuid
    {"0f 01 d0", "0f 01 d0", true},        // xgetbv
    {"0f 01 d5", "0f 01 d5", true},        // xend
};

// A rip-relative operand: 0x10 - 0x80000 is 00 f8 ff of the new displacement, whatever follows it.
// Undefined, privileged and I/O instructions: as they are. An instruction that control never passes has no jump back.
constexpr Row kFaulting[] = {
    {"0f 0b", "0f 0b"},                                                  // ud2
    {"66 0f 0b", "66 0f 0b"},                                            // ud2 with a prefix
    {"0f b9 c0", "0f b9 c0"},                                            // ud1 %eax,%eax
    {"67 0f b9 40 02", "67 0f b9 40 02"},                                // ud1 2(%eax),%eax: clang's traps
    {"0f b9 05 10 00 00 00", "0f b9 05 10 00 f8 ff"},                    // ud1 0x10(%rip),%eax
    {"0f ff c0", "0f ff c0"},                                            // ud0 %eax,%eax
    {"f4", "f4"},                                                        // hlt
    {"cd 21", "cd 21", true},                                            // int $0x21
    {"66 0f 01 cc", "66 0f 01 cc", true},                                // tdcall
    {"f3 0f ae 35 10 00 00 00", "f3 0f ae 35 10 00 f8 ff", true},        // clrssbsy 0x10(%rip)
    {"67 0f b9 05 10 00 00 00", "67 0f b9 05 10 00 f8 ff"},              // ud1 0x10(%eip),%eax
    {"67 0f 01 15 10 00 00 00", "67 0f 01 15 10 00 f8 ff", true},        // lgdt 0x10(%eip)
    {"0f 35", "0f 35"},                                                  // sysexit
    {"48 0f 07", "48 0f 07"},                                            // sysretq
    {"0f aa", "0f aa"},                                                  // rsm
    {"fa", "fa", true},                                                  // cli
    {"fb", "fb", true},                                                  // sti
    {"e4 10", "e4 10", true},                                            // in $0x10,%al
    {"ee", "ee", true},                                                  // out %al,%dx
    {"f3 6c", "f3 6c", true},                                            // rep insb
    {"f3 6f", "f3 6f", true},                                            // rep outsl
    {"0f 22 d8", "0f 22 d8", true},                                      // mov %rax,%cr3
    {"0f 21 c0", "0f 21 c0", true},                                      // mov %db0,%rax
    {"0f 30", "0f 30", true},                                            // wrmsr
    {"0f 08", "0f 08", true},                                            // invd
    {"0f 06", "0f 06", true},                                            // clts
    {"0f 01 11", "0f 01 11", true},                                      // lgdt (%rcx)
    {"0f 01 15 10 00 00 00", "0f 01 15 10 00 f8 ff", true},              // lgdt 0x10(%rip)
    {"0f 01 f8", "0f 01 f8", true},                                      // swapgs
    {"0f 01 d1", "0f 01 d1", true},                                      // xsetbv
    {"0f 01 ca", "0f 01 ca", true},                                      // clac
    {"66 0f 38 82 05 10 00 00 00", "66 0f 38 82 05 10 00 f8 ff", true},  // invpcid 0x10(%rip),%rax
    {"0f 37", "0f 37", true},                                            // getsec
    {"0f 01 c1", "0f 01 c1", true},                                      // vmcall
    {"0f 01 d9", "0f 01 d9", true},                                      // vmmcall
    {"0f 01 d8", "0f 01 d8", true},                                      // vmrun
};

constexpr Row kRipRelative[] = {
    {"67 8b 05 10 00 00 00", "67 8b 05 10 00 f8 ff", true},                          // mov 0x10(%eip)
    {"67 c7 05 10 00 00 00 78 56 34 12", "67 c7 05 10 00 f8 ff 78 56 34 12", true},  // movl $0x12345678, 0x10(%eip)
    {"0f b2 05 10 00 00 00", "0f b2 05 10 00 f8 ff", true},                          // lss
    {"c4 e2 78 49 05 10 00 00 00", "c4 e2 78 49 05 10 00 f8 ff", true},              // ldtilecfg
    {"48 8b 05 10 00 00 00", "48 8b 05 10 00 f8 ff", true},
    {"48 8d 3d 10 00 00 00", "48 8d 3d 10 00 f8 ff", true},                          // lea
    {"80 3d 10 00 00 00 05", "80 3d 10 00 f8 ff 05", true},                          // cmpb $5,
    {"66 c7 05 10 00 00 00 34 12", "66 c7 05 10 00 f8 ff 34 12", true},              // movw $0x1234,
    {"c7 05 10 00 00 00 78 56 34 12", "c7 05 10 00 f8 ff 78 56 34 12", true},        // movl $0x12345678,
    {"48 81 05 10 00 00 00 78 56 34 12", "48 81 05 10 00 f8 ff 78 56 34 12", true},  // addq
    {"f0 48 0f c1 05 10 00 00 00", "f0 48 0f c1 05 10 00 f8 ff", true},              // lock xadd
    {"64 48 8b 05 10 00 00 00", "64 48 8b 05 10 00 f8 ff", true},                    // mov %fs:0x10(%rip)
    {"ff 35 10 00 00 00", "ff 35 10 00 f8 ff", true},                                // push
    {"0f 1f 05 10 00 00 00", "0f 1f 05 10 00 f8 ff", true},                          // nop 0x10(%rip)
    {"0f 18 0d 10 00 00 00", "0f 18 0d 10 00 f8 ff", true},                          // prefetcht0
    {"d9 05 10 00 00 00", "d9 05 10 00 f8 ff", true},                                // flds
    {"0f ae 15 10 00 00 00", "0f ae 15 10 00 f8 ff", true},                          // ldmxcsr
    {"f3 0f 6f 05 10 00 00 00", "f3 0f 6f 05 10 00 f8 ff", true},                    // movdqu
    {"66 0f 3a 0f 05 10 00 00 00 07", "66 0f 3a 0f 05 10 00 f8 ff 07", true},        // palignr $7
    {"0f 0f 05 10 00 00 00 9e", "0f 0f 05 10 00 f8 ff 9e", true},                    // pfadd: the opcode comes last
    {"c5 fa 6f 05 10 00 00 00", "c5 fa 6f 05 10 00 f8 ff", true},                    // vmovdqu
    {"c4 e3 7d 06 05 10 00 00 00 21", "c4 e3 7d 06 05 10 00 f8 ff 21", true},        // vperm2f128 $0x21
    {"62 f1 fe 48 6f 05 10 00 00 00", "62 f1 fe 48 6f 05 10 00 f8 ff", true},        // vmovdqu64: no disp8*N here
    {"62 f3 f5 48 03 05 10 00 00 00 03", "62 f3 f5 48 03 05 10 00 f8 ff 03", true},  // valignq $3
    {"8f e8 78 c0 05 10 00 00 00 03", "8f e8 78 c0 05 10 00 f8 ff 03", true},        // vprotb $3
};

constexpr Row kBranches[] = {
    {"cd 80", "cd 80", true},
    {"cf", "cf"},
    {"48 cf", "48 cf"},
    {"48 cb", "48 cb"},
    {"ca 08 00", "ca 08 00"},
    {"ff 28", "ff 28"},
    {"48 ff 2d 10 00 00 00", "48 ff 2d 10 00 f8 ff"},
    {"67 ff 25 10 00 00 00", "67 ff 25 10 00 f8 ff"},
    {"f3 0f 01 ec", "f3 0f 01 ec"},  // uiret
    {"eb 10", "e9 0d 00 f8 ff"},
    {"e9 10 00 00 00", "e9 10 00 f8 ff"},
    {"f2 e9 10 00 00 00", "e9 11 00 f8 ff"},  // bnd jmp
    {"ff e0", "ff e0"},
    {"3e ff e0", "3e ff e0"},  // notrack jmp *%rax
    {"ff e4", "ff e4"},        // jmp *%rsp
    {"ff 25 10 00 00 00", "ff 25 10 00 f8 ff"},
    {"3e ff 24 c5 10 00 00 00", "3e ff 24 c5 10 00 00 00"},
    {"66 48 ff e0", "66 48 ff e0"},
    {"c3", "c3"},
    {"f3 c3", "f3 c3"},
    {"f2 c3", "f2 c3"},
    {"c2 08 00", "c2 08 00"},
    {"74 10", "0f 84 0c 00 f8 ff  e9 f7 ff f7 ff"},
    {"7f f0", "0f 8f ec ff f7 ff  e9 f7 ff f7 ff"},
    {"3e 74 10", "0f 84 0d 00 f8 ff  e9 f8 ff f7 ff"},  // a branch hint
    {"0f 85 10 00 00 00", "0f 85 10 00 f8 ff  e9 fb ff f7 ff"},
    {"e2 10", "e2 05  e9 fb ff f7 ff  e9 06 00 f8 ff"},
    {"e1 10", "e1 05  e9 fb ff f7 ff  e9 06 00 f8 ff"},
    {"e0 10", "e0 05  e9 fb ff f7 ff  e9 06 00 f8 ff"},
    {"e3 10", "e3 05  e9 fb ff f7 ff  e9 06 00 f8 ff"},
    {"67 e3 10", "67 e3 05  e9 fb ff f7 ff  e9 06 00 f8 ff"},  // jecxz
    {"c7 f8 10 00 00 00", "c7 f8 10 00 f8 ff  e9 fb ff f7 ff"},
    {"0f 05", "0f 05  48 8d 0d f9 ff f7 ff  e9 f4 ff f7 ff"},  // syscall; lea 0x100002,%rcx; jmp 0x100002
};

// For a call through memory, a cmov that does not move reads its operand. Then push 0x100000 + length from a literal, and the
// jump; the literal last.
constexpr Row kCalls[] = {
    {"67 ff 15 10 00 00 00",
     "70 0b 67 48 0f 40 05 0c 00 f8 ff eb 09 67 48 0f 41 05 01 00 f8 ff ff 35 0c 00 00 00 67 ff 25 f4 ff f7 ff cc cc "
     "cc cc cc 07 00 10 00 00 00 00 00 cc cc"},
    {"e8 10 00 00 00", "ff 35 0a 00 00 00 e9 0a 00 f8 ff cc cc cc cc cc 05 00 10 00 00 00 00 00 cc cc"},
    {"e8 00 00 00 00",
     "ff 35 0a 00 00 00 e9 fa ff f7 ff cc cc cc cc cc 05 00 10 00 00 00 00 00 cc cc"},  // call to the next instruction
    {"67 e8 10 00 00 00", "ff 35 0a 00 00 00 e9 0b 00 f8 ff cc cc cc cc cc 06 00 10 00 00 00 00 00 cc cc"},
    {"f2 e8 10 00 00 00", "ff 35 0a 00 00 00 e9 0b 00 f8 ff cc cc cc cc cc 06 00 10 00 00 00 00 00 cc cc"},
    {"66 66 48 e8 10 00 00 00",
     "ff 35 0a 00 00 00 e9 0d 00 f8 ff cc cc cc cc cc 08 00 10 00 00 00 00 00 cc cc"},  // __tls_get_addr
    {"66 48 ff 15 10 00 00 00",
     "70 0a 48 0f 40 05 0e 00 f8 ff eb 08 48 0f 41 05 04 00 f8 ff ff 35 0e 00 00 00 66 48 ff 25 f6 ff f7 ff cc cc cc "
     "cc cc cc 08 00 10 00 00 00 00 00 cc"},
    {"ff d0", "ff 35 02 00 00 00 ff e0 02 00 10 00 00 00 00 00 cc cc cc cc cc cc cc"},
    {"41 ff d3", "ff 35 0a 00 00 00 41 ff e3 cc cc cc cc cc cc cc 03 00 10 00 00 00 00 00"},
    {"3e ff d0", "ff 35 0a 00 00 00 3e ff e0 cc cc cc cc cc cc cc 03 00 10 00 00 00 00 00"},
    {"ff 15 10 00 00 00",
     "70 0a 48 0f 40 05 0c 00 f8 ff eb 08 48 0f 41 05 02 00 f8 ff ff 35 06 00 00 00 ff 25 f6 ff f7 ff 06 00 10 00 00 "
     "00 00 00 cc cc cc cc cc cc cc"},
    {"ff 50 18",
     "70 07 48 0f 40 40 18 eb 05 48 0f 41 40 18 ff 35 04 00 00 00 ff 60 18 cc 03 00 10 00 00 00 00 00 cc cc cc cc cc "
     "cc"},
    {"41 ff 14 24",
     "70 07 49 0f 40 04 24 eb 05 49 0f 41 04 24 ff 35 04 00 00 00 41 ff 24 24 04 00 10 00 00 00 00 00 cc cc cc cc cc "
     "cc cc"},  // (%r12): not rsp
    {"64 ff 14 25 10 00 00 00",
     "70 0c 64 48 0f 40 04 25 10 00 00 00 eb 0a 64 48 0f 41 04 25 10 00 00 00 ff 35 0a 00 00 00 64 ff 24 25 10 00 00 "
     "00 cc cc 08 00 10 00 00 00 00 00 cc cc cc cc cc"},
    {"ff 14 24",
     "70 07 48 0f 40 04 24 eb 05 48 0f 41 04 24 ff 35 04 00 00 00 ff 64 24 08 03 00 10 00 00 00 00 00 cc cc cc cc cc "
     "cc cc"},  // (%rsp)
    {"ff 54 24 08",
     "70 08 48 0f 40 44 24 08 eb 06 48 0f 41 44 24 08 ff 35 0a 00 00 00 ff 64 24 10 cc cc cc cc cc cc 04 00 10 00 00 "
     "00 00 00 cc"},  // 8(%rsp)
    {"ff 54 24 78",
     "70 08 48 0f 40 44 24 78 eb 06 48 0f 41 44 24 78 ff 35 0a 00 00 00 ff a4 24 80 00 00 00 cc cc cc 04 00 10 00 00 "
     "00 00 00 cc cc cc cc"},
    {"ff 94 24 00 01 00 00",
     "70 0b 48 0f 40 84 24 00 01 00 00 eb 09 48 0f 41 84 24 00 01 00 00 ff 35 0c 00 00 00 ff a4 24 08 01 00 00 cc cc "
     "cc cc cc 07 00 10 00 00 00 00 00 cc cc"},
    {"ff 94 24 01 00 00 00",
     "70 0b 48 0f 40 84 24 01 00 00 00 eb 09 48 0f 41 84 24 01 00 00 00 ff 35 0c 00 00 00 ff a4 24 09 00 00 00 cc cc "
     "cc cc cc 07 00 10 00 00 00 00 00 cc cc"},
    // near rsp: push the operand, and from there
    {"42 ff 54 c4 08",
     "42 ff 74 c4 08 48 8d 64 24 88 ff 74 24 78 ff 35 14 00 00 00 8f 84 24 80 00 00 00 48 8d a4 24 80 00 00 00 ff 64 "
     "24 80 cc 05 00 10 00 00 00 00 00 cc cc cc cc cc cc"},  // 8(%rsp,%r8,8)
    {"ff 54 24 f8",
     "ff 74 24 f8 48 8d 64 24 88 ff 74 24 78 ff 35 15 00 00 00 8f 84 24 80 00 00 00 48 8d a4 24 80 00 00 00 ff 64 24 "
     "80 cc cc 04 00 10 00 00 00 00 00 cc cc cc cc cc"},  // -8(%rsp)
    {"ff d4",
     "ff f4 48 8d 64 24 88 ff 74 24 78 ff 35 17 00 00 00 8f 84 24 80 00 00 00 48 8d a4 24 80 00 00 00 ff 64 24 80 cc "
     "cc cc cc 02 00 10 00 00 00 00 00 cc cc cc"},  // %rsp: pushed as it was
    {"67 ff 54 24 08",
     "67 ff 74 24 08 48 8d 64 24 88 ff 74 24 78 ff 35 14 00 00 00 8f 84 24 80 00 00 00 48 8d a4 24 80 00 00 00 ff 64 "
     "24 80 cc 05 00 10 00 00 00 00 00 cc cc cc cc cc cc"},  // 8(%esp)
};

INSTANTIATE_TEST_SUITE_P(Plain, Forms, testing::ValuesIn(kPlain));
INSTANTIATE_TEST_SUITE_P(Faulting, Forms, testing::ValuesIn(kFaulting));
INSTANTIATE_TEST_SUITE_P(RipRelative, Forms, testing::ValuesIn(kRipRelative));
INSTANTIATE_TEST_SUITE_P(Branches, Forms, testing::ValuesIn(kBranches));
INSTANTIATE_TEST_SUITE_P(Calls, Forms, testing::ValuesIn(kCalls));

struct Refusal {
  const char* insn;
  const char* reason;
};

constexpr const char* kNoInsn = "the bytes are not an instruction";
constexpr const char* kWide = "a branch with an operand-size prefix, which processors read differently";
constexpr const char* kFarCall = "a far call, which pushes its own address";
constexpr const char* kKnightsCorner = "an encoding of Knights Corner, undefined in every other processor";
constexpr const char* kLoadsSs = "loads ss, which holds off traps for one more instruction";

constexpr Refusal kRefusals[] = {
    {"cc", "a breakpoint instruction"},
    {"f1", "a debug trap instruction"},
    {"cd 03", "a breakpoint instruction"},
    {"cd 04", "a software interrupt that is reported after itself"},
    {"ce", kNoInsn},  // into does not exist in 64-bit mode
    {"ff 18", kFarCall},
    {"48 ff 1d 00 00 00 00", kFarCall},
    {"9a 00 00 00 00 00 00", kNoInsn},
    {"f0 0f 05", kNoInsn},
    {"0f 34", "a system call that no 64-bit program comes back from"},
    {"0f 01 d4", "changes the memory that code is fetched from"},  // vmfunc
    {"66 e9 10 00 00 00", kWide},
    {"66 e8 10 00 00 00", kWide},
    {"66 c3", kWide},
    {"66 ff e0", kWide},
    {"66 ff d0", kWide},
    {"48 66 ff e0", kWide},
    {"66 74 10", kWide},
    {"66 e2 10", kWide},
    {"66 c7 f8 10 00", kWide},
    {"66 0f 84 10 00 00 00", kWide},
    {"8e d0", kLoadsSs},
    {"17", kNoInsn},  // pop %ss
    {"ff 94 24 f8 ff ff 7f", "a call operand too far from the stack pointer"},
    {"3e 3e 3e 3e 3e 3e 3e 3e 3e 3e ff 54 24 78", "a call with too many prefixes"},
    {"f3 0f 1a 00", "MPX bounds do not outlive the jump back"},
    {"0f 01 d7", "an enclave instruction, which leaves its own address in rcx"},
    {"8f ea 78 12 c0 00 00 00 00", "lightweight profiling records its own address"},  // lwpins
    {"c5 f8 84 10 00 00 00", kKnightsCorner},                                         // jkzd
    {"d5 19 01 c0", kNoInsn},                                                         // a two-byte REX prefix
    {"62 f4 7c 08 01 c0", kNoInsn},                                                   // EVEX map 4
    {"06", kNoInsn},
    {"f0 90", kNoInsn},  // lock nop
    {"", kNoInsn},
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, SaysWhy) {
  const auto insn = from_hex(GetParam().insn);
  const auto copy = displace(insn, kFrom, kTo);
  ASSERT_FALSE(copy) << GetParam().insn;
  EXPECT_EQ(copy.error().text, GetParam().reason) << disassemble(insn, kFrom);
  EXPECT_EQ(copy.error().code, Code::refused);
  EXPECT_FALSE(can_displace(insn, kFrom));
  EXPECT_FALSE(copy_bytes(insn, kFrom));
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, testing::ValuesIn(kRefusals));

// --- reach ---------------------------------------------------------------------------------------------------------

TEST(Reach, JumpBack) {
  const auto nop = from_hex("90");
  constexpr std::uint64_t kFar = 0x1'0000'0000;
  // The distance is counted from the end of the jump: to + 6 -> from + 1.
  EXPECT_TRUE(displace(nop, Addr{kFar}, Addr{kFar + 0x7fff'fffb}));
  EXPECT_FALSE(displace(nop, Addr{kFar}, Addr{kFar + 0x7fff'fffc}));
  EXPECT_TRUE(displace(nop, Addr{kFar}, Addr{kFar - 0x8000'0004}));
  EXPECT_FALSE(displace(nop, Addr{kFar}, Addr{kFar - 0x8000'0005}));
}

TEST(Reach, OperandAndTarget) {
  constexpr Addr kHigh{0x7000'0000'0000};
  for (const char* insn : {"48 8b 05 00 00 00 70", "e9 00 00 00 70", "74 70", "e8 00 00 00 70", "ff 15 00 00 00 70",
                           "ff 25 00 00 00 70", "c7 f8 00 00 00 70", "0f 01 15 00 00 00 70"}) {
    const auto bytes = from_hex(insn);
    EXPECT_TRUE(displace(bytes, kHigh, kHigh + 0x1000)) << insn;
    const auto far = displace(bytes, kHigh, kHigh - 0x7fff'ff00);
    if (std::string_view(insn) == "74 70") {
      EXPECT_TRUE(far);
      continue;
    }
    ASSERT_FALSE(far) << insn;
    EXPECT_EQ(far.error().code, Code::refused);
    EXPECT_TRUE(can_displace(bytes, kHigh)) << "reach is not its business";
  }
}

TEST(Reach, WrapsAroundLikeTheProcessor) {
  // From the last page of the address space (vsyscall) forward to the first.
  const auto copy = displace(from_hex("eb 10"), Addr{0xffff'ffff'ffff'f000}, Addr{0x1000});
  ASSERT_TRUE(copy);
  EXPECT_EQ(to_hex(*copy), "e90de0ffff");
}

// Each instruction that the decoder knows is displaced, or refused with a reason of its own.
TEST(AnyBytes, NothingIsMerelyUnlisted) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 400'000; ++i) {
    std::array<std::uint8_t, kMaxInsnBytes> bytes;
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    constexpr std::uint8_t kStarts[][2] = {{0x0f, 0},    {0x66, 0x0f}, {0xf3, 0x0f},
                                           {0xf2, 0x0f}, {0xc4, 0xe2}, {0x62, 0xf2}};
    if (const auto start = random() % 8; start < 6) std::copy_n(kStarts[start], start == 0 ? 1 : 2, bytes.begin());
    const Status status = can_displace(bytes, kFrom);
    if (status) continue;
    EXPECT_NE(status.error().text, "not on the allow-list") << to_hex(bytes) << ' ' << disassemble(bytes, kFrom);
    EXPECT_NE(status.error().text, "a privileged instruction") << to_hex(bytes) << ' ' << disassemble(bytes, kFrom);
  }
}

// --- marks and chains ----------------------------------------------------------------------------------------------

TEST(Marks, Call) {
  const auto copy = make_copy(from_hex("e8 10 00 00 00"), kFrom, kTo);
  ASSERT_TRUE(copy);
  const std::vector<CopyMark> expected = {{0, 0, kFrom}, {6, 0, kFrom + 0x15}};
  EXPECT_EQ(copy->marks, expected);
}

TEST(Marks, IndirectCallHasPushed) {
  const auto copy = make_copy(from_hex("ff 50 18"), kFrom, kTo);
  ASSERT_TRUE(copy);
  const std::vector<CopyMark> expected = {{0, 0, kFrom}, {20, 8, kFrom}};  // after the operand was read once
  EXPECT_EQ(copy->marks, expected);
}

TEST(Marks, CallNearTheStackPointer) {
  const auto copy = make_copy(from_hex("ff 54 24 f8"), kFrom, kTo);
  ASSERT_TRUE(copy);
  const std::vector<CopyMark> expected = {{0, 0, kFrom},    {4, 8, kFrom},    {9, 128, kFrom}, {13, 136, kFrom},
                                          {19, 144, kFrom}, {26, 136, kFrom}, {34, 8, kFrom}};
  EXPECT_EQ(copy->marks, expected);
}

TEST(Marks, SystemCallWithPrefix) {
  const auto copy = make_copy(from_hex("48 0f 05"), kFrom, kTo);
  ASSERT_TRUE(copy);
  const std::vector<CopyMark> expected = {{0, 0, kFrom}, {1, 0, kFrom + 1}, {3, 0, kFrom + 3}};
  EXPECT_EQ(copy->marks, expected);
}

TEST(Marks, LoopAndPlain) {
  const auto loop = make_copy(from_hex("e2 10"), kFrom, kTo);
  ASSERT_TRUE(loop);
  const std::vector<CopyMark> expected = {{0, 0, kFrom}, {2, 0, kFrom + 2}, {7, 0, kFrom + 0x12}};
  EXPECT_EQ(loop->marks, expected);
  const auto plain = make_copy(from_hex("48 89 e5"), kFrom, kTo);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->marks, (std::vector<CopyMark>{{0, 0, kFrom}, {3, 0, kFrom + 3}}));
}

TEST(Marks, SystemCall) {
  const auto copy = make_copy(from_hex("0f 05"), kFrom, kTo);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->marks, (std::vector<CopyMark>{{0, 0, kFrom}, {2, 0, kFrom + 2}}));
}

TEST(Marks, WhatNeverEndsHasOne) {
  for (const char* insn : {"0f 0b", "f4", "0f 35"}) {
    const auto copy = make_copy(from_hex(insn), kFrom, kTo);
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->marks, (std::vector<CopyMark>{{0, 0, kFrom}}));
  }
}

TEST(Chains, GoOnAtNextButReturnToTheOriginal) {
  const Addr next{0x181000};
  const auto plain = make_copy(from_hex("90"), kFrom, kTo, next);
  ASSERT_TRUE(plain);
  EXPECT_EQ(to_hex(plain->bytes), "90e9fa0f0000");
  EXPECT_EQ(plain->marks.back().original, kFrom + 1);
  const auto call = make_copy(from_hex("e8 10 00 00 00"), kFrom, kTo, next);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->bytes, *displace(from_hex("e8 10 00 00 00"), kFrom, kTo));
  // rcx is what the original leaves, wherever control goes.
  const auto system_call = make_copy(from_hex("0f 05"), kFrom, kTo, next);
  ASSERT_TRUE(system_call);
  EXPECT_EQ(to_hex(system_call->bytes), "0f05488d0df9fff7ffe9f20f0000");
}

// --- decode --------------------------------------------------------------------------------------------------------

TEST(Decode, Insn) {
  const auto jcc = decode(from_hex("0f 85 f0 ff ff ff"), kFrom);
  ASSERT_TRUE(jcc);
  EXPECT_EQ(jcc->length, 6);
  EXPECT_TRUE(jcc->is_branch && jcc->is_direct && jcc->falls_through);
  EXPECT_EQ(jcc->target, kFrom - 10);
  const auto call = decode(from_hex("ff 15 10 00 00 00"), kFrom);
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->is_branch && call->is_call && call->reads_ip_memory && call->falls_through);
  EXPECT_FALSE(call->is_direct || call->is_return);
  const auto ret = decode(from_hex("c3"), kFrom);
  ASSERT_TRUE(ret);
  EXPECT_TRUE(ret->is_branch && ret->is_return);
  EXPECT_FALSE(ret->falls_through);
  const auto push = decode(from_hex("55 ff ff"), kFrom);
  ASSERT_TRUE(push);
  EXPECT_EQ(push->length, 1);
  EXPECT_FALSE(push->is_branch || push->is_call || push->is_return || push->reads_ip_memory);
}

TEST(Decode, FallsThrough) {
  for (const char* insn : {"eb 10", "ff e0", "c3", "0f 0b", "0f b9 c0", "cc", "f4", "cf", "48 0f 07", "0f 35"})
    EXPECT_FALSE(decode(from_hex(insn), kFrom)->falls_through) << insn;
  for (const char* insn :
       {"74 10", "e8 00 00 00 00", "ff d0", "0f 05", "cd 80", "e2 10", "c7 f8 00 00 00 00", "c6 f8 01"})
    EXPECT_TRUE(decode(from_hex(insn), kFrom)->falls_through) << insn;
}

TEST(Decode, Damaged) {
  for (const char* insn : {"", "06", "0f", "48", "e8 00 00", "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90"}) {
    const auto decoded = decode(from_hex(insn), kFrom);
    ASSERT_FALSE(decoded) << insn;
    EXPECT_EQ(decoded.error().code, Code::damaged);
    EXPECT_EQ(disassemble(from_hex(insn), kFrom), "");
  }
}

TEST(Decode, Disassemble) {
  EXPECT_EQ(disassemble(from_hex("48 89 e5"), kFrom), "mov %rsp, %rbp");
  EXPECT_EQ(disassemble(from_hex("c3 90"), kFrom), "ret");
}

// --- any bytes -----------------------------------------------------------------------------------------------------

TEST(AnyBytes, CopiesAreSmallDecodableAndOfThePlannedSize) {
  std::mt19937_64 random(7);
  unsigned displaced = 0;
  for (int i = 0; i < 300'000; ++i) {
    std::array<std::uint8_t, kMaxInsnBytes> bytes;
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    const std::size_t size = random() % 16;
    const Bytes insn = Bytes(bytes).first(size);
    const auto copy = make_copy(insn, kFrom, kTo);
    if (!copy) {
      ASSERT_EQ(copy.error().code, Code::refused);
      ASSERT_FALSE(copy.error().text.empty());
      continue;
    }
    ++displaced;
    ASSERT_LE(copy->bytes.size(), kMaxCopyBytes) << to_hex(insn);
    ASSERT_EQ(copy->bytes.size(), *copy_bytes(insn, kFrom)) << to_hex(insn);
    ASSERT_TRUE(decode(copy->bytes, kTo)) << to_hex(insn);
  }
  EXPECT_GT(displaced, 50'000U);
}

}  // namespace
}  // namespace uprobe::arch::test
