// SPDX-License-Identifier: MIT
// What a damaged file leads the search for code to.
#include <gtest/gtest.h>

#include "arch/code/scan.h"
#include "engine/flow/proven_code.h"
#include "tests/elf/made_elf.h"

namespace uprobe::plan {
namespace {

constexpr std::uint64_t kData = 0x1800;  // offset of a segment that is not executable
constexpr std::uint64_t kAddress = elf::MadeElf::kBase + kData;
constexpr std::uint64_t kCode = elf::MadeElf::kBase + elf::MadeElf::kCode;

// The same function as code and as data.
elf::MadeElf made() {
  const std::vector<std::uint8_t> function{0xb8, 1, 0, 0, 0, 0xc3};  // mov $1, %eax; ret
  elf::MadeElf made;
  made.segment().p_filesz = made.segment().p_memsz = kData;
  made.add(Elf64_Phdr{.p_type = PT_LOAD,
                      .p_flags = PF_R,
                      .p_offset = kData,
                      .p_vaddr = kAddress,
                      .p_paddr = kAddress,
                      .p_filesz = elf::MadeElf::kSize - kData,
                      .p_memsz = elf::MadeElf::kSize - kData,
                      .p_align = 0x1000});
  made.put_bytes(elf::MadeElf::kCode, function);
  made.put_bytes(kData, function);
  return made;
}

// A pointer may lead there; the bytes of an instruction that another view of the file has shown are none of code.
TEST(ProvenCodeTest, DataLooksLikeNoCode) {
  const auto file = elf::ElfFile::parse("made", made().bytes());
  ASSERT_TRUE(file) << file.error().text;
  const Reach reach(*file, {{kCode, elf::MadeElf::kBase + kData}});
  const std::vector<std::uint8_t> bytes = made().bytes();
  arch::Scanned insn;
  ASSERT_TRUE(arch::scan(std::span(bytes).subspan(kData), Addr{kAddress}, insn));
  EXPECT_TRUE(is_likely_code(*file, reach, kCode, insn));
  EXPECT_FALSE(is_likely_code(*file, reach, kAddress, insn));
}

// An instruction that the end of the segment cuts off.
TEST(ProvenCodeTest, NorDoesHalfOfAnInstruction) {
  const auto file = elf::ElfFile::parse("made", made().bytes());
  ASSERT_TRUE(file) << file.error().text;
  const Reach reach(*file, {{kCode, elf::MadeElf::kBase + kData}});
  arch::Scanned insn;
  insn.length = 5;
  EXPECT_FALSE(is_likely_code(*file, reach, kAddress - 2, insn));
}

}  // namespace
}  // namespace uprobe::plan
