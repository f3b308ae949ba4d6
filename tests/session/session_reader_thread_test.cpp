// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/session/reader_thread.h"

namespace uprobe {
namespace {

class ReaderThreadTest : public testing::Test {
 protected:
  OwnRecords own_;
  std::atomic<int> reads_{0};
  ReaderThread reader_{own_, [this] {
                         ++reads_;
                         return Ending{.code = 7};
                       }};
};

TEST_F(ReaderThreadTest, TheThreadOfRunReadsUntilThereIsAClient) {
  const auto turn = reader_.take_over();
  EXPECT_FALSE(reader_.has_begun());
  EXPECT_FALSE(reader_.is_there());
  EXPECT_EQ(reads_, 0);
}

TEST_F(ReaderThreadTest, AClientStartsTheThreadBetweenTurns) {
  reader_.ask();
  EXPECT_TRUE(reader_.is_there());
  EXPECT_EQ(reader_.join().code, 7);
  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(own_.queue().wait(std::chrono::milliseconds(0)), true) << "there is a queue, and it is open";
}

TEST_F(ReaderThreadTest, DuringATurnTheThreadOfRunStartsIt) {
  auto turn = reader_.take_over();
  std::thread([this] { reader_.ask(); }).join();
  EXPECT_FALSE(reader_.is_there());
  EXPECT_TRUE(reader_.has_begun());
  EXPECT_TRUE(reader_.has_begun()) << "once";
  turn.unlock();
  EXPECT_EQ(reader_.join().code, 7);
  EXPECT_EQ(reads_, 1);
}

TEST_F(ReaderThreadTest, NothingIsHandedOnWhenNoOtherThreadWaits) {
  int calls = 0;
  reader_.serve_settling([&] { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST_F(ReaderThreadTest, AThreadWaitsUntilRecordsAreHandedOn) {
  std::atomic<bool> is_handed_on{false}, was_handed_on{false}, is_back{false};
  std::thread waiter([&] {
    EXPECT_TRUE(reader_.settle(std::chrono::minutes(1)));
    was_handed_on = is_handed_on.load();
    is_back = true;
  });
  int calls = 0;
  while (!is_back) {
    reader_.serve_settling([&] {
      ++calls;
      is_handed_on = true;
    });
    std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(was_handed_on);
}

TEST_F(ReaderThreadTest, AReaderThatIsLateIsTold) {
  EXPECT_FALSE(reader_.settle(std::chrono::milliseconds(1)));
  reader_.end_settling();
  EXPECT_TRUE(reader_.settle(std::chrono::milliseconds(0))) << "no thread reads any more";
}

}  // namespace
}  // namespace uprobe
