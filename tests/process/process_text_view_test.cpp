// SPDX-License-Identifier: MIT
// Reading a target's memory for many small questions: the answers are those of single readings.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/process/text_view.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr Addr kText{0x7f0000010000};

class TextViews : public testing::Test {
 protected:
  TextViews() {
    std::vector<std::uint8_t> bytes(4 * kPage);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / kPage);
    Mapping m;
    m.begin = kText, m.end = kText + bytes.size(), m.readable = m.executable = true;
    target_.map(m, bytes);
  }
  // Whether the view shows what a reading of its own does.
  bool is_right(control::TextView& view, Addr at, std::size_t bytes) {
    std::vector<std::uint8_t> seen(bytes), own(bytes);
    return view.read(at, seen.data(), bytes) && target_.read(at, own.data(), bytes) && seen == own;
  }

  FakeTarget target_;
};

TEST_F(TextViews, ShowWhatLiesAroundPlacesThatWereReadAhead) {
  const std::vector<Addr> places{kText, kText + 60, kText + kPage - 3, kText + kPage + 1, kText + 4 * kPage - 1};
  control::TextView view(target_);
  view.look_ahead(places);
  for (const Addr place : places)
    for (const std::size_t bytes : {1, 5, 16}) {
      const bool is_in_text = place + bytes <= kText + 4 * kPage, has_before = place >= kText + 15;
      EXPECT_TRUE(!is_in_text || is_right(view, place, bytes)) << place.value - kText.value;
      EXPECT_TRUE(!has_before || is_right(view, place - 15, bytes)) << place.value - kText.value;
    }
  EXPECT_TRUE(is_right(view, kText + 2 * kPage + 9, 40)) << "far from all of them";
}

TEST_F(TextViews, ReadAPageOnce) {
  control::TextView view(target_);
  const std::vector<Addr> places{kText + 64, kText + 2000};
  view.look_ahead(places);
  const std::size_t reads = target_.reads.size();
  std::uint8_t byte = 0;
  ASSERT_TRUE(view.read(places[0], &byte, 1) && view.read(places[1] + 20, &byte, 1));
  EXPECT_EQ(target_.reads.size(), reads);
}

TEST_F(TextViews, ForgetWhatTheyHaveRead) {
  control::TextView view(target_);
  const std::vector<Addr> places{kText + 64};
  view.look_ahead(places);
  const std::uint8_t other = 0xcc;
  ASSERT_TRUE(target_.write(places[0], &other, 1));
  EXPECT_FALSE(is_right(view, places[0], 1)) << "it shows what was there first";
  view.forget();
  EXPECT_TRUE(is_right(view, places[0], 1));
}

TEST_F(TextViews, DoWithoutWhatCannotBeReadAhead) {
  control::TextView view(target_);
  const std::vector<Addr> places{kText + 64, kText + 64 * kPage};
  view.look_ahead(places);
  EXPECT_TRUE(is_right(view, places[0], 8));
  std::uint8_t byte = 0;
  EXPECT_FALSE(view.read(places[1], &byte, 1));
}

}  // namespace
}  // namespace uprobe::test
