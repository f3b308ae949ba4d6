// SPDX-License-Identifier: MIT
// Result: a value or an error, and the end of a program that takes the wrong one.
#include <gtest/gtest.h>

#include "engine/base/result.h"

namespace uprobe {
namespace {

Result<int> half_of(int n) {
  if (n % 2 != 0) return Error{.code = Code::refused, .text = "is odd", .retry = Retry::soon};
  return n / 2;
}

Status check_quarter(int n) {
  RETURN_IF_ERROR(half_of(n));
  RETURN_IF_ERROR([n]() -> Status {
    RETURN_IF_ERROR(half_of(n / 2));
    return ok();
  }());
  return ok();
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half_of(6), 3);
  EXPECT_EQ(half_of(6).take(), 3);
  ASSERT_FALSE(half_of(7));
  EXPECT_EQ(half_of(7).error().text, "is odd");
}

TEST(Result, ReturnIfErrorPassesTheFirstErrorOn) {
  EXPECT_TRUE(check_quarter(8));
  ASSERT_FALSE(check_quarter(6));
  EXPECT_EQ(check_quarter(6).error().retry, Retry::soon);
  EXPECT_EQ(check_quarter(5).error().code, Code::refused);
}

TEST(ResultDeathTest, MisuseEndsTheProgramInEveryBuild) {
  EXPECT_DEATH(static_cast<void>(half_of(7).take()), "the value of a failed call was used \\(is odd\\)");
  EXPECT_DEATH(static_cast<void>(half_of(6).error()), "the error of a successful call was used");
}

}  // namespace
}  // namespace uprobe
