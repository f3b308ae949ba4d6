// SPDX-License-Identifier: MIT
// Values as printf prints them: each conversion is compared with the C library's.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <limits>

#include "engine/output/conversion.h"

namespace uprobe::format {
namespace {

spec::Conversion conversion(const std::string& text) {
  const auto format = spec::read_print_format(text);
  EXPECT_TRUE(format && format->conversions.size() == 1) << text;
  return format && !format->conversions.empty() ? format->conversions[0] : spec::Conversion{};
}

template <class T>
std::string printed(const std::string& text, T value) {
  std::array<char, 1024> room{};
  const int size = std::snprintf(room.data(), room.size(), text.c_str(), value);  // the format is the test's own
  return {room.data(), static_cast<std::size_t>(size)};
}

template <class T>
std::string mine(const std::string& text, T value) {
  std::array<char, kConvertedBytes> room;
  char* end = room.data();
  if constexpr (std::is_floating_point_v<T>)
    end = put_floating(room.data(), conversion(text), value);
  else
    end = put_integer(room.data(), conversion(text), static_cast<std::uint64_t>(value), sizeof value);
  return {room.data(), static_cast<std::size_t>(end - room.data())};
}

constexpr const char* kShapes[] = {"",    "5",    "-5",   "05",   "+",    "+5",   "-+5",    " ",     " 7",
                                   "012", "-012", "25.9", ".0",   ".1",   ".7",   "10.3",   "-10.3", "010.3",
                                   "+.2", " .4",  "128",  "-128", ".128", "+030", "128.128"};

TEST(Conversion, IntegersAreAsPrintfs) {
  for (const std::string shape : kShapes)
    for (const std::string letter : {"d", "i", "u", "x", "X", "o"}) {
      if ((shape.find_first_of("+ ") != std::string::npos) && letter != "d" && letter != "i") continue;
      for (const int value : {0, 1, -1, 7, 123456, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()})
        EXPECT_EQ(mine("%" + shape + letter, value), printed("%" + shape + letter, value)) << shape << letter;
      for (const long value : {0L, -1L, 1L << 40, std::numeric_limits<long>::min()})
        EXPECT_EQ(mine("%" + shape + "l" + letter, value), printed("%" + shape + "l" + letter, value))
            << shape << letter;
    }
  for (const unsigned value : {0u, 1u, 0xabcdu})
    for (const std::string text : {"%#x", "%#X", "%#10x", "%#010x", "%-#8x|"})
      EXPECT_EQ(mine(text, value), printed(text.substr(0, text.find('|')), value)) << text;
  EXPECT_EQ(mine("%p", 0x1234ul), "0x1234");
}

TEST(Conversion, FloatingPointNumbersAreAsPrintfs) {
  constexpr double kValues[] = {0.0,
                                -0.0,
                                1.5,
                                -2.25,
                                1e-7,
                                123456789.125,
                                1e300,
                                5e-324,
                                0.1,
                                100.0,
                                1e22,
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()};
  for (const std::string shape : kShapes)
    for (const std::string letter : {"f", "F", "e", "E", "g", "G", "a", "A"})
      for (const double value : kValues) {
        if ((letter == "a" || letter == "A") && value == 5e-324) continue;  // 0x0.0..1p-1022 and 0x1p-1074 are the same
        EXPECT_EQ(mine("%" + shape + letter, value), printed("%" + shape + letter, value)) << shape << letter << value;
      }
}

TEST(Conversion, Padding) {
  EXPECT_EQ(padding(conversion("%5s"), 3), 2u);
  EXPECT_EQ(padding(conversion("%5s"), 9), 0u);
  EXPECT_EQ(padding(conversion("%s"), 9), 0u);
}

}  // namespace
}  // namespace uprobe::format
