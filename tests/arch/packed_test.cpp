// SPDX-License-Identifier: MIT
#include "arch/code/packed.h"

#include <gtest/gtest.h>

#include "tests/arch/hex.h"

namespace uprobe::arch {
namespace {

using test::from_hex;

TEST(Packed, SeveralNumbersAtOnce) {
  EXPECT_TRUE(computes_packed(from_hex("66 0f fe c1"))) << "paddd";
  EXPECT_TRUE(computes_packed(from_hex("0f 59 c1"))) << "mulps";
  EXPECT_TRUE(computes_packed(from_hex("c5 f5 fe c2"))) << "vpaddd %ymm";
}

TEST(Packed, OneNumberOrNone) {
  EXPECT_FALSE(computes_packed(from_hex("f2 0f 58 c1"))) << "addsd";
  EXPECT_FALSE(computes_packed(from_hex("66 0f ef c0"))) << "pxor: zero";
  EXPECT_FALSE(computes_packed(from_hex("0f 28 c1"))) << "movaps";
  EXPECT_FALSE(computes_packed(from_hex("48 01 c8"))) << "add";
  EXPECT_FALSE(computes_packed(from_hex("06"))) << "no instruction";
}

TEST(Packed, WhatMayRunWhereTheSourceDoesNot) {
  EXPECT_TRUE(just_computes(from_hex("48 01 c8"))) << "add";
  EXPECT_TRUE(just_computes(from_hex("48 8b 07"))) << "a load";
  EXPECT_FALSE(just_computes(from_hex("48 89 07"))) << "a store";
  EXPECT_FALSE(just_computes(from_hex("ff 00"))) << "inc of memory";
  EXPECT_FALSE(just_computes(from_hex("50"))) << "push";
  EXPECT_FALSE(just_computes(from_hex("e8 00 00 00 00"))) << "a call";
  EXPECT_FALSE(just_computes(from_hex("74 02"))) << "a conditional jump";
  EXPECT_FALSE(just_computes(from_hex("c3"))) << "ret";
  EXPECT_FALSE(just_computes(from_hex("06"))) << "no instruction";
}

}  // namespace
}  // namespace uprobe::arch
