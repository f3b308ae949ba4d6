// SPDX-License-Identifier: MIT
#include "engine/search/file_look.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "engine/flow/followed_calls.h"
#include "engine/plan/unwinder_signs.h"

namespace uprobe::control {
namespace {

bool is_libunwind(const std::string& path) { return path.compare(path.rfind('/') + 1, 9, "libunwind") == 0; }

bool may_need_points(const LookOrder& order) {
  return is_libunwind(order.name) || plan::may_have_followed_calls(order.name, order.part.offset, order.part.bytes) ||
         (order.fears_unwinders && plan::may_unwind_by_itself(order.name));
}

FileLook not_followed(const std::string& file, const std::string& why) {
  return {.file = nullptr, .sites = {}, .why = file + ": its system calls are not followed: " + why};
}

}  // namespace

FileLook look_into(std::shared_ptr<const elf::ElfFile> file, bool ends_too) {
  auto sites = plan::system_call_sites(*file, ends_too);
  FileLook look = sites ? FileLook{.file = nullptr, .sites = sites.take(), .why = {}}
                        : not_followed(file->path(), sites.error().text);
  look.file = std::move(file);
  return look;
}

FileLook look_into(const LookOrder& order) {
  if (order.probed) return look_into(order.probed, order.ends_too);
  if (!order.name.empty() && !may_need_points(order)) return {};
  if (order.name.empty()) return not_followed(order.shown, "cannot be opened from this mount namespace");
  auto file = elf::ElfFile::open(order.name, elf::NamedBy::target);
  if (!file) return not_followed(order.shown, file.error().text);
  if (file->identity() != order.part.version.identity)
    return not_followed(order.shown, "it has changed since it was mapped");
  return look_into(std::make_shared<const elf::ElfFile>(file.take()), order.ends_too);
}

std::uint64_t work_of(const LookOrder& order) {
  constexpr std::uint64_t kTrust = 48;
  struct stat status {};
  if (order.name.empty() || ::stat(order.name.c_str(), &status) != 0) return 0;
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  const bool is_trusted =
      (status.st_uid == 0 || status.st_uid == ::geteuid()) && (status.st_mode & (S_IWOTH | S_IWGRP)) == 0;
  return (size + std::min(order.part.bytes, size)) / (is_trusted ? kTrust : 1);
}

}  // namespace uprobe::control
