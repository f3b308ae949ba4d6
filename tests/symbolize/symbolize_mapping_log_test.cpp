// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/symbolize/mapping_log.h"

namespace uprobe::control {
namespace {

std::string program() { return procfs::link("/proc/self/exe"); }

// Executable memory of the test's own file.
class Mapped {
 public:
  Mapped() : file_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) {
    at_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_.get(), 0);
  }
  ~Mapped() { ::munmap(at_, kBytes); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(at_); }

 private:
  static constexpr std::size_t kBytes = 4096;
  const Fd file_;
  void* at_;
};

TEST(MappingLog, NotesAllAndThenWhatHasCome) {
  MappingLog log;
  log.note(::getpid());
  const auto first = log.take();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(first[0].is_all);
  EXPECT_EQ(first[0].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(std::ranges::any_of(first[0].files, [](const CodeMapping& m) { return m.path == program(); }));
  EXPECT_TRUE(std::ranges::any_of(first[0].files, [](const CodeMapping& m) { return m.path == kVdso; }));
  log.note(::getpid());
  EXPECT_TRUE(log.take().empty()) << "nothing has changed";
  {
    const Mapped mapped;
    log.note(::getpid());
    const auto second = log.take();
    ASSERT_EQ(second.size(), 1u);
    EXPECT_FALSE(second[0].is_all);
    ASSERT_EQ(second[0].files.size(), 1u);
    EXPECT_EQ(second[0].files[0].begin, mapped.begin());
    EXPECT_GE(second[0].ns, first[0].ns);
  }
  log.note(::getpid());
  EXPECT_TRUE(log.take().empty()) << "what goes is not told";
  const Mapped again;
  log.note(::getpid());
  EXPECT_EQ(log.take().size(), 1u);
  log.note(::getpid(), true);
  const auto anew = log.take();
  ASSERT_EQ(anew.size(), 1u);
  EXPECT_TRUE(anew[0].is_all);
  EXPECT_EQ(log.dropped(), 0u);
}

TEST(MappingLog, IsBoundedAndBeginsAnew) {
  MappingLog log;
  for (int i = 0; i < 20'000 && log.dropped() == 0; ++i) log.note(::getpid(), true);
  EXPECT_EQ(log.dropped(), 1u);
  EXPECT_GT(log.take().size(), 100u);
  log.note(::getpid());
  const auto next = log.take();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_TRUE(next[0].is_all);
}

TEST(BuildIds, AreThoseOfTheMappedFiles) {
  MappingLog log;
  log.note(::getpid());
  NotedMappings noted = log.take().at(0);
  const auto own = std::ranges::find(noted.files, program(), &CodeMapping::path);
  ASSERT_NE(own, noted.files.end());
  CodeMapping other = *own, gone = *own;
  ++other.inode;
  gone.path = "/no/such/file";
  noted.files = {*own, other, gone};
  BuildIds ids;
  const auto all = ids.add_to(noted);
  ASSERT_EQ(all.files.size(), 3u);
  EXPECT_EQ(all.files[0].path, program());
  EXPECT_EQ(all.files[0].build_id.size() % 2, 0u);
  EXPECT_GE(all.files[0].build_id.size(), 16u);
  EXPECT_EQ(all.files[0].build_id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(all.files[1].build_id, "") << "the path leads to another file than the one that is mapped";
  EXPECT_EQ(all.files[2].build_id, "");
}

}  // namespace
}  // namespace uprobe::control
