// SPDX-License-Identifier: MIT
// Maps of generated code: lines as generators write them, lines that say nothing, and files that grow, are written anew, or are
// not what they seem.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/generated/perf_map.h"

namespace uprobe::test {
namespace {

using control::GeneratedFunction;
using control::parse_perf_map_line;
using control::PerfMap;

std::string read_line(std::string_view line) {
  const auto function = parse_perf_map_line(line);
  if (!function) return "none";
  return std::to_string(function->address) + "+" + std::to_string(function->bytes) + " " + std::string(function->name);
}

TEST(PerfMapLine, AsGeneratorsWriteThem) {
  EXPECT_EQ(read_line("7f0000001000 20 LazyCompile:*fib /a b.js:1:13"),
            "139637976731648+32 LazyCompile:*fib /a b.js:1:13");
  EXPECT_EQ(read_line("0x0000000000001000 0x0000000000000100 int Main.work(int)"), "4096+256 int Main.work(int)");
  EXPECT_EQ(read_line("1000 1 TRACE_1::/a.lua:3\r"), "4096+1 TRACE_1::/a.lua:3");
}

TEST(PerfMapLine, AndWhatIsNone) {
  for (const char* line : {"", "x", "1000", "1000 ", "1000 10", "1000 10 ", "1000 10  ", "1000  10", "zz 10 f",
                           "1000 zz f", "0 10 f", "1000 0 f", "-1000 10 f", "800000000000 1 f", "7fffffffffff 1 f",
                           "1000 ffffffff f", "ffffffffffffffffff 1 f", "1000 10f", "0x 10 f"})
    EXPECT_EQ(read_line(line), "none") << line;
  EXPECT_EQ(read_line("1000 10 " + std::string(4096, 'n')).size(), 4096 + std::string("4096+16 ").size());
  EXPECT_EQ(read_line("1000 10 " + std::string(4097, 'n')), "none");
}

class PerfMapFile : public testing::Test {
 protected:
  void SetUp() override { ::unlink(path_.c_str()); }
  void TearDown() override { ::unlink(path_.c_str()); }
  void add(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  void write(const std::string& text) { std::ofstream(path_, std::ios::trunc) << text; }
  // The names that a look shows, '!' first where it begins anew.
  std::string look(std::uint64_t budget = std::uint64_t{16} << 20) {
    std::string seen;
    map_.read(
        budget, [&] { seen += "!"; },
        [&](const GeneratedFunction& function) { seen += std::string(function.name) + ","; });
    return seen;
  }

  const std::string path_ = "/tmp/perf-" + std::to_string(::getpid()) + ".map";
  PerfMap map_{::getpid()};
};

TEST_F(PerfMapFile, Grows) {
  EXPECT_EQ(look(), "");
  add("1000 10 a\n2000 10 b\n3000 10 c");
  EXPECT_EQ(look(), "!a,b,");
  EXPECT_EQ(look(), "");
  add("d\n");
  EXPECT_EQ(look(), "cd,");
  map_.rewind();
  EXPECT_EQ(look(), "a,b,cd,");
}

TEST_F(PerfMapFile, IsWrittenAnew) {
  add("1000 10 a\n");
  EXPECT_EQ(look(), "!a,");
  write("1000 10 b\n");
  EXPECT_EQ(look(), "!b,");
  write("1000 10 longer\n2000 10 c\n");
  EXPECT_EQ(look(), "!longer,c,");
  write("");
  EXPECT_EQ(look(), "!");
}

TEST_F(PerfMapFile, HasLongLinesAndMuchText) {
  std::string text, expected = "!";
  for (int i = 1; i <= 3000; ++i) {
    text += "1000 10 n" + std::to_string(i) + "\n";
    expected += "n" + std::to_string(i) + ",";
  }
  write(text + std::string(std::size_t{3} << 20, 'x') + "\n1000 10 last\n");
  EXPECT_EQ(look(), expected + "last,");
}

TEST_F(PerfMapFile, IsReadAsFarAsTheBudgetGoes) {
  const std::string blanks(std::size_t{1} << 20, ' ');
  write("1000 10 a\n" + blanks + "\n1000 10 b\n" + blanks + "\n1000 10 c\n");
  EXPECT_EQ(look(0), "!");
  EXPECT_EQ(look(1), "a,");
  std::string later;
  for (int looks = 0; looks < 10; ++looks) later += look(1);
  EXPECT_EQ(later, "b,c,");
}

TEST_F(PerfMapFile, IsCutWhereItIsTooLarge) {
  add("1000 10 a\n");
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(2 * PerfMap::kMostBytes)), 0);
  EXPECT_EQ(look(), "!a,");
  EXPECT_FALSE(map_.is_cut());
  EXPECT_EQ(look(2 * PerfMap::kMostBytes), "");
  EXPECT_TRUE(map_.is_cut());
}

TEST_F(PerfMapFile, IsNoOtherThanAFile) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(look(), "");
  ::unlink(path_.c_str());
  const std::string other = path_ + ".other";
  std::ofstream(other) << "1000 10 a\n";
  ASSERT_EQ(::symlink(other.c_str(), path_.c_str()), 0);
  EXPECT_EQ(look(), "");
  ::unlink(path_.c_str());
  ASSERT_EQ(::rename(other.c_str(), path_.c_str()), 0);
  EXPECT_EQ(look(), "!a,");
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(path_.c_str(), 4711, 4711), 0);
  add("2000 10 b\n");
  EXPECT_EQ(look(), "");
}

}  // namespace
}  // namespace uprobe::test
