// SPDX-License-Identifier: MIT
// The members of a session: processes that map its plan for reading and a live part of it after that, by the kernel's account.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <tuple>

#include "engine/process/members.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

using control::open_member;

// A process that has done `work`, and waits.
class Process {
 public:
  explicit Process(const std::function<void()>& work) {
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      static_cast<void>(!::write(ready[1], "x", 1));
      for (;;) ::pause();
    }
    char word = 0;
    EXPECT_EQ(::read(ready[0], &word, 1), 1);
    ::close(ready[0]), ::close(ready[1]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { end(); }
  void end() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class Members : public testing::Test {
 protected:
  Members() : area_(make_area(2, 8192, {make_program(24)})) { area_.keep_from_children(); }

  // The mappings of a member; `change` makes a step different.
  static void map(const Area& area, std::size_t part, const std::function<void(trace::MapStep&)>& change) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    auto* const base = static_cast<char*>(::mmap(nullptr, area.span_bytes() + (1 << 20), PROT_NONE, kFlags, -1, 0));
    for (trace::MapStep step : area.map_steps(part)) {
      change(step);
      const int protection = step.writable ? PROT_READ | PROT_WRITE : PROT_READ;
      if (step.length != 0)
        ::mmap(base + step.offset, step.length, protection, MAP_SHARED | MAP_FIXED, step.fd,
               static_cast<off_t>(step.file_offset));
    }
  }
  bool is_member(pid_t pid) { return bool(open_member(area_, pid)); }

  Area area_;
};

TEST_F(Members, HaveThePlanAndAPart) {
  const std::size_t second = area_.add_live().take();
  for (const std::size_t part : {std::size_t{0}, second}) {
    const Process process([&] { map(area_, part, [](trace::MapStep&) {}); });
    const auto member = open_member(area_, process.pid());
    ASSERT_TRUE(member) << member.error().text;
    EXPECT_EQ(member->part, part);
    EXPECT_EQ(member->files.pid(), process.pid());
    EXPECT_TRUE(member->lives());
    shared::u64 magic = 0;
    ASSERT_TRUE(member->files.read(member->area, &magic, sizeof magic));
    EXPECT_EQ(magic, shared::kAreaMagic);
    EXPECT_EQ(member->mailbox().value, member->area.value - shared::kMailboxBytes);
  }
}

TEST_F(Members, AreNotStrangersNorTheTool) {
  const Process stranger([] {});
  EXPECT_FALSE(is_member(stranger.pid()));
  EXPECT_FALSE(is_member(::getpid())) << "its plan is writable";
  EXPECT_FALSE(is_member(0x3ffffff));
}

TEST_F(Members, AreNotThoseOfAnotherSession) {
  const Area other = make_area(2, 8192, {make_program(24)});
  const Process process([&] { map(other, 0, [](trace::MapStep&) {}); });
  EXPECT_FALSE(is_member(process.pid()));
  EXPECT_TRUE(open_member(other, process.pid()));
}

TEST_F(Members, HaveThePartWhereItBelongs) {
  const std::uint64_t live = area_.header().live_offset;
  const Process moved(
      [&] { map(area_, 0, [&](trace::MapStep& step) { step.offset += step.offset >= live ? 8192 : 0; }); });
  EXPECT_FALSE(is_member(moved.pid()));
  const Process without(
      [&] { map(area_, 0, [&](trace::MapStep& step) { step.length = step.offset >= live ? 0 : step.length; }); });
  EXPECT_FALSE(is_member(without.pid()));
  const Area other = make_area(2, 8192, {make_program(24)});
  const Process mixed([&] {
    map(area_, 0, [&](trace::MapStep& step) {
      if (step.offset >= live) step.fd = other.live(0).fd();
    });
  });
  EXPECT_FALSE(is_member(mixed.pid())) << "a part of another session";
}

// However the kernel tells of them.
TEST_F(Members, AreSeenByTheirSharedFiles) {
  const Process process([&] { map(area_, 0, [](trace::MapStep&) {}); });
  const auto files = target::ProcessFiles::open(process.pid());
  ASSERT_TRUE(files);
  const auto all = files->maps(), shared = files->shared_files();
  ASSERT_TRUE(all && shared);
  std::size_t next = 0;
  for (const target::Mapping& m : *all) {
    if (!m.shared) continue;
    ASSERT_LT(next, shared->size());
    const target::Mapping& its = (*shared)[next++];
    EXPECT_EQ(its.begin.value, m.begin.value);
    EXPECT_EQ(its.end.value, m.end.value);
    EXPECT_EQ(its.offset, m.offset);
    EXPECT_EQ(its.device, m.device);
    EXPECT_EQ(its.inode, m.inode);
    EXPECT_TRUE(its.shared && its.readable == m.readable && its.writable == m.writable &&
                its.executable == m.executable);
  }
  EXPECT_EQ(next, shared->size());
  EXPECT_GE(next, 2U);
}

// As the list has them, whichever the kernel's way to tell is.
TEST_F(Members, AskForOneMapping) {
  const Process process([&] { map(area_, 0, [](trace::MapStep&) {}); });
  const auto files = target::ProcessFiles::open(process.pid());
  ASSERT_TRUE(files);
  const auto all = files->maps();
  ASSERT_TRUE(all);
  for (const target::Mapping& m : *all) {
    if (m.path == "[vsyscall]") continue;
    const auto one = files->mapping_at(m.end - 1);
    ASSERT_TRUE(one && *one) << m.path;
    EXPECT_EQ(std::tuple((*one)->begin, (*one)->end, (*one)->offset, (*one)->device, (*one)->inode, (*one)->path),
              std::tuple(m.begin, m.end, m.offset, m.device, m.inode, m.path));
    EXPECT_EQ(std::tuple((*one)->readable, (*one)->writable, (*one)->executable, (*one)->shared),
              std::tuple(m.readable, m.writable, m.executable, m.shared));
  }
  const auto none = files->mapping_at(Addr{4096});
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

// One is found at the place of the one before, another elsewhere.
TEST_F(Members, HaveTheAreaAnywhere) {
  const Process first([&] { map(area_, 0, [](trace::MapStep&) {}); });
  const Process second([&] {
    // Where the first one has it.
    ::mmap(nullptr, area_.span_bytes() + (1 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    map(area_, 0, [](trace::MapStep&) {});
  });
  std::set<std::uint64_t> places;
  for (int round = 0; round < 2; ++round) {
    for (const Process* process : {&first, &second}) {
      const auto member = open_member(area_, process->pid());
      ASSERT_TRUE(member) << member.error().text;
      shared::u64 magic = 0;
      ASSERT_TRUE(member->files.read(member->area, &magic, sizeof magic));
      EXPECT_EQ(magic, shared::kAreaMagic);
      places.insert(member->area.value);
    }
  }
  EXPECT_EQ(places.size(), 2U);
}

// A later process with the same number is another one: the opened memory is the first one's.
TEST_F(Members, EndWithTheirProcess) {
  Process process([&] { map(area_, 0, [](trace::MapStep&) {}); });
  const auto member = open_member(area_, process.pid());
  ASSERT_TRUE(member);
  process.end();
  EXPECT_FALSE(member->lives());
  shared::u64 magic = 0;
  EXPECT_FALSE(member->files.read(member->area, &magic, sizeof magic));
}

}  // namespace
}  // namespace uprobe::test
