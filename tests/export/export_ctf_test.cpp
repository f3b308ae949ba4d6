// SPDX-License-Identifier: MIT
// What CTF has of hostile names and times; its reader is in tests/e2e/export_test.py.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/fd.h"
#include "engine/export/ctf.h"
#include "engine/export/ctf_metadata.h"
#include "engine/export/files.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

bool has(const std::string& bytes, const std::string& text) { return bytes.find(text) != std::string::npos; }

class Ctf : public testing::Test {
 protected:
  Ctf() { std::filesystem::create_directory(path_); }
  ~Ctf() override { std::filesystem::remove_all(path_); }

  std::string content(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(Record record, const std::vector<std::uint64_t>& times, std::uint16_t cpu = 1) {
    const Fd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Files files(folder.get());
    CtfFormatter formatter({.files = &files});
    Buffer out;
    formatter.add(record.layout);
    for (const std::uint64_t time : times) {
      trace::EventRecord event = record.event(time);
      event.cpu = cpu;
      formatter.append(event, "zsh", out);
    }
    formatter.end({}, out);
    EXPECT_EQ(files.error(), 0);
  }

  const std::string path_ = testing::TempDir() + "ctf-" + std::to_string(::getpid());
};

TEST(CtfMetadata, NamesCannotBreakIt) {
  Record record("e\"; }; */ x\\");
  record.field("struct", Kind::unsigned_decimal, 3u).field("a; }\n", Kind::hex, 3u).field("$k", Kind::hex, 3u);
  const std::string text = ctf_description(CtfEvent(record.layout), 5);
  EXPECT_TRUE(has(text, "name = \"uprobes:e\\042\\073 \\175\\073 \\052\\057 x\\134\";")) << text;
  EXPECT_TRUE(has(text, " _struct;\n"));
  EXPECT_TRUE(has(text, " _a____;\n")) << text;
  EXPECT_TRUE(has(text, " __k;\n"));
  EXPECT_TRUE(has(text, "id = 10;"));
}

TEST(CtfMetadata, RecordsWithoutAnEntryAreEventsOfTheirOwn) {
  Record record;
  record.field("k", Kind::signed_decimal, std::int16_t{3}).layout.fields[0].of_entry = true;
  const std::string text = ctf_description(CtfEvent(record.layout), 5);
  EXPECT_EQ(text.find(" _k;"), text.rfind(" _k;"));
  EXPECT_TRUE(has(text, "id = 10;") && has(text, "id = 11;"));
}

TEST_F(Ctf, NumbersOfSixteenBytesAreTexts) {
  Record record;
  record.wide("w", Kind::signed_decimal, 7, 5);
  EXPECT_TRUE(has(ctf_description(CtfEvent(record.layout), 5), "    string _w;\n"));
  write(record, {100});
  EXPECT_TRUE(has(content("cpu_1"), std::string("92233720368547758087\0", 21)));
}

TEST_F(Ctf, TimesOfAFileDoNotGoBack) {
  write(Record(), {100, 90, 110, 95, 80});
  const auto times = [&](const std::string& name) {
    std::vector<std::uint64_t> found(2);
    std::memcpy(found.data(), content(name).substr(8).data(), 16);
    return found;
  };
  EXPECT_EQ(times("cpu_1"), (std::vector<std::uint64_t>{100, 110}));
  EXPECT_EQ(times("cpu_1_2"), (std::vector<std::uint64_t>{90, 95}));
  EXPECT_EQ(times("cpu_1_3"), (std::vector<std::uint64_t>{80, 80}));
}

TEST_F(Ctf, WhatHasNoRoomIsCounted) {
  write(Record(), {900, 800, 700, 600, 500, 400, 300, 200, 100, 50});
  EXPECT_TRUE(std::filesystem::exists(path_ + "/cpu_1_8"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/cpu_1_9"));
  EXPECT_TRUE(has(content("cpu_1_8") + content("cpu_1"), "(out of order)"));
  write(Record(), {1}, 65'535);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/cpu_65535"));
}

TEST_F(Ctf, AFullDiskLeavesWholePackets) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  const auto kept = ::signal(SIGXFSZ, SIG_IGN);
  const Fd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Files files(folder.get());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 5; ++i) files.append("packets", std::string(300, 'a'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, kept);
  EXPECT_EQ(files.error(), EFBIG);
  EXPECT_EQ(content("packets").size(), 900u);
}

TEST_F(Ctf, AStringEndsAtItsFirstNul) {
  Record record;
  record.array("c", Kind::character, std::vector<char>{'a', '\0', 'b'}).text("s", "one", true);
  write(record, {1});
  EXPECT_TRUE(content("cpu_1").ends_with(std::string("a\0\0b\0one...\0", 12)));
}

}  // namespace
}  // namespace uprobe::format
