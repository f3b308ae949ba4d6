// SPDX-License-Identifier: MIT
// Entries that are found again, and all that makes one count as not being there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/facts/kept_facts.h"

namespace uprobe::facts {
namespace {

namespace fs = std::filesystem;
using Facts = std::vector<std::uint8_t>;

constexpr ContentKey kFile{{1, 2}}, kOther{{1, 3}};

std::optional<Facts> found(const ContentKey& file, std::string_view kind) {
  const auto bytes = find(file, kind);
  return bytes ? std::optional(Facts(bytes->span().begin(), bytes->span().end())) : std::nullopt;
}

class KeptFacts : public testing::Test {
 protected:
  KeptFacts() {
    std::string made = testing::TempDir() + "uprobe-facts.XXXXXX";
    home_ = ::mkdtemp(made.data());
    folder_ = home_ / "caches" / "uprobe-run";
    keep_facts_in(folder_);
  }
  ~KeptFacts() override {
    keep_facts_in("");
    fs::remove_all(home_);
  }
  fs::path entry() const {
    std::vector<fs::path> all;
    for (const auto& one : fs::directory_iterator(folder_))
      if (one.path().filename() != "secret") all.push_back(one.path());
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? fs::path() : all[0];
  }
  static void change(const fs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old ^ 1));
  }

  fs::path home_, folder_;
  const Facts facts_ = {1, 2, 3, 4, 5};
};

TEST_F(KeptFacts, AreFoundAgain) {
  EXPECT_FALSE(find(kFile, "flow"));
  keep(kFile, "flow", facts_);
  EXPECT_EQ(found(kFile, "flow"), facts_);
  EXPECT_FALSE(find(kOther, "flow"));
  EXPECT_FALSE(find(kFile, "calls"));
  keep(kFile, "flow", Facts{9});
  EXPECT_EQ(found(kFile, "flow"), Facts{9});
  keep(kFile, "calls", {});
  EXPECT_EQ(found(kFile, "calls"), Facts{});
}

