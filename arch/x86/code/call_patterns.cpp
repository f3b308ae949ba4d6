// SPDX-License-Identifier: MIT
#include "arch/code/call_patterns.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "arch/code/scan.h"
#include "engine/base/regular_file.h"

namespace uprobe::plan {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint32_t kEpollPwait2 = 441;
constexpr std::uint32_t kFollowed[] = {
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_execve,   SYS_execveat,        SYS_prctl,     SYS_seccomp,
    SYS_ppoll,        SYS_rt_sigsuspend,  SYS_clone3,   SYS_epoll_pwait,     kEpollPwait2,  SYS_rt_sigpending,
    SYS_sigaltstack,  SYS_open,           SYS_openat,   SYS_rt_sigtimedwait, SYS_pselect6,  SYS_mmap,
    SYS_mprotect,     SYS_pkey_mprotect,  SYS_ptrace,   SYS_signalfd,        SYS_signalfd4, SYS_setuid,
    SYS_setgid,       SYS_setreuid,       SYS_setregid, SYS_setresuid,       SYS_setresgid, SYS_setgroups,
    SYS_capset,       SYS_unshare,        SYS_setns};
constexpr std::uint32_t kClones[] = {SYS_clone, SYS_fork, SYS_vfork, SYS_clone3};
constexpr std::uint32_t kNoNumber = 1024;
constexpr std::size_t kWindow = 64;
constexpr std::size_t kChunk = 1 << 17;
constexpr unsigned kMostTries = 1 << 16;

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

// A REX prefix in front names another register.
bool follows_rex(Bytes code, std::size_t at) { return at > 0 && (code[at - 1] & 0xf0) == 0x40; }

// What may be the prefix of `mov $n,%r8d`, which ends with the bytes of `mov $n,%eax`, or the end of another instruction.
bool follows_rex_b(Bytes code, std::size_t at) { return at > 0 && code[at - 1] == 0x41; }

// The nearest load of a register in front of code[at] whose bytes are in the window.
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
    const auto reg = copied_to_ax(code.subspan(at, length));
    if (reg) return load_of(*reg, code, at, first);
  }
  return std::nullopt;
}

// Looks for the second byte of `syscall`, which is much rarer in code than the first.
constexpr std::uint8_t kCancellable[] = {0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89,
                                         0xce, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24,
                                         0x08, 0x4c, 0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08};

bool leads_to(Bytes code, std::size_t place, std::size_t at) {
  arch::Scanned insn;
  while (place < at && arch::scan(code.subspan(place), Addr{place}, insn)) place += insn.length;
  return place == at;
}

// Whether an instruction begins at code[at], as the load in front of it shows, or what lies before that: decoding falls into step
// after a few instructions. The bytes of a call are often parts of other instructions.
bool is_call(Bytes code, const NumberLoad& load, std::size_t at) {
  return leads_to(code, load.position, at) || leads_to(code, at > kWindow ? at - kWindow : 0, at);
}

// `tries`: so many more places are looked at closely; behind them nothing is known, and there may be one.
bool has_followed_call(Bytes chunk, unsigned& tries) {
  const std::uint8_t* at = chunk.data() + 1;
  const std::uint8_t* end = chunk.data() + chunk.size();
  while (at < end && (at = static_cast<const std::uint8_t*>(
                          std::memchr(at, 0x05, static_cast<std::size_t>(end - at)))) != nullptr) {
    if (at[-1] == 0x0f) {
      if (tries-- == 0) return true;
      const auto place = static_cast<std::size_t>(at - 1 - chunk.data());
      const auto load = number_before(chunk, place);
      const bool is_followed = load && (is_followed_call(load->number) || is_clone_call(load->number));
      if (is_followed && is_call(chunk, *load, place)) return true;
    }
    ++at;
  }
  return false;
}

}  // namespace

bool is_followed_call(std::uint32_t number) {
  return std::find(std::begin(kFollowed), std::end(kFollowed), number) != std::end(kFollowed);
}
bool is_clone_call(std::uint32_t number) {
  return std::find(std::begin(kClones), std::end(kClones), number) != std::end(kClones);
}

bool is_open_call(std::uint32_t number) { return number == SYS_open || number == SYS_openat; }

// The number is in a register there (musl 1.1 and 1.2, src/thread/x86_64/syscall_cp.s).
bool is_cancellable_call(Bytes code, std::size_t at) {
  return at >= sizeof kCancellable &&
         std::equal(std::begin(kCancellable), std::end(kCancellable), code.begin() + (at - sizeof kCancellable));
}

std::optional<NumberLoad> number_before(Bytes code, std::size_t at) {
  const std::size_t first = at > kWindow ? at - kWindow : 0;
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

bool loads_ax_from_memory(Bytes insn) {
  constexpr unsigned kRexBits = 0x0b;  // W, X and B; R would name another register than rax
  const bool rex = !insn.empty() && (insn[0] & ~kRexBits) == 0x40;
  const std::size_t at = rex ? 1 : 0;
  if (insn.size() < at + 2 || (insn[at] != 0x8b && insn[at] != 0x63)) return false;
  const unsigned mod = insn[at + 1] >> 6, reg = insn[at + 1] >> 3 & 7, base = insn[at + 1] & 7;
  constexpr unsigned kByStackPointer = 4, kByFramePointer = 5;  // or by the instruction pointer
  return mod != 3 && reg == 0 && base != kByStackPointer && base != kByFramePointer;
}

std::optional<std::uint8_t> copied_to_ax(Bytes insn) {
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

// A file may be larger than can be read while others wait, and hold more than can be decoded: then it is not known, and whoever
// opens the file finds its limits.
bool may_have_followed_calls(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;
  const auto file = open_regular(path);
  if (!file) return false;
  const auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(kChunk);
  std::uint64_t left = kMostBytes;
  unsigned tries = kMostTries;
  const std::uint64_t end = std::min(offset + bytes, static_cast<std::uint64_t>(file->about.st_size));
  for (FilePart part = next_data(file->fd, offset, end); !part.empty(); part = next_data(file->fd, part.end, end)) {
    std::size_t kept = 0;  // the end of the chunk before: a call may lie across
    for (std::uint64_t at = part.begin; at < part.end;) {
      const std::size_t wanted = std::min<std::uint64_t>(kChunk - kept, part.end - at);
      const ssize_t n = read_at(file->fd, buffer.get() + kept, wanted, at);
      if (n <= 0) return false;
      const std::size_t size = kept + static_cast<std::size_t>(n);
      if (has_followed_call(Bytes(buffer.get(), size), tries)) return true;
      at += static_cast<std::uint64_t>(n);
      if (static_cast<std::uint64_t>(n) > left) return true;
      left -= static_cast<std::uint64_t>(n);
      kept = std::min<std::size_t>(size, kWindow + 2);
      std::memmove(buffer.get(), buffer.get() + size - kept, kept);
    }
  }
  return false;
}

}  // namespace uprobe::plan
