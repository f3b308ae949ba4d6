// SPDX-License-Identifier: MIT
// The tables of fast_scan() against Zydis: for each answer of the tables, Zydis gives the same one, and the allow-list admits
// it. Over combinations of prefixes, opcodes and ModRM bytes, over random bytes, and from every byte of the code of system
// programs.
#include "arch/code/fast_scan.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "arch/code/classify.h"
#include "engine/base/fd.h"
#include "tests/arch/hex.h"

namespace uprobe::arch::test {
namespace {

constexpr Addr kAt{0x7f0012345678};
constexpr std::size_t kRoom = 40;  // more than fast_scan() asks for
using Code = std::vector<std::uint8_t>;

// Counts the answers of the tables; differences are failures, of which the first few are shown.
class Comparison {
 public:
  void at(Bytes bytes) {
    ++total_;
    Scanned fast, full;
    if (!fast_scan(bytes, kAt, fast)) return;
    ++fast_;
    if (scan_fully(bytes, kAt, full) && fast == full) return;
    if (++different_ < 20)
      ADD_FAILURE() << to_hex(bytes.first(kMaxInsnBytes)) << ": " << int{fast.length} << " bytes by the tables, "
                    << int{full.length} << " by Zydis";
  }
  double percent() const { return 100.0 * static_cast<double>(fast_) / static_cast<double>(total_); }
  std::size_t different() const { return different_; }

 private:
  std::size_t total_ = 0, fast_ = 0, different_ = 0;
};

Code with_room(Code code) {
  std::uint8_t filler = 0x81;  // negative as a displacement or an immediate
  while (code.size() < kRoom) code.push_back(filler += 7);
  return code;
}

// Every opcode of a map after the prefixes, with every form of ModRM; `registers` of the eight in rm.
template <class Comparison>
void enumerate(const Code& prefixes, std::initializer_list<unsigned> registers, Comparison& comparison) {
  for (const bool is_two_byte : {false, true}) {
    Code code = prefixes;
    if (is_two_byte) code.push_back(0x0f);
    const std::size_t opcode_at = code.size();
    code = with_room(code);
    for (unsigned opcode = 0; opcode < 256; ++opcode)
      for (unsigned high = 0; high < 256; high += 8)
        for (const unsigned low : registers)
          for (const std::uint8_t sib : {std::uint8_t{0x24}, std::uint8_t{0xe5}}) {
            code[opcode_at] = static_cast<std::uint8_t>(opcode);
            code[opcode_at + 1] = static_cast<std::uint8_t>(high | low);
            code[opcode_at + 2] = sib;
            comparison.at(code);
            if (low != 4) break;
          }
  }
}

constexpr std::uint8_t kPrefixes[] = {0x66, 0xf3, 0xf2, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65,
                                      0x67, 0xf0, 0x40, 0x41, 0x42, 0x44, 0x48, 0x49, 0x4f};

TEST(FastScan, AgreesOnEveryOpcode) {
  Comparison comparison;
  enumerate({}, {0, 1, 2, 3, 4, 5, 6, 7}, comparison);
  for (const std::uint8_t prefix : kPrefixes) enumerate({prefix}, {0, 1, 2, 3, 4, 5, 6, 7}, comparison);
  EXPECT_EQ(comparison.different(), 0U);
  EXPECT_GT(comparison.percent(), 50);
}

TEST(FastScan, AgreesAfterTwoPrefixes) {
  Comparison comparison;
  for (const std::uint8_t first : kPrefixes)
    for (const std::uint8_t second : kPrefixes) enumerate({first, second}, {0, 2, 4, 5}, comparison);
  EXPECT_EQ(comparison.different(), 0U);
  EXPECT_GT(comparison.percent(), 15);
}

// can_displace() and make_copy() do not ask the allow-list about these.
class Admission {
 public:
  void at(Bytes bytes) {
    Scanned insn;
    if (!fast_scan(bytes, kAt, insn)) return;
    if (!can_displace(bytes, kAt) == !copy_bytes(bytes, kAt) && is_copied_as_listed(bytes, insn)) return;
    if (++different_ < 20) ADD_FAILURE() << to_hex(bytes.first(kMaxInsnBytes));
  }
  std::size_t different() const { return different_; }

 private:
  static bool is_copied_as_listed(Bytes bytes, const Scanned& insn) {
    if (insn.leads != Leads::on || !insn.falls_through || insn.is_ip_relative) return true;
    const auto decoded = decode_fully(bytes, kAt);
    const auto form = decoded ? classify(*decoded) : Result<Form>(Error{});
    return form && *form == Form::plain && decoded->base != Base::rip && decoded->base != Base::eip;
  }
  std::size_t different_ = 0;
};

TEST(FastScan, TheAllowListAdmitsWhatIsNotAskedAbout) {
  Admission admission;
  enumerate({}, {0, 2, 4, 5}, admission);
  for (const std::uint8_t prefix : kPrefixes) enumerate({prefix}, {0, 2, 4, 5}, admission);
  EXPECT_EQ(admission.different(), 0U);
}

// The answers of fast_keeps() for every register.
class Keeping {
 public:
  void at(Bytes bytes) {
    for (unsigned reg = 0; reg < 16; ++reg) {
      if (!fast_keeps(bytes, reg)) continue;
      ++kept_;
      if (value_after_fully(bytes, kAt, reg).kind == RegisterValue::Kind::same) continue;
      if (++different_ < 20) ADD_FAILURE() << to_hex(bytes.first(kMaxInsnBytes)) << ": register " << reg;
    }
  }
  std::size_t kept() const { return kept_; }
  std::size_t different() const { return different_; }

