// SPDX-License-Identifier: MIT
#include "arch/code/finishing_code.h"

#include <algorithm>
#include <cstring>

namespace uprobe::arch {
namespace {

constexpr std::size_t kListAt = 2;  // distance of the list's address
constexpr std::array<std::uint8_t, kFinishingHome> kFinishing = {
    0x49, 0xb8, 0,    0,    0,    0, 0, 0, 0, 0,  // mov $list, %r8
    0x41, 0x8b, 0x08,                             // mov (%r8), %ecx
    0x49, 0x8b, 0x70, 0x18,                       // mov 24(%r8), %rsi
    0x85, 0xc9,                                   // test %ecx, %ecx
    0x74, 0x11,                                   // je done
    0x48, 0x8b, 0x3e,                             // mov (%rsi), %rdi
    0x48, 0x8b, 0x46, 0x08,                       // mov 8(%rsi), %rax
    0x88, 0x07,                                   // mov %al, (%rdi)
    0x48, 0x83, 0xc6, 0x10,                       // add $16, %rsi
    0xff, 0xc9,                                   // dec %ecx
    0xeb, 0xeb,                                   // jmp next
    0xf0, 0x41, 0xff, 0x48, 0x04,                 // lock decl 4(%r8)
    0x75, 0x26,                                   // jne home
    0x41, 0x8b, 0x58, 0x08,                       // mov 8(%r8), %ebx
    0x4d, 0x8b, 0x48, 0x10,                       // mov 16(%r8), %r9
    0x85, 0xdb,                                   // test %ebx, %ebx
    0x74, 0x1a,                                   // je home
    0xb8, 0x0a, 0x00, 0x00, 0x00,                 // mov $10, %eax
    0x49, 0x8b, 0x39,                             // mov (%r9), %rdi
    0x49, 0x8b, 0x71, 0x08,                       // mov 8(%r9), %rsi
    0x49, 0x8b, 0x51, 0x10,                       // mov 16(%r9), %rdx
    0x0f, 0x05,                                   // syscall
    0x49, 0x83, 0xc1, 0x18,                       // add $24, %r9
    0xff, 0xcb,                                   // dec %ebx
    0xeb, 0xe2,                                   // jmp close
};

}  // namespace

FinishingCode make_finishing_code(std::uint64_t list, const RemoteCallReturn& to) {
  FinishingCode code{};
  const RemoteCallCode home = make_remote_call(to);
  std::ranges::copy(kFinishing, code.begin());
  std::memcpy(&code[kListAt], &list, sizeof list);
  std::copy(home.begin() + kRemoteCallHome, home.end(), code.begin() + kFinishingHome);
  return code;
}

}  // namespace uprobe::arch
