// SPDX-License-Identifier: MIT
// Pages in the kernel's encoding, and their order in the file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/export/files.h"
#include "engine/export/page_file.h"
#include "engine/export/ring_page.h"

namespace uprobe::format {
namespace {

template <class T>
T number_at(std::string_view bytes, std::size_t place) {
  T value{};
  std::memcpy(&value, bytes.substr(place).data(), sizeof value);
  return value;
}

TEST(RingPage, HeadsAsTheKernels) {
  RingPage page;
  EXPECT_TRUE(page.is_empty());
  EXPECT_TRUE(page.add(1000, "12345"));
  EXPECT_TRUE(page.add(1007, std::string(112, 'a')));
  EXPECT_TRUE(page.add(1007, std::string(113, 'b')));
  const std::string_view bytes = page.finish();
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 0), 1000u);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 8), bytes.size() - 16);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 16), 2u);  // two words, no time
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 28), 7u << 5 | 28);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 144), 0u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 148), 116u + 4);
  EXPECT_EQ(bytes.size(), 152u + 116);
}

TEST(RingPage, LongTimesHaveARecordOfTheirOwn) {
  RingPage page;
  EXPECT_TRUE(page.add(5, "1234"));
  const std::uint64_t later = 5 + (std::uint64_t{3} << 27) + 9;
  EXPECT_TRUE(page.add(later, "1234"));
  EXPECT_TRUE(page.add(later + (1u << 27) - 1, "1234"));
  const std::string_view bytes = page.finish();
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 24), 9u << 5 | 30);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 28), 3u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 32), 1u);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 40), ((1u << 27) - 1) << 5 | 1);
}

TEST(RingPage, ATimeThatGoesBackNeedsANewPage) {
  RingPage page;
  EXPECT_TRUE(page.add(5, "1234"));
  EXPECT_FALSE(page.add(4, "1234"));
  page.clear();
  EXPECT_TRUE(page.add(4, "1234"));
}

TEST(RingPage, TheLargestRecordFitsAndAFullPageIsOne) {
  RingPage page;
  const std::string record(RingPage::kMostRecord, 'x');
  EXPECT_TRUE(page.add(1, record));
  EXPECT_FALSE(page.add(2, record));
  EXPECT_LE(page.finish(7).size(), RingPage::kBytes);
}

TEST(RingPage, LostRecordsAreCountedAfterTheLast) {
  RingPage page;
  page.add(1, "1234");
  const std::string_view bytes = page.finish(7);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 8), 8u | 1u << 31 | 1u << 30);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 24), 7u);
}

// Every page begins with its processor and its number there.
class Pages : public testing::Test {
 protected:
  void add(PageFile& pages, std::uint32_t cpu) {
    counts_.resize(std::max<std::size_t>(counts_.size(), cpu + 1));
    pages.add(cpu, std::string{static_cast<char>('a' + cpu), static_cast<char>('0' + counts_[cpu]++)});
  }
  std::string names(const PageFile& pages, std::uint64_t head) {
    std::string text;
    for (const PageFile::Part& part : pages.parts(head))
      for (std::uint64_t at = part.begin; at < part.begin + part.bytes; at += RingPage::kBytes) {
        char name[2];
        files_.read_at(at, name, sizeof name);
        text.append(name, sizeof name);
      }
    return text;
  }

  const Fd file_{::memfd_create("pages", MFD_CLOEXEC)};
  Files files_{file_.get()};
  std::vector<int> counts_;
};

TEST_F(Pages, AreSortedInPlace) {
  for (const std::uint64_t head : {std::uint64_t{1}, std::uint64_t{RingPage::kBytes}, 5 * RingPage::kBytes + 1}) {
    PageFile pages(&files_);
    counts_.clear();
    for (const std::uint32_t cpu : {2, 0, 2, 1, 0, 0, 2, 1, 1, 0}) add(pages, cpu);
    pages.sort(head);
    EXPECT_EQ(names(pages, head), "a0a1a2a3b0b1b2c0c1c2") << head;
    EXPECT_EQ(pages.parts(head)[0].begin, (head + RingPage::kBytes - 1) / RingPage::kBytes * RingPage::kBytes);
  }
}

TEST_F(Pages, NoneAndOne) {
  PageFile none(&files_);
  none.sort(10);
  EXPECT_EQ(none.parts(10).size(), 1u);
  PageFile one(&files_);
  add(one, 3);
  one.sort(10);
  EXPECT_EQ(names(one, 10), "d0");
  EXPECT_EQ(one.parts(10).size(), 4u);
  EXPECT_EQ(files_.error(), 0);
}

TEST_F(Pages, AFullDiskIsAnError) {
  const Fd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  Files files(full.get());
  PageFile pages(&files);
  pages.add(0, "page");
  EXPECT_EQ(files.error(), ENOSPC);
  pages.sort(10);
  EXPECT_EQ(files.error(), ENOSPC);
}

}  // namespace
}  // namespace uprobe::format
