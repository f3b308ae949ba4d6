// SPDX-License-Identifier: MIT
#include "arch/code/call_patterns.h"

#include <algorithm>
#include <cstring>

#include "arch/code/decode.h"
#include "arch/shared/signal_return.h"

namespace uprobe::arch {
namespace {

constexpr std::uint8_t kSyscall[] = {0x0f, 0x05};
static_assert(sizeof kSyscall == shared::kSystemCallBytes);
constexpr std::uint32_t kNoNumber = 1024;

std::uint32_t word_at(Bytes code, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, code.data() + at, sizeof word);
  return word;
}

// The number that the instructions at code[at] load, if they are one of the four forms and end at or before `limit`.
std::optional<NumberLoad> load_at(Bytes code, std::size_t at, std::size_t limit) {
  const std::size_t left = limit - at;
  if (left >= 5 && code[at] == 0xb8) return NumberLoad{at, 5, word_at(code, at + 1)};
  if (left >= 7 && code[at] == 0x48 && code[at + 1] == 0xc7 && code[at + 2] == 0xc0)
    return NumberLoad{at, 7, word_at(code, at + 3)};
  if (left >= 4 && code[at] == 0x31 && code[at + 1] == 0xc0 && code[at + 2] == 0xb0)
    return NumberLoad{at, 4, code[at + 3]};
  if (left >= 3 && code[at] == 0x6a && code[at + 2] == 0x58 && code[at + 1] < 0x80)
    return NumberLoad{at, 3, code[at + 1]};
  return std::nullopt;
}

// A REX prefix before it names another register.
bool follows_rex(Bytes code, std::size_t at) { return at > 0 && (code[at - 1] & 0xf0) == 0x40; }

// What may be the prefix of `mov $n,%r8d`, which ends with the bytes of `mov $n,%eax`, or the end of another instruction.
bool follows_rex_b(Bytes code, std::size_t at) { return at > 0 && code[at - 1] == 0x41; }

// The nearest load of a register before code[at] whose bytes are in the window.
std::optional<NumberLoad> load_of(std::uint8_t reg, Bytes code, std::size_t at, std::size_t first) {
  constexpr std::uint32_t kSavedByCallee = 1 << 3 | 1 << 5 | 0xf000;  // rbx, rbp, r12 to r15
  for (std::size_t position = at; position-- > first;) {
    const std::size_t length = reg < 8 ? 5 : 6;
    if (at - position < length || (reg < 8 && follows_rex(code, position))) continue;
    const auto load = register_load(code.subspan(position, length));
    if (load && load->reg == reg && load->number < kNoNumber)
      return NumberLoad{position, length, load->number, (kSavedByCallee >> reg & 1) != 0};
  }
  return std::nullopt;
}

// The same for the register that an instruction at code[at] copies to rax.
std::optional<NumberLoad> copied_load_at(Bytes code, std::size_t at, std::size_t limit, std::size_t first) {
  for (const std::size_t length : {std::size_t{2}, std::size_t{3}}) {
    if (limit - at < length || (length == 2 && follows_rex(code, at))) continue;
    const auto reg = copied_to_number(code.subspan(at, length));
    if (reg) return load_of(*reg, code, at, first);
  }
  return std::nullopt;
}

constexpr std::uint8_t kCancellable[] = {0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89,
                                         0xce, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24,
                                         0x08, 0x4c, 0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08};

}  // namespace

// The second byte is much rarer in code than the first.
std::size_t next_system_call(Bytes code, std::size_t from) {
  for (std::size_t second = from + 1; second < code.size(); ++second) {
    const void* found = std::memchr(code.data() + second, kSyscall[1], code.size() - second);
    if (found == nullptr) break;
    second = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - code.data());
    if (code[second - 1] == kSyscall[0]) return second - 1;
  }
  return code.size();
}

bool ends_with_system_call(Bytes insn) {
  return insn.size() >= sizeof kSyscall && std::equal(std::begin(kSyscall), std::end(kSyscall), insn.end() - 2);
}

bool is_system_call(Bytes insn) { return insn.size() == sizeof kSyscall && ends_with_system_call(insn); }

bool may_follow_prefix(Bytes code, std::size_t at) { return follows_rex(code, at); }

bool is_whole(const NumberLoad& load, std::size_t at) {
  constexpr std::size_t kLongestOfTwo = 4;
  return load.length <= kLongestOfTwo || load.position == at;
}

// mov to %eax, %edx or %edi
bool is_load_before_open(Bytes insn) {
  const auto load = register_load(insn);
  return load && insn.size() == shared::kBeforeOpen && (load->reg == 0 || load->reg == 2 || load->reg == 7);
}

// mov $n, %r32; mov $n, %r64 (sign-extended); lea d(%rip), %r64: to rax, rdx, rsi, rdi, r8, r9 or r10
bool is_load_before_call(Bytes insn) {
  constexpr unsigned kRegisters = 1 << 0 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10;
  const auto is_one = [](unsigned reg) { return (kRegisters >> reg & 1) != 0; };
  if (const auto load = register_load(insn)) return is_one(load->reg);
  if (insn.size() != 7) return false;
  const unsigned rex = insn[0], opcode = insn[1], modrm = insn[2];
  if ((rex == 0x48 || rex == 0x49) && opcode == 0xc7 && (modrm & 0xf8) == 0xc0)
    return is_one((modrm & 7) + ((rex & 1) != 0 ? 8U : 0U));
  if ((rex == 0x48 || rex == 0x4c) && opcode == 0x8d && (modrm & 0xc7) == 0x05)
    return is_one((modrm >> 3 & 7) + ((rex & 4) != 0 ? 8U : 0U));
  return false;
}

