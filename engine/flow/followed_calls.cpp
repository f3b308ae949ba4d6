// SPDX-License-Identifier: MIT
#include "engine/flow/followed_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "arch/code/call_patterns.h"
#include "arch/code/scan.h"
#include "engine/base/regular_file.h"

namespace uprobe::plan {
namespace {

using arch::Bytes;

constexpr std::uint32_t kEpollPwait2 = 441;
constexpr std::uint32_t kFollowed[] = {
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_execve,   SYS_execveat,        SYS_prctl,     SYS_seccomp,
    SYS_ppoll,        SYS_rt_sigsuspend,  SYS_clone3,   SYS_epoll_pwait,     kEpollPwait2,  SYS_rt_sigpending,
    SYS_sigaltstack,  SYS_open,           SYS_openat,   SYS_rt_sigtimedwait, SYS_pselect6,  SYS_mmap,
    SYS_mprotect,     SYS_pkey_mprotect,  SYS_ptrace,   SYS_signalfd,        SYS_signalfd4, SYS_setuid,
    SYS_setgid,       SYS_setreuid,       SYS_setregid, SYS_setresuid,       SYS_setresgid, SYS_setgroups,
    SYS_capset,       SYS_unshare,        SYS_setns};
constexpr std::uint32_t kClones[] = {SYS_clone, SYS_fork, SYS_vfork, SYS_clone3};
constexpr std::size_t kChunk = 1 << 17;
constexpr unsigned kMostTries = 1 << 16;

bool leads_to(Bytes code, std::size_t place, std::size_t at) {
  arch::Scanned insn;
  while (place < at && arch::scan(code.subspan(place), Addr{place}, insn)) place += insn.length;
  return place == at;
}

// Whether an instruction begins at code[at], as the load before it shows, or what lies before that: decoding falls into step
// after a few instructions. The bytes of a call are often parts of other instructions.
bool is_call(Bytes code, const arch::NumberLoad& load, std::size_t at) {
  return leads_to(code, load.position, at) ||
         leads_to(code, at > arch::kNumberWindow ? at - arch::kNumberWindow : 0, at);
}

// `tries`: so many more places are looked at closely; after them nothing is known, and there may be one.
bool has_followed_call(Bytes chunk, unsigned& tries) {
  for (std::size_t at = 0; (at = arch::next_system_call(chunk, at)) < chunk.size(); ++at) {
    if (tries-- == 0) return true;
    const auto load = arch::number_before(chunk, at);
    const bool is_followed = load && (is_followed_call(load->number) || is_clone_call(load->number));
    if (is_followed && is_call(chunk, *load, at)) return true;
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
bool is_quick_call(std::uint32_t number) {
  return number == SYS_rt_sigprocmask || number == SYS_rt_sigaction || number == SYS_mmap || number == SYS_mprotect ||
         number == SYS_pkey_mprotect;
}

// A file may be larger than can be read while others wait, and hold more than can be decoded: then it is not known, and who
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
      kept = std::min<std::size_t>(size, arch::kNumberWindow + shared::kSystemCallBytes);
      std::memmove(buffer.get(), buffer.get() + size - kept, kept);
    }
  }
  return false;
}

}  // namespace uprobe::plan