TEST_F(KeptFacts, AreTheUsersOwn) {
  keep(kFile, "flow", facts_);
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(entry()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(KeptFacts, AreNoneWhereNothingIsKept) {
  keep_facts_in("");
  EXPECT_FALSE(key_of_file(facts_, 0));
  keep(kFile, "flow", facts_);
  EXPECT_FALSE(find(kFile, "flow"));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(KeptFacts, AnyChangedByteCounts) {
  keep(kFile, "flow", facts_);
  const fs::path path = entry();
  for (std::streamoff at = 0; at < static_cast<std::streamoff>(fs::file_size(path)); ++at) {
    change(path, at);
    EXPECT_FALSE(find(kFile, "flow")) << at;
    change(path, at);
  }
  EXPECT_EQ(found(kFile, "flow"), facts_);
}

TEST_F(KeptFacts, ACutOrLongerEntryIsNone) {
  keep(kFile, "flow", facts_);
  const fs::path path = entry();
  const auto size = fs::file_size(path);
  for (const std::uintmax_t other : {std::uintmax_t{0}, std::uintmax_t{10}, size - 1, size + 1}) {
    keep(kFile, "flow", facts_);
    fs::resize_file(path, other);
    EXPECT_FALSE(find(kFile, "flow")) << other;
  }
}

TEST_F(KeptFacts, AnEntryUnderAnotherNameIsNone) {
  keep(kFile, "flow", facts_);
  const fs::path first = entry();
  keep(kOther, "flow", Facts{9});
  for (const auto& one : fs::directory_iterator(folder_))
    if (one.path() != first && one.path().filename() != "secret")
      fs::copy_file(one.path(), first, fs::copy_options::overwrite_existing);
  fs::permissions(first, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(find(kFile, "flow"));
}

TEST_F(KeptFacts, WhatOthersMayReadOrWriteIsNone) {
  keep(kFile, "flow", facts_);
  const fs::path path = entry();
  for (const fs::perms more : {fs::perms::group_write, fs::perms::others_read}) {
    fs::permissions(path, more, fs::perm_options::add);
    EXPECT_FALSE(find(kFile, "flow"));
    fs::permissions(path, more, fs::perm_options::remove);
    fs::permissions(folder_, more, fs::perm_options::add);
    EXPECT_FALSE(find(kFile, "flow"));
    keep(kOther, "flow", facts_);
    fs::permissions(folder_, more, fs::perm_options::remove);
    EXPECT_FALSE(find(kOther, "flow"));
  }
  EXPECT_EQ(found(kFile, "flow"), facts_);
}

TEST_F(KeptFacts, LinksAndFifosAreNone) {
  keep(kFile, "flow", facts_);
  const fs::path path = entry(), there = home_ / "there";
  fs::rename(path, there);
  fs::create_symlink(there, path);
  EXPECT_FALSE(find(kFile, "flow"));
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(find(kFile, "flow"));
  fs::remove(path);
  fs::rename(there, path);
  const fs::path moved = home_ / "moved";
  fs::rename(folder_, moved);
  fs::create_directory_symlink(moved, folder_);
  EXPECT_FALSE(find(kFile, "flow"));
}

TEST_F(KeptFacts, AnotherUsersFolderIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's folder takes root to make";
  constexpr uid_t kStranger = 65534;
  keep(kFile, "flow", facts_);
  ASSERT_EQ(::chown(folder_.c_str(), kStranger, kStranger), 0);
  EXPECT_FALSE(find(kFile, "flow"));
  keep(kOther, "flow", facts_);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2) << "the secret and the entry";
  fs::remove_all(folder_.parent_path());
  keep_facts_in(folder_);
  ASSERT_EQ(::chown(home_.c_str(), kStranger, kStranger), 0);
  keep(kFile, "flow", facts_);
  EXPECT_FALSE(fs::exists(folder_.parent_path())) << "a folder that the other user could not write to";
}

TEST_F(KeptFacts, NoFolderIsMadeWhereALinkLeads) {
  const fs::path there = home_ / "there";
  fs::create_directory(there);
  fs::create_directory_symlink(there, home_ / "caches");
  keep(kFile, "flow", facts_);
  EXPECT_TRUE(fs::is_empty(there));
  keep_facts_in(home_ / "caches" / "more" / "uprobe-run");
  keep(kFile, "flow", facts_);
  EXPECT_TRUE(fs::is_empty(there));
}

TEST_F(KeptFacts, AnotherSecretHasOtherEntries) {
  const auto key = key_of_file(facts_, 1);
  ASSERT_TRUE(key);
  EXPECT_EQ(key_of_file(facts_, 1), key);
  EXPECT_NE(key_of_file(facts_, 2), key);
  EXPECT_NE(key_of_file(Facts{1, 2, 3, 4, 6}, 1), key);
  keep(*key, "flow", facts_);
  keep_facts_in(folder_);
  EXPECT_EQ(key_of_file(facts_, 1), key) << "the next run has the same";
  fs::remove(folder_ / "secret");
  keep_facts_in(folder_);
  EXPECT_NE(key_of_file(facts_, 1), key);
  EXPECT_FALSE(find(*key, "flow"));
}

TEST_F(KeptFacts, TheOldestGoWhereThereAreTooMany) {
  keep(kFile, "flow", facts_);
  const fs::path first = entry(), stranger = folder_ / "notes";
  std::ofstream(stranger) << "not an entry";
  const auto old = std::vector<std::string>{"new-7", std::string(32, 'a') + "-flow"};
  for (const std::string& name : old) {
    std::ofstream(folder_ / name) << "";
    fs::resize_file(folder_ / name, kMostKept / 2 + 1);  // it takes no room
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - std::chrono::hours(name == "new-7" ? 2 : 1));
  }
  keep(kOther, "flow", facts_);
  EXPECT_FALSE(fs::exists(folder_ / old[0]));
  EXPECT_TRUE(fs::exists(folder_ / old[1]));
  EXPECT_TRUE(fs::exists(first));
  EXPECT_TRUE(fs::exists(stranger));
}

}  // namespace
}  // namespace uprobe::facts
