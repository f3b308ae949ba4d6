// SPDX-License-Identifier: MIT
// An example for GoogleTest: a test of shop code whose library under it fails when the test wants it to, and whose calls it sees with
// their arguments. Build: find_package(uprobe 0.2) and find_package(GTest), then link uprobe::session and GTest::gtest_main;
// PRICES is the path of the library.
#include <gtest/gtest.h>
#include <unistd.h>
#include <uprobe/callback.h>
#include <uprobe/session.h>

#include <string>
#include <vector>

using namespace std::chrono_literals;
using libuprobe::on_entry;
using libuprobe::on_return;
using libuprobe::Session;

// The library under test: price_of() of libprices.so.
struct item {
  const char* name;
  int cents;
};
extern "C" int price_of(const item* item, int count);

namespace {

// The code that uses it: what can go wrong below it cannot be made to go wrong otherwise.
int total(const std::vector<item>& items) {
  int sum = 0;
  for (const item& one : items) {
    const int price = price_of(&one, 1);
    if (price < 0) return -1;
    sum += price;
  }
  return sum;
}

const std::string kPriceOf = std::string(PRICES) + ":price_of";

TEST(Shop, HasNoTotalWhereAPriceIsMissing) {
  std::vector<std::string> asked;
  asked.reserve(10);
  auto session = Session::attach({.callbacks = {on_entry("p:price " + kPriceOf,
                                                         [&](const item* what, int count) -> std::optional<int> {
                                                           EXPECT_EQ(count, 1);
                                                           asked.emplace_back(what->name);
                                                           if (asked.back() == "pear")
                                                             return -1;  // instead of its price
                                                           return std::nullopt;
                                                         })}},
                                 ::getpid());
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(total({{"apple", 30}, {"fig", 50}}), 80);
  EXPECT_EQ(total({{"apple", 30}, {"pear", 40}, {"fig", 50}}), -1);
  EXPECT_EQ(asked, (std::vector<std::string>{"apple", "fig", "apple", "pear"}));
  EXPECT_EQ(session->wait_for("price", 4, 20s).size(), 4U);
  EXPECT_EQ(session->callback_counts().at(0).called, 4U);
}

TEST(Shop, TakesThePriceThatItIsGiven) {
  auto session = Session::attach(
      {.callbacks = {on_return("r:price " + kPriceOf, [](int cents) -> std::optional<int> { return cents * 2; })}},
      ::getpid());
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ(total({{"apple", 30}, {"fig", 50}}), 160);
  session->stop();
  EXPECT_EQ(total({{"apple", 30}, {"fig", 50}}), 80);
}

}  // namespace