bool names_call(Bytes code, std::uint32_t number) {
  std::uint8_t bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  return std::search(code.begin(), code.end(), std::begin(bytes), std::end(bytes)) != code.end();
}

bool is_signal_return(Bytes code, std::size_t at) {
  constexpr std::size_t kBytes = shared::kSignalReturnCall;
  return at >= kBytes &&
         std::equal(shared::kSignalReturn, shared::kSignalReturn + kBytes, code.begin() + (at - kBytes));
}

bool is_any_call(Bytes code, std::size_t at, Addr address) {
  constexpr std::uint8_t kNumber[] = {0x48, 0x89, 0xf8}, kReturn = 0xc3;  // mov %rdi, %rax
  constexpr std::size_t kLongest = 40;
  if (at < kLongest || at + 2 >= code.size() || code[at + 2] != kReturn) return false;
  const auto window = code.subspan(at - kLongest, kLongest);
  const auto number = std::search(window.begin(), window.end(), std::begin(kNumber), std::end(kNumber));
  if (number == window.end()) return false;
  std::size_t place = at - static_cast<std::size_t>(window.end() - number);
  while (place < at) {
    const auto insn = decode_fully(code.subspan(place), address - (at - place));
    if (!insn || insn->mnemonic != "mov") return false;
    place += insn->length;
  }
  return place == at;
}

// The number is in a register there (musl 1.1 and 1.2, src/thread/x86_64/syscall_cp.s).
bool is_cancellable_call(Bytes code, std::size_t at) {
  return at >= sizeof kCancellable &&
         std::equal(std::begin(kCancellable), std::end(kCancellable), code.begin() + (at - sizeof kCancellable));
}

std::optional<NumberLoad> number_before(Bytes code, std::size_t at) {
  const std::size_t first = at > kNumberWindow ? at - kNumberWindow : 0;
  std::optional<NumberLoad> doubtful;
  for (std::size_t position = at; position-- > first;) {
    const auto load = load_at(code, position, at);
    const bool is_number = load && load->number < kNoNumber;
    if (is_number && !follows_rex_b(code, position)) return load;
    if (is_number && !doubtful) doubtful = load;
    if (const auto copied = copied_load_at(code, position, at, first)) return copied;
  }
  return doubtful;
}

std::optional<RegisterLoad> register_load(Bytes insn) {
  const bool high = !insn.empty() && insn[0] == 0x41;  // REX.B
  const std::size_t opcode = high ? 1 : 0;
  if (insn.size() != opcode + 5 || (insn[opcode] & 0xf8) != 0xb8) return std::nullopt;
  const unsigned reg = (insn[opcode] & 7U) + (high ? 8U : 0U);
  return RegisterLoad{static_cast<std::uint8_t>(reg), word_at(insn, opcode + 1)};
}

bool loads_number_from_memory(Bytes insn) {
  constexpr unsigned kRexBits = 0x0b;  // W, X and B; R would name another register than rax
  const bool rex = !insn.empty() && (insn[0] & ~kRexBits) == 0x40;
  const std::size_t at = rex ? 1 : 0;
  if (insn.size() < at + 2 || (insn[at] != 0x8b && insn[at] != 0x63)) return false;
  const unsigned mod = insn[at + 1] >> 6, reg = insn[at + 1] >> 3 & 7, base = insn[at + 1] & 7;
  constexpr unsigned kByStackPointer = 4, kByFramePointer = 5;  // or by the instruction pointer
  return mod != 3 && reg == 0 && base != kByStackPointer && base != kByFramePointer;
}

std::optional<std::uint8_t> copied_to_number(Bytes insn) {
  constexpr unsigned kRexBits = 0x0c;  // W and R; B and X would name another register than rax
  const bool rex = insn.size() == 3 && (insn[0] & ~kRexBits) == 0x40;
  if (!rex && insn.size() != 2) return std::nullopt;
  const std::uint8_t opcode = insn[insn.size() - 2], modrm = insn[insn.size() - 1];
  if (opcode != 0x89 || (modrm & 0xc7) != 0xc0) return std::nullopt;
  const unsigned reg = (modrm >> 3 & 7U) + (rex && (insn[0] & 4) != 0 ? 8U : 0U);
  return static_cast<std::uint8_t>(reg);
}

std::optional<NumberLoad> number_load_ending(Bytes code, std::size_t end) {
  for (const std::size_t length : {std::size_t{3}, std::size_t{4}, std::size_t{5}, std::size_t{7}}) {
    if (end < length) continue;
    const auto load = load_at(code, end - length, end);
    if (load && load->length == length && load->number < kNoNumber) return load;
  }
  return std::nullopt;
}

}  // namespace uprobe::arch
