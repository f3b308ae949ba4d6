// SPDX-License-Identifier: MIT
#include "arch/code/go_patterns.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "arch/code/decode.h"
#include "arch/code/scan.h"

namespace uprobe::arch {
namespace {

template <std::size_t N>
bool begins_with(Bytes code, const std::array<std::uint8_t, N>& bytes) {
  return code.size() >= N && std::equal(bytes.begin(), bytes.end(), code.begin());
}

// Those that compilers put at the beginning of functions: nothing that divides, repeats, or reaches memory in its own way.
constexpr std::string_view kPlain[] = {"mov", "movzx", "movsx", "movsxd", "lea",    "add", "sub",   "and",
                                       "or",  "xor",   "cmp",   "test",   "inc",    "dec", "neg",   "not",
                                       "shl", "shr",   "sar",   "push",   "pop",    "nop", "xorps", "movups",
                                       "ret", "movss", "movsd", "bt",     "movaps", "imul"};

bool is_plain(std::string_view mnemonic) {
  return std::find(std::begin(kPlain), std::end(kPlain), mnemonic) != std::end(kPlain);
}

}  // namespace

Addr go_entry_target(Bytes code, Addr at) {
  Scanned insn;
  return scan(code, at, insn) && insn.leads == Leads::jump ? Addr{insn.target} : Addr{};
}

bool is_go_entry(Bytes code) {
  // mov (%rsp), %rdi ; lea 8(%rsp), %rsi ; jmp
  constexpr std::array<std::uint8_t, 9> kTakesArguments = {0x48, 0x8b, 0x3c, 0x24, 0x48, 0x8d, 0x74, 0x24, 0x08};
  Scanned insn;
  return begins_with(code, kTakesArguments) && scan(code.subspan(kTakesArguments.size()), Addr{}, insn) &&
         insn.leads == Leads::jump;
}

bool is_go_stack_check(Bytes code) {
  constexpr std::array<std::uint8_t, 4> kCompares = {0x49, 0x3b, 0x66, 0x10};  // cmp 0x10(%r14), %rsp
  constexpr std::array<std::uint8_t, 1> kShortBranch = {0x76};                 // jbe
  constexpr std::array<std::uint8_t, 2> kBranch = {0x0f, 0x86};
  if (!begins_with(code, kCompares)) return false;
  const Bytes after = code.subspan(kCompares.size());
  return begins_with(after, kShortBranch) || begins_with(after, kBranch);
}

bool is_safe_in_go(Bytes insn) {
  const auto decoded = decode_fully(insn, Addr{});
  if (!decoded) return false;
  if (decoded->flow == Flow::jump || decoded->flow == Flow::jump_if) return decoded->is_direct;
  const bool is_on_stack = decoded->base == Base::rsp && !decoded->has_index;
  const bool is_address = decoded->mnemonic == "lea" || decoded->mnemonic == "nop";
  return is_plain(decoded->mnemonic) && (!decoded->has_memory || is_on_stack || is_address);
}

}  // namespace uprobe::arch
