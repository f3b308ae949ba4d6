// SPDX-License-Identifier: MIT
#include "arch/code/go_patterns.h"

#include <gtest/gtest.h>

#include <vector>

namespace uprobe::arch {
namespace {

using Code = std::vector<std::uint8_t>;

TEST(GoPatterns, ProgramsBeginWithTheirRuntime) {
  Code code = {0x48, 0x8b, 0x3c, 0x24, 0x48, 0x8d, 0x74, 0x24, 0x08, 0xe9, 1, 2, 3, 4};
  EXPECT_TRUE(is_go_entry(code));
  code[9] = 0xe8;
  EXPECT_FALSE(is_go_entry(code)) << "a call";
  code.resize(9);
  EXPECT_FALSE(is_go_entry(code));
  const Code jump = {0xe9, 0x0b, 0, 0, 0}, call = {0xe8, 0x0b, 0, 0, 0};
  EXPECT_EQ(go_entry_target(jump, Addr{0x1000}), Addr{0x1010});
  EXPECT_EQ(go_entry_target(call, Addr{0x1000}), Addr{});
  EXPECT_EQ(go_entry_target({}, Addr{0x1000}), Addr{});
}

TEST(GoPatterns, TheCheckOfTheStacksBound) {
  EXPECT_TRUE(is_go_stack_check(Code{0x49, 0x3b, 0x66, 0x10, 0x76, 0x20}));
  EXPECT_TRUE(is_go_stack_check(Code{0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0, 0, 0, 0}));
  EXPECT_FALSE(is_go_stack_check(Code{0x49, 0x3b, 0x66, 0x10, 0x77, 0x20})) << "another condition";
  EXPECT_FALSE(is_go_stack_check(Code{0x49, 0x3b, 0x66, 0x18, 0x76, 0x20})) << "another word";
  EXPECT_FALSE(is_go_stack_check(Code{0x49, 0x3b, 0x66, 0x10}));
}

TEST(GoPatterns, WhatNeverFaults) {
  EXPECT_TRUE(is_safe_in_go(Code{0x76, 0x20}));                    // jbe
  EXPECT_TRUE(is_safe_in_go(Code{0x48, 0x89, 0x6c, 0x24, 0x10}));  // mov %rbp, 16(%rsp)
  EXPECT_TRUE(is_safe_in_go(Code{0x48, 0x8d, 0x6c, 0x24, 0x10}));  // lea 16(%rsp), %rbp
  EXPECT_TRUE(is_safe_in_go(Code{0x48, 0x89, 0xd8}));              // mov %rbx, %rax
  EXPECT_TRUE(is_safe_in_go(Code{0x48, 0x8d, 0x04, 0x40}));        // lea (%rax,%rax,2), %rax
  EXPECT_TRUE(is_safe_in_go(Code{0xc3}));                          // ret
  EXPECT_FALSE(is_safe_in_go(Code{0x48, 0x8b, 0x00}));             // mov (%rax), %rax
  EXPECT_FALSE(is_safe_in_go(Code{0x84, 0x00}));                   // test %al, (%rax): a check for nil
  EXPECT_FALSE(is_safe_in_go(Code{0x48, 0x8b, 0x04, 0xc4}));       // mov (%rsp,%rax,8), %rax
  EXPECT_FALSE(is_safe_in_go(Code{0x48, 0xf7, 0xf9}));             // idiv %rcx
  EXPECT_FALSE(is_safe_in_go(Code{0xe8, 0, 0, 0, 0}));             // call
  EXPECT_FALSE(is_safe_in_go(Code{0xff, 0xe0}));                   // jmp *%rax
  EXPECT_FALSE(is_safe_in_go(Code{0x0f, 0x0b}));                   // ud2
  EXPECT_FALSE(is_safe_in_go(Code{0xf3, 0x48, 0xab}));             // rep stos
  EXPECT_FALSE(is_safe_in_go(Code{0x0f}));
}

}  // namespace
}  // namespace uprobe::arch
