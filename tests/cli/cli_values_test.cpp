// SPDX-License-Identifier: MIT
// Counts, times and sizes: the forms that are understood; everything else is refused with a reason.
#include <gtest/gtest.h>

#include "cli/values.h"
#include "engine/shared/session_area.h"

namespace uprobe::cli {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

TEST(CliValues, DurationsAreUnderstood) {
  const std::pair<const char*, nanoseconds> table[] = {
      {"5", 5s},        {"5s", 5s},      {"500ms", 500ms}, {"2m", 120s},    {"1h", 3600s},
      {"1.5s", 1500ms}, {"0.25", 250ms}, {"250us", 250us}, {"1.5h", 5400s}, {"0.5m", 30s},
  };
  for (const auto& [text, expected] : table) {
    const auto result = parse_duration(text);
    ASSERT_TRUE(result) << text;
    EXPECT_EQ(*result, expected) << text;
  }
}

TEST(CliValues, SharesAndRates) {
  for (const auto& [text, expected] : {std::pair("1/1", 1u), {"1/100", 100u}, {"7", 7u}, {"1/4294967295", 4294967295u}})
    EXPECT_EQ(*parse_share(text), expected) << text;
  for (const char* text : {"", "0", "1/0", "2/3", "1/", "/5", "1/4294967296", "-1", "1/1.5", " 1/2", "1/2 ", "1/0x10"})
    EXPECT_FALSE(parse_share(text)) << text;
  for (const auto& [text, expected] : {std::pair("1/s", 1u), {"1000", 1000u}, {"1000000000/s", 1000000000u}})
    EXPECT_EQ(*parse_rate(text), expected) << text;
  for (const char* text : {"", "/s", "0/s", "5/m", "5s", "1000000001/s", "-1/s", "1.5/s", "5/s "})
    EXPECT_FALSE(parse_rate(text)) << text;
}

TEST(CliValues, GarbageIsNoDuration) {
  for (const char* text : {"",   " ",  "s",   "ms",  "-5",   "+5",  "5x",  "5 s", " 5",    "5s ",    "1.2.3",
                           ".5", "5.", "nan", "inf", "0x10", "1e3", "5ss", "5d",  "1m30s", "\x1b[2J"}) {
    const auto result = parse_duration(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Code::usage);
    EXPECT_FALSE(result.error().help.empty()) << text;
  }
}

TEST(CliValues, DurationsHaveLimits) {
  EXPECT_EQ(parse_duration("0").error().text, "'0' is not a time above 0");
  EXPECT_EQ(parse_duration("0.0ms").error().text, "'0.0ms' is not a time above 0");
  EXPECT_EQ(parse_duration("99999999999h").error().text, "'99999999999h' is too long a time");
  const std::string digits(400, '9');
  EXPECT_FALSE(parse_duration(digits));
  EXPECT_TRUE(parse_duration("876000h"));
}

TEST(CliValues, CountsAreWholeAndPositive) {
  EXPECT_EQ(*parse_count("1"), 1u);
  EXPECT_EQ(*parse_count("18446744073709551615"), ~0ull);
  for (const char* text : {"", "0", "-1", "+1", "1.5", "1K", "ten", "18446744073709551616", " 1", "1 "})
    EXPECT_FALSE(parse_count(text)) << text;
}

TEST(CliValues, WaysToSeeAReturn) {
  EXPECT_EQ(*parse_return_mode("auto"), plan::ReturnMode::automatic);
  EXPECT_EQ(*parse_return_mode("stub"), plan::ReturnMode::stub);
  EXPECT_EQ(*parse_return_mode("exits"), plan::ReturnMode::exits);
  for (const char* text : {"", "exit", "Stub", "auto "})
    EXPECT_EQ(parse_return_mode(text).error().text,
              std::string("'").append(text).append("' is not one of auto, stub, exits"));
}

TEST(CliValues, RingSizes) {
  EXPECT_EQ(*parse_ring_size("8192"), 8192u);
  EXPECT_EQ(*parse_ring_size("64K"), 65536u);
  EXPECT_EQ(*parse_ring_size("64k"), 65536u);
  EXPECT_EQ(*parse_ring_size("4M"), 4u << 20);
  EXPECT_EQ(*parse_ring_size("1G"), shared::kMaxRingBytes);
}

TEST(CliValues, RingSizesOutsideNameTheLimits) {
  for (const char* bad : {"0", "65536", "64K", "-1", "", "1e3", "99999999999999999999"})
    EXPECT_EQ(parse_string_limit(bad).error().help, "from 1 to 65535") << bad;
  EXPECT_EQ(*parse_string_limit("1"), 1u);
  EXPECT_EQ(*parse_string_limit("65535"), 65535u);
  EXPECT_EQ(parse_ring_size("1K").error().text, "'1K' is too small a buffer");
  EXPECT_EQ(parse_ring_size("1K").error().help, "from 8K to 1G for each ring");
  EXPECT_EQ(parse_ring_size("0").error().text, "'0' is too small a buffer");
  EXPECT_EQ(parse_ring_size("2G").error().text, "'2G' is too large a buffer");
  // 2^34 G would be 0 after the shift.
  EXPECT_EQ(parse_ring_size("17179869184G").error().text, "'17179869184G' is too large a buffer");
  for (const char* text : {"", "K", "4MB", "4 M", "-4M", "4T", "1.5M", "0x2000", "99999999999999999999"})
    EXPECT_EQ(parse_ring_size(text).error().text, std::string("'").append(text).append("' is not a size"));
}

}  // namespace
}  // namespace uprobe::cli
