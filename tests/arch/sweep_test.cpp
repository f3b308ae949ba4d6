// SPDX-License-Identifier: MIT
// Linear sweep of the text of system programs: for every instruction Zydis and Capstone agree on the length, on the kind and
// target of a branch, and on the address of a rip-relative operand; and all code of compilers is displaced.
#include <capstone/capstone.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <map>

#include "arch/code/decode.h"
#include "engine/base/fd.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

using File = std::vector<std::uint8_t>;

struct Text {
  File file;
  Bytes bytes;
  Addr start;
};

template <class T>
T read_at(const File& file, std::uint64_t offset) {
  T value = {};
  if (offset + sizeof value <= file.size()) std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// The section .text; empty if there is none.
Text read_text(const std::string& path) {
  auto content = read_file(path);
  if (!content) return {};
  Text text{File(content->begin(), content->end()), {}, {}};
  const auto header = read_at<Elf64_Ehdr>(text.file, 0);
  const auto section = [&](unsigned i) {
    return read_at<Elf64_Shdr>(text.file, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const auto names = section(header.e_shstrndx);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto candidate = section(i);
    const std::uint64_t name = names.sh_offset + candidate.sh_name;
    if (name + 6 > text.file.size() || std::memcmp(&text.file[name], ".text", 6) != 0) continue;
    if (candidate.sh_offset + candidate.sh_size > text.file.size()) continue;
    text.bytes = Bytes(text.file).subspan(candidate.sh_offset, candidate.sh_size);
    text.start = Addr{candidate.sh_addr};
  }
  return text;
}

// The facts on which two decoders have to agree.
struct Facts {
  unsigned length = 0;  // 0: no instruction
  bool is_call = false;
  bool is_return = false;
  bool is_jump = false;       // also conditional ones and loops
  std::uint64_t target = 0;   // of a direct branch
  std::uint64_t operand = 0;  // address of a rip-relative operand

  bool operator==(const Facts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Facts& f) {
  return out << std::hex << "length " << f.length << (f.is_call ? " call" : "") << (f.is_return ? " return" : "")
             << (f.is_jump ? " jump" : "") << " target " << f.target << " operand " << f.operand;
}

Facts facts_of(const Decoded& insn, Addr at) {
  Facts facts{.length = insn.length};
  facts.is_call = insn.flow == Flow::call;
  facts.is_return = insn.flow == Flow::ret;
  facts.is_jump = insn.flow == Flow::jump || insn.flow == Flow::jump_if || insn.flow == Flow::loop ||
                  insn.flow == Flow::transaction;
  if (insn.is_direct) facts.target = insn.target.value;
  if (insn.base == Base::rip) facts.operand = (at + insn.length + static_cast<std::uint64_t>(insn.disp)).value;
  return facts;
}

class Capstone {
 public:
  Capstone() {
    cs_open(CS_ARCH_X86, CS_MODE_64, &handle_);
    cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
    insn_ = cs_malloc(handle_);
  }
  ~Capstone() {
    cs_free(insn_, 1);
    cs_close(&handle_);
  }
  Facts facts(Bytes bytes, Addr at) {
    const std::uint8_t* code = bytes.data();
    std::size_t size = bytes.size();
    std::uint64_t address = at.value;
    if (!cs_disasm_iter(handle_, &code, &size, &address, insn_)) return {};
    Facts facts{.length = insn_->size};
    facts.is_call = cs_insn_group(handle_, insn_, CS_GRP_CALL);
    facts.is_return = cs_insn_group(handle_, insn_, CS_GRP_RET);
    // its group of jumps lacks the loops
    facts.is_jump = cs_insn_group(handle_, insn_, CS_GRP_JUMP) || insn_->id == X86_INS_LOOP ||
                    insn_->id == X86_INS_LOOPE || insn_->id == X86_INS_LOOPNE;
    const cs_x86& x86 = insn_->detail->x86;
    for (unsigned i = 0; i < x86.op_count; ++i) take(x86.operands[i], at, facts);
    return facts;
  }

 private:
  void take(const cs_x86_op& operand, Addr at, Facts& facts) const {
    if (operand.type == X86_OP_IMM && (facts.is_call || facts.is_jump))
      facts.target = static_cast<std::uint64_t>(operand.imm);
    if (operand.type == X86_OP_MEM && operand.mem.base == X86_REG_RIP)
      facts.operand = (at + insn_->size + static_cast<std::uint64_t>(operand.mem.disp)).value;
  }

  csh handle_ = 0;
  cs_insn* insn_ = nullptr;
};

// Errors of Capstone 4.0.2 (SDM vol. 2): it does not know many EVEX instructions, the 32- and 64-bit mask instructions, the
// protection keys, vbroadcasti128, nops with a register operand, and segment registers under a REX prefix without an effect.
bool is_unknown_to_capstone(const Decoded& insn) {
  const bool moves_segment = insn.mnemonic == "mov" && (insn.opcode == 0x8c || insn.opcode == 0x8e);
  return insn.isa_set.substr(0, 6) == "AVX512" || insn.isa_set.substr(0, 3) == "KNC" || insn.isa_set == "PKU" ||
         insn.mnemonic == "vbroadcasti128" || insn.category == "WIDENOP" || moves_segment;
}

// It takes ud0 and ud1 for two bytes, and cuts the distance of a near branch where Intel ignores the prefix 66.
bool is_cut_by_capstone(const Decoded& insn) {
  return insn.mnemonic == "ud0" || insn.mnemonic == "ud1" || (insn.is_direct && insn.has_narrow_operand);
}

struct Sweep {
  unsigned long instructions = 0;
  unsigned long displaceable = 0;
  unsigned long errors_of_capstone = 0;
  unsigned long no_instructions = 0;         // bytes of tables
  std::map<std::string, unsigned> refusals;  // by reason
};

void take(const Decoded& insn, Bytes bytes, Addr at, const Facts& other, Sweep& sweep) {
  ++sweep.instructions;
  const bool errs = other.length == 0 ? is_unknown_to_capstone(insn) : is_cut_by_capstone(insn);
  if (errs)
    ++sweep.errors_of_capstone;
  else
    EXPECT_EQ(facts_of(insn, at), other) << to_hex(bytes) << " at " << std::hex << at.value;
  const Status status = can_displace(bytes, at);
  if (status)
    ++sweep.displaceable;
  else
    ++sweep.refusals[status.error().text];
}

Sweep sweep_text(const Text& text) {
  Capstone capstone;
  Sweep sweep;
  for (std::size_t offset = 0; offset < text.bytes.size();) {
    const Bytes bytes = text.bytes.subspan(offset, std::min<std::size_t>(kMaxInsnBytes, text.bytes.size() - offset));
    const Addr at = text.start + offset;
    const auto insn = decode_fully(bytes, at);
    if (insn) take(*insn, bytes, at, capstone.facts(bytes, at), sweep);
    sweep.no_instructions += !insn;
    offset += insn ? insn->length : 1;
  }
  return sweep;
}

struct Program {
  const char* path;
  bool has_tables_in_text;  // the sweep runs through them as if they were code
};

class SystemPrograms : public testing::TestWithParam<Program> {};

TEST_P(SystemPrograms, DecodersAgreeAndAllDisplaces) {
  const Program program = GetParam();
  const Text text = read_text(program.path);
  if (text.bytes.empty()) GTEST_SKIP() << "not here";
  const Sweep sweep = sweep_text(text);
  std::cout << program.path << ": " << sweep.displaceable << " of " << sweep.instructions << " instructions displace ("
            << 100.0 * static_cast<double>(sweep.displaceable) / static_cast<double>(sweep.instructions) << "%), "
            << sweep.errors_of_capstone << " mistaken by Capstone, " << sweep.no_instructions << " bytes of tables\n";
  EXPECT_GT(sweep.instructions, 10'000U);
  EXPECT_GT(sweep.displaceable * 1000, sweep.instructions * 998);
  if (program.has_tables_in_text) return;
  EXPECT_EQ(sweep.no_instructions, 0U);
  for (const auto& [reason, count] : sweep.refusals) ADD_FAILURE() << count << " refused: " << reason;
}

constexpr Program kPrograms[] = {{"/lib/x86_64-linux-gnu/libc.so.6", false},
                                 {"/bin/bash", false},
                                 {"/bin/zsh", false},
                                 {"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", false},
                                 {"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", true}};
INSTANTIATE_TEST_SUITE_P(Debian, SystemPrograms, testing::ValuesIn(kPrograms));

}  // namespace
}  // namespace uprobe::arch::test
