// SPDX-License-Identifier: MIT
#include "engine/inject/agents_calls.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace uprobe::control {
namespace {

using enum NeededWhen;
using Argument = std::optional<std::uint64_t>;

constexpr Argument kAny;
constexpr std::uint64_t kNoFile = ~std::uint64_t{0}, kSetBytes = 8;
constexpr std::uint64_t kHere = static_cast<std::uint64_t>(std::int64_t{AT_FDCWD});
constexpr std::uint64_t kDataPages = PROT_READ | PROT_WRITE, kCodePages = PROT_READ | PROT_EXEC;
constexpr std::uint64_t kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

constexpr NeededCall needed(NeededWhen when, std::string_view name, long number, Argument a = kAny, Argument b = kAny,
                            Argument c = kAny, Argument d = kAny, Argument e = kAny, Argument f = kAny) {
  return {when, name, {.number = number, .arguments = {a, b, c, d, e, f}}};
}

constexpr std::string_view name_of_mmap(std::uint64_t protection) {
  return (protection & PROT_EXEC) != 0 ? "mmap of executable memory" : "mmap";
}
constexpr NeededCall anonymous(std::uint64_t protection, std::uint64_t flags) {
  return needed(attaching, name_of_mmap(protection), SYS_mmap, kAny, kAny, protection, kAnonymous | flags, kNoFile, 0);
}
constexpr NeededCall of_file(std::uint64_t protection, std::uint64_t flags) {
  return needed(attaching, name_of_mmap(protection), SYS_mmap, kAny, kAny, protection, flags | MAP_FIXED);
}

constexpr NeededCall kCalls[] = {
    needed(always, "rt_sigreturn", SYS_rt_sigreturn),
    needed(always, "rt_sigprocmask", SYS_rt_sigprocmask, kAny, kAny, kAny, kSetBytes),
    needed(always, "rt_sigaction", SYS_rt_sigaction, kAny, kAny, kAny, kSetBytes),

    // engine/inject/load.cpp, engine/process/agent_image.cpp, engine/arm/islands.cpp
    anonymous(PROT_NONE, 0),
    anonymous(PROT_NONE, MAP_NORESERVE),
    anonymous(kDataPages, 0),
    anonymous(kDataPages, MAP_NORESERVE),
    anonymous(kDataPages, MAP_FIXED),
    anonymous(kDataPages, MAP_FIXED | MAP_NORESERVE),
    anonymous(kCodePages, 0),
    anonymous(kCodePages, MAP_FIXED_NOREPLACE),
    of_file(PROT_READ, MAP_PRIVATE),
    of_file(kDataPages, MAP_PRIVATE),
    of_file(kCodePages, MAP_PRIVATE),
    of_file(PROT_READ, MAP_SHARED),
    of_file(kDataPages, MAP_SHARED),
    needed(attaching, "munmap", SYS_munmap),
    needed(attaching, "mprotect", SYS_mprotect, kAny, kAny, PROT_READ),
    needed(attaching, "mprotect", SYS_mprotect, kAny, kAny, kCodePages),
    needed(attaching, "madvise", SYS_madvise, kAny, kAny, MADV_WIPEONFORK),
    needed(attaching, "madvise", SYS_madvise, kAny, kAny, MADV_DONTDUMP),
    // engine/process/fd_transfer.cpp
    needed(attaching, "openat", SYS_openat, kHere, kAny, O_RDONLY | O_CLOEXEC | O_NONBLOCK),
    needed(attaching, "openat", SYS_openat, kHere, kAny, O_RDONLY | O_CLOEXEC),
    needed(attaching, "openat", SYS_openat, kHere, kAny, O_RDWR | O_CLOEXEC),
    needed(attaching, "socketpair", SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0),
    needed(attaching, "recvmsg", SYS_recvmsg, kAny, kAny, MSG_CMSG_CLOEXEC | MSG_DONTWAIT),
    needed(attaching, "close", SYS_close),
    // preload/attach.cpp, preload/stacks.cpp
    anonymous(kDataPages, MAP_FIXED | MAP_NORESERVE | MAP_GROWSDOWN),
    needed(attaching, "ppoll", SYS_ppoll, 0, 0, kAny, 0, 8),
    needed(attaching, "sigaltstack", SYS_sigaltstack),
    needed(attaching, "getpid", SYS_getpid),
    needed(attaching, "gettid", SYS_gettid),
    needed(attaching, "tgkill", SYS_tgkill, kAny, kAny, 0),
    needed(attaching, "rt_sigqueueinfo", SYS_rt_sigqueueinfo),
    needed(attaching, "rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo),

    // preload/mail.cpp, thread.cpp, interpret.cpp, tracers.cpp
    needed(serving, "futex", SYS_futex, kAny, FUTEX_WAIT),
    needed(serving, "futex", SYS_futex, kAny, FUTEX_WAKE),
    needed(serving, "getppid", SYS_getppid),
    needed(serving, "poll", SYS_poll, kAny, 1, 0),
    needed(serving, "prctl", SYS_prctl, PR_GET_NAME),
    needed(serving, "nanosleep", SYS_nanosleep),
    // preload/ring_rseq.cpp, rewrites.cpp, restarts.cpp
    needed(serving, "rseq", SYS_rseq),
    needed(serving, "membarrier", SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0),
    needed(serving, "membarrier", SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0),
    needed(serving, "mprotect", SYS_mprotect, kAny, kAny, kDataPages | PROT_EXEC),
    // preload/status.cpp
    needed(serving, "memfd_create", SYS_memfd_create, kAny, MFD_CLOEXEC),
    needed(serving, "read", SYS_read),
    needed(serving, "write", SYS_write),
    needed(serving, "lseek", SYS_lseek, kAny, 0, SEEK_SET),
    needed(serving, "dup3", SYS_dup3),
};

}  // namespace

std::span<const NeededCall> agents_calls() { return kCalls; }

}  // namespace uprobe::control
