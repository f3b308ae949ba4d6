// SPDX-License-Identifier: MIT
// The files of past mappings: files that are mapped and unmapped in this process, and generated code in their place.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "engine/base/fd.h"
#include "engine/symbolize/code_maps.h"

namespace uprobe::control {
namespace {

constexpr std::size_t kBytes = 4096;

// Maps of the test process itself.
class Maps : public ::testing::Test {
 protected:
  Maps() : file_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) {
    struct stat about {};
    EXPECT_EQ(::fstat(file_.get(), &about), 0);
    anchor_ = {.address = map(nullptr), .offset = 0, .inode = about.st_ino};
  }
  ~Maps() override { ::munmap(pointer(anchor_.address), kBytes); }

  static void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }
  // A page of code of the file, or without a file.
  std::uint64_t map(void* where, bool of_file = true) {
    const int flags = MAP_PRIVATE | (where != nullptr ? MAP_FIXED : 0) | (of_file ? 0 : MAP_ANONYMOUS);
    void* const at = ::mmap(where, kBytes, PROT_READ | PROT_EXEC, flags, of_file ? file_.get() : -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    return reinterpret_cast<std::uint64_t>(at);
  }
  std::size_t found(std::uint64_t address) const { return maps_.at(::getpid(), anchor_, address).size(); }
  static std::uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  }

  Fd file_;
  CodeMaps maps_;
  CodeMaps::Anchor anchor_;
};

TEST_F(Maps, WhatIsUnmappedStaysInTheBook) {
  const std::uint64_t address = map(nullptr);
  maps_.note(::getpid());
  EXPECT_EQ(found(address + 5), 1U);
  ::munmap(pointer(address), kBytes);
  maps_.note_since(::getpid(), now());
  EXPECT_EQ(found(address + 5), 1U);
}

TEST_F(Maps, WhereCodeWasGeneratedAFileHasNone) {
  const std::uint64_t address = map(nullptr);
  maps_.note(::getpid());
  map(pointer(address), false);
  maps_.note_since(::getpid(), now());
  EXPECT_EQ(found(address + 5), 0U);
  EXPECT_TRUE(maps_.anywhere(address + 5).empty());
  EXPECT_TRUE(maps_.has_code(::getpid(), anchor_, address + 5));
  EXPECT_EQ(found(anchor_.address), 1U);
  ::munmap(pointer(address), kBytes);
}

// A process may map a file as often as it likes; if a part of its mappings is unknown, all are.
TEST_F(Maps, OfAProcessThatHasTooManyThereAreNone) {
  constexpr int kMany = 5000;
  maps_.note(::getpid());
  EXPECT_EQ(found(anchor_.address), 1U);
  std::vector<std::uint64_t> mapped;
  for (int i = 0; i < kMany; ++i) mapped.push_back(map(nullptr));
  maps_.note_since(::getpid(), now());
  EXPECT_EQ(found(anchor_.address), 0U);
  EXPECT_EQ(maps_.overfull(), 1U);
  EXPECT_TRUE(maps_.anywhere(anchor_.address).empty());
  for (const std::uint64_t address : mapped) ::munmap(pointer(address), kBytes);
}

TEST_F(Maps, AreLookedAtOnceAfterAMoment) {
  const std::uint64_t before = now();
  maps_.note(::getpid());
  const std::uint64_t address = map(nullptr);
  maps_.note_since(::getpid(), before);
  EXPECT_EQ(found(address), 0U);
  maps_.note_since(::getpid(), now());
  EXPECT_EQ(found(address), 1U);
  ::munmap(pointer(address), kBytes);
}

TEST_F(Maps, AThreadHasThoseOfItsProcess) {
  maps_.note(::getpid());
  const std::uint64_t address = map(nullptr);
  pid_t tid = 0;
  std::thread([&] { maps_.note_since(tid = ::gettid(), now()); }).join();
  EXPECT_EQ(found(address), 1U);
  maps_.note_since(tid, now());  // the thread has ended
  EXPECT_EQ(maps_.at(tid, anchor_, address).size(), 1U) << "any process that has the anchor there";
  ::munmap(pointer(address), kBytes);
}

}  // namespace
}  // namespace uprobe::control
