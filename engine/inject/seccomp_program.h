// SPDX-License-Identifier: MIT
// What a seccomp filter answers to a system call: the kernel's classic BPF (Documentation/userspace-api/seccomp_filter.rst), run
// here with what is known of a call that has not been made. Pure; the program may be anything.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace uprobe::control {

// An argument without a value may have any; so may the address of the instruction that makes the call.
struct FilteredCall {
  long number = 0;
  std::array<std::optional<std::uint64_t>, 6> arguments;
};

// The most restrictive answer (SECCOMP_RET_..., with its data) among all that the program may give to the call.
// SECCOMP_RET_KILL_PROCESS also where the program is none that the kernel takes, or is too branched to be followed.
std::uint32_t answer_of(std::span<const sock_filter> program, const FilteredCall& call);

// Of two answers the more restrictive one, by the kernel's order.
std::uint32_t stricter_answer(std::uint32_t one, std::uint32_t other);

// Whether the call is made, and nothing but a line in a log shows that a filter was asked.
bool is_allowed(std::uint32_t answer);

}  // namespace uprobe::control
