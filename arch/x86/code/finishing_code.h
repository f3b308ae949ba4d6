// SPDX-License-Identifier: MIT
// The code by which a thread that its tracer has left makes the tracer's writes itself before it goes home (remote_call.h): all of a
// list, each of one byte. Several threads may do so at the same time. The last one makes the mappings read-only again.
//
//            mov  $list, %r8
//            mov  bytes(%r8), %ecx
//            mov  byte_list(%r8), %rsi
//     next   test %ecx, %ecx
//            je   done
//            mov  at(%rsi), %rdi
//            mov  value(%rsi), %rax
//            mov  %al, (%rdi)
//            add  $16, %rsi
//            dec  %ecx
//            jmp  next
//     done   lock decl threads(%r8)
//            jne  home
//            mov  mappings(%r8), %ebx
//            mov  mapping_list(%r8), %r9
//     close  test %ebx, %ebx
//            je   home
//            mov  $10, %eax                 mprotect
//            mov  begin(%r9), %rdi
//            mov  bytes(%r9), %rsi
//            mov  protection(%r9), %rdx
//            syscall
//            add  $24, %r9
//            dec  %ebx
//            jmp  close
//     home   ...                            as of a remote call
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arch/code/remote_call.h"

namespace uprobe::arch {

// The list, in memory that the threads may write.
struct UnfinishedWrites {
  std::uint32_t bytes;    // to be written; 0: none yet, or none any more
  std::uint32_t threads;  // that have not come through yet
  std::uint32_t mappings, reserved;
  std::uint64_t mapping_list, byte_list;  // addresses of ListedMapping and ListedByte
};
struct ListedByte {
  std::uint64_t at, value;
};
struct ListedMapping {
  std::uint64_t begin, bytes, protection;
};
static_assert(offsetof(UnfinishedWrites, mapping_list) == 16 && offsetof(UnfinishedWrites, byte_list) == 24);
static_assert(sizeof(ListedByte) == 16 && sizeof(ListedMapping) == 24);

inline constexpr std::size_t kFinishingHome = 83;  // distance of `home`
inline constexpr std::size_t kFinishingBytes = kFinishingHome + kRemoteCallBytes - kRemoteCallHome;

using FinishingCode = std::array<std::uint8_t, kFinishingBytes>;

// For a thread that goes back to `to`; a thread enters it at its beginning, with all signals blocked. `list`: the address of the
// UnfinishedWrites.
FinishingCode make_finishing_code(std::uint64_t list, const RemoteCallReturn& to);

}  // namespace uprobe::arch