 private:
  std::size_t kept_ = 0, different_ = 0;
};

TEST(FastScan, AgreesOnRegistersThatAreKept) {
  Keeping keeping;
  enumerate({}, {0, 1, 2, 3, 4, 5, 6, 7}, keeping);
  for (const unsigned prefix : {0x66U, 0x64U, 0xf3U, 0x40U, 0x41U, 0x44U, 0x48U, 0x4fU})
    enumerate({static_cast<std::uint8_t>(prefix)}, {0, 4, 5, 7}, keeping);
  EXPECT_EQ(keeping.different(), 0U);
  EXPECT_GT(keeping.kept(), 1'000'000U);
}

// No instruction is longer than fifteen bytes.
TEST(FastScan, AgreesOnLongOnes) {
  const char* const codes[] = {"90", "0f 1f 84 00 00 00 00 00", "0f 1f 00", "48 b8", "c7 84 24", "0f 1f", "e9", "48"};
  Comparison comparison;
  for (const char* code : codes)
    for (const char* prefix : {"66", "2e", "64", "f3"}) {
      std::string text = code;
      for (unsigned n = 0; n < 20; ++n, text = std::string(prefix) + text) comparison.at(with_room(from_hex(text)));
    }
  EXPECT_EQ(comparison.different(), 0U);
}

TEST(FastScan, LeavesTheEndOfTheBytesToZydis) {
  for (const char* code :
       {"48 8d 05 10 00 00 00", "48 b8 01 02 03 04 05 06 07 08", "66 66 2e 0f 1f 84 00 00 00 00 00"}) {
    const Code bytes = from_hex(code);
    for (std::size_t room = 0; room <= bytes.size(); ++room) {
      Scanned insn;
      EXPECT_FALSE(fast_scan(Bytes(bytes).first(room), kAt, insn));
      EXPECT_EQ(scan(Bytes(bytes).first(room), kAt, insn), room == bytes.size());
    }
  }
}

TEST(FastScan, AgreesOnRandomBytes) {
  std::mt19937_64 random(20240229);
  Comparison comparison;
  Code code(kRoom);
  for (unsigned n = 0; n < 2'000'000; ++n) {
    for (std::size_t at = 0; at < kRoom; at += 8) {
      const std::uint64_t word = random();
      std::memcpy(code.data() + at, &word, sizeof word);
    }
    comparison.at(code);
  }
  EXPECT_EQ(comparison.different(), 0U);
  EXPECT_GT(comparison.percent(), 70);
}

// The executable segments of a file; empty if the file does not exist.
std::vector<Code> code_of(const std::string& path) {
  std::vector<Code> found;
  const auto content = read_file(path);
  if (!content || content->size() < sizeof(Elf64_Ehdr)) return found;
  Elf64_Ehdr header;
  std::memcpy(&header, content->data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, content->data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const auto begin = content->begin() + static_cast<std::ptrdiff_t>(segment.p_offset);
    found.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(segment.p_filesz));
  }
  return found;
}

class FastScanOfPrograms : public testing::TestWithParam<const char*> {};

// Also from inside of instructions.
TEST_P(FastScanOfPrograms, AgreesFromEveryByte) {
  const auto segments = code_of(GetParam());
  if (segments.empty()) GTEST_SKIP() << "not here";
  Comparison comparison;
  for (const Code& code : segments)
    for (std::size_t at = 0; at + kRoom <= code.size(); ++at) comparison.at(Bytes(code).subspan(at, kRoom));
  EXPECT_EQ(comparison.different(), 0U);
}

// The tables are of use: they read nearly all code of compilers.
TEST_P(FastScanOfPrograms, ReadsNearlyAll) {
  const auto segments = code_of(GetParam());
  if (segments.empty()) GTEST_SKIP() << "not here";
  std::size_t all = 0, fast = 0;
  for (const Code& code : segments)
    for (std::size_t at = 0; at + kRoom <= code.size();) {
      Scanned insn;
      const Bytes bytes = Bytes(code).subspan(at);
      const bool is_fast = fast_scan(bytes, kAt, insn);
      at += is_fast || scan_fully(bytes, kAt, insn) ? insn.length : 1;
      ++all;
      fast += is_fast ? 1 : 0;
    }
  EXPECT_GT(fast * 100, all * 94);
}

constexpr const char* kPrograms[] = {"/bin/zsh", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3.11",
                                     "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                                     "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"};
INSTANTIATE_TEST_SUITE_P(Debian, FastScanOfPrograms, testing::ValuesIn(kPrograms));

}  // namespace
}  // namespace uprobe::arch::test
