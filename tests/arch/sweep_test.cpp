// Linear sweep of the text of system programs: Zydis and Capstone agree on every length, and nothing is refused
// but what changes the shadow stack.
#include <capstone/capstone.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <map>

#include "arch/x86/code/decode.h"
#include "engine/base/fd.h"
#include "tests/arch/hex.h"

namespace uprobe::x86::test {
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

// The section .text; empty when there is none.
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

class Capstone {
 public:
  Capstone() {
    cs_open(CS_ARCH_X86, CS_MODE_64, &handle_);
    insn_ = cs_malloc(handle_);
  }
  ~Capstone() {
    cs_free(insn_, 1);
    cs_close(&handle_);
  }
  // 0 when it knows none.
  unsigned length(Bytes bytes, Addr at) {
    const std::uint8_t* code = bytes.data();
    std::size_t size = bytes.size();
    std::uint64_t address = at.value;
    return cs_disasm_iter(handle_, &code, &size, &address, insn_) ? insn_->size : 0;
  }

 private:
  csh handle_ = 0;
  cs_insn* insn_ = nullptr;
};

// Capstone 4.0.2 does not know many EVEX instructions, the 32- and 64-bit mask instructions, and the protection keys.
// It has no wrong length among all the others.
bool is_unknown_to_capstone(const Decoded& insn) {
  return insn.isa_set.substr(0, 6) == "AVX512" || insn.isa_set == "PKU";
}

struct Sweep {
  unsigned long instructions = 0;
  unsigned long displaceable = 0;
  unsigned long unknown_to_capstone = 0;
  std::map<std::string, unsigned> refusals;  // by reason
};

void take(const Decoded& insn, Bytes bytes, Addr at, unsigned other_length, Sweep& sweep) {
  ++sweep.instructions;
  if (other_length == 0 && is_unknown_to_capstone(insn))
    ++sweep.unknown_to_capstone;
  else
    EXPECT_EQ(insn.length, other_length) << to_hex(bytes) << " at " << std::hex << at.value;
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
    const unsigned other_length = capstone.length(bytes, at);
    if (!insn) {
      ADD_FAILURE() << "undecodable " << to_hex(bytes) << ", Capstone says " << other_length;
      return sweep;
    }
    take(*insn, bytes, at, other_length, sweep);
    offset += insn->length;
  }
  return sweep;
}

class SystemPrograms : public testing::TestWithParam<const char*> {};

TEST_P(SystemPrograms, DecodersAgreeAndAllDisplaces) {
  const Text text = read_text(GetParam());
  if (text.bytes.empty()) GTEST_SKIP() << "not here";
  const Sweep sweep = sweep_text(text);
  std::cout << GetParam() << ": " << sweep.displaceable << " of " << sweep.instructions << " instructions displace ("
            << 100.0 * static_cast<double>(sweep.displaceable) / static_cast<double>(sweep.instructions) << "%), "
            << sweep.unknown_to_capstone << " unknown to Capstone\n";
  // incssp, in the longjmp of a libc that is built for shadow stacks.
  for (const auto& [reason, count] : sweep.refusals)
    EXPECT_EQ(reason, "changes the shadow stack") << count << " refused";
  EXPECT_GT(sweep.instructions, 10'000U);
  EXPECT_GT(sweep.displaceable * 1000, sweep.instructions * 999);
}

INSTANTIATE_TEST_SUITE_P(Debian, SystemPrograms,
                         testing::Values("/lib/x86_64-linux-gnu/libc.so.6", "/bin/bash", "/bin/zsh",
                                         "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"));

}  // namespace
}  // namespace uprobe::x86::test
