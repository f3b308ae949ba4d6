// SPDX-License-Identifier: MIT
// Large files are looked into by turns of their processes' owners, each once, and no more of an owner's than there is room for.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "engine/search/file_search.h"

namespace uprobe::control {
namespace {

constexpr FileSearch::Owner kFlooder = {1000}, kOther = {1001};

std::shared_ptr<FileSearch::Job> job_for(const std::string& name) {
  LookOrder order;
  order.name = "/nowhere/" + name;
  return std::make_shared<FileSearch::Job>(order);
}

class FileSearchTest : public ::testing::Test {
 protected:
  // The thread waits after the first job until go() is called.
  FileSearchTest() : search_([this] { after_a_job(); }) {
    EXPECT_TRUE(search_.add(kFlooder, first_));
    has_begun_.get_future().wait();
  }
  void after_a_job() {
    const int done = ++done_;
    if (watched_ && watched_->is_done && done_with_watched_ == 0) done_with_watched_ = done;
    if (done != 1) return;
    has_begun_.set_value();
    may_go_on_.get_future().wait();
  }
  void go() {
    may_go_on_.set_value();
    is_going_ = true;
  }
  ~FileSearchTest() override {
    if (!is_going_) go();
  }

  std::atomic<int> done_{0};
  std::shared_ptr<FileSearch::Job> watched_;  // set before go()
  std::atomic<int> done_with_watched_{0};     // how many jobs had been done with it
  bool is_going_ = false;
  std::promise<void> has_begun_, may_go_on_;
  std::shared_ptr<FileSearch::Job> first_ = job_for("first");
  FileSearch search_;
};

TEST_F(FileSearchTest, UsersTakeTurns) {
  FileSearch::Jobs flood;
  for (int i = 0; i < 100; ++i) flood.push_back(job_for(std::to_string(i)));
  for (const auto& job : flood) ASSERT_TRUE(search_.add(kFlooder, job));
  const auto other = job_for("other");
  ASSERT_TRUE(search_.add(kOther, other));
  EXPECT_FALSE(FileSearch::is_done({other}));
  watched_ = other;
  go();
  while (!FileSearch::is_done(flood) || done_with_watched_ == 0) std::this_thread::yield();
  EXPECT_LE(done_with_watched_, 3);  // the other user's turn comes after one job of the flood at most
}

TEST_F(FileSearchTest, AJobThatTwoUsersWaitForIsDoneOnce) {
  const auto both = job_for("both"), last = job_for("last");
  ASSERT_TRUE(search_.add(kFlooder, both));
  ASSERT_TRUE(search_.add(kOther, both));
  ASSERT_TRUE(search_.add(kOther, last));
  go();
  while (!FileSearch::is_done({both, last})) std::this_thread::yield();
  while (done_ < 3) std::this_thread::yield();
  EXPECT_EQ(done_, 3);
}

TEST_F(FileSearchTest, AUserHasRoomForSoManyJobs) {
  int room = 0;
  while (room < 5000 && search_.add(kFlooder, job_for("x"))) ++room;
  EXPECT_EQ(room, 1024);
  EXPECT_TRUE(search_.add(kOther, job_for("x")));
}

}  // namespace
}  // namespace uprobe::control
