// SPDX-License-Identifier: MIT
#include "engine/inject/descriptor_room.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

constexpr rlim_t kOurs = 4;  // the most that the tool needs at one time

struct Open {
  rlim_t below = 0;  // the limit
  rlim_t end = 0;    // the highest open descriptor + 1
};

Open open_in(pid_t pid, rlim_t limit) {
  Open open;
  const std::string folder = procfs::path(pid, "fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return open;
  while (const dirent* entry = ::readdir(entries.get())) {
    if (entry->d_name[0] == '.') continue;
    const rlim_t number = std::strtoul(entry->d_name, nullptr, 10);
    if (number < limit) ++open.below;
    open.end = std::max(open.end, number + 1);
  }
  return open;
}

}  // namespace

DescriptorRoom::DescriptorRoom(pid_t pid) : pid_(pid) {
  if (::prlimit(pid, RLIMIT_NOFILE, nullptr, &before_) != 0) return;
  const Open open = open_in(pid, before_.rlim_cur);
  if (before_.rlim_cur == RLIM_INFINITY || before_.rlim_cur - open.below >= kOurs) return;
  const rlim_t enough = std::max(open.end, before_.rlim_cur) + kOurs;
  const rlimit raised{enough, std::max(before_.rlim_max, enough)};
  is_raised_ = ::prlimit(pid, RLIMIT_NOFILE, &raised, nullptr) == 0;
}

DescriptorRoom::~DescriptorRoom() {
  if (is_raised_) ::prlimit(pid_, RLIMIT_NOFILE, &before_, nullptr);
}

}  // namespace uprobe::control
