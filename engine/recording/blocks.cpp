// SPDX-License-Identifier: MIT
#include "engine/recording/blocks.h"

#include <algorithm>
#include <cerrno>

namespace uprobe::recording {

namespace {

// Of the largest block of each lane, all together: they are in memory at the same time.
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;

Error refused(const std::string& path, const std::string& text) {
  return Error{.code = Code::refused, .text = text, .where = path};
}

Error unreadable(const std::string& path) {
  Error error = system_error("cannot be read", errno);
  error.where = path;
  return error;
}

std::string tool_of(const FileHead& head) {
  const std::string tool(head.tool.begin(), head.tool.end());
  const std::string shown = tool.substr(0, tool.find('\0'));
  return shown.find_first_not_of("0123456789.") == std::string::npos && !shown.empty() ? shown : "of another version";
}

bool is_good(const BlockHead& head) {
  return head.mark == kBlockMark && head.bytes <= kMostBlockBytes && head.lane < kMostLanes && head.zero == 0;
}

}  // namespace

Result<Recording> open_recording(const std::string& path) {
  auto file = open_regular(path);
  if (!file && file.error().code == Code::refused)
    return Error{.code = Code::usage, .text = file.error().text + ": a recording is a regular file", .where = path};
  if (!file) return file.error();
  FileHead head;
  const ssize_t got = read_at(file->fd, &head, sizeof head, 0);
  if (got < 0) return unreadable(path);
  if (static_cast<std::size_t>(got) < sizeof head || head.magic != kMagic)
    return refused(path, "is not a recording of uprobe-run");
  if (head.version < kOldestVersion || head.version > kVersion)
    return refused(path, "is a recording of format " + std::to_string(head.version) +
                             ", and this uprobe-run reads the formats " + std::to_string(kOldestVersion) + " to " +
                             std::to_string(kVersion) + ": uprobe-run " + tool_of(head) + " reads it");
  return Recording{file.take(), path};
}

Result<Blocks> Blocks::of(const Recording& recording) {
  Blocks blocks(recording);
  RETURN_IF_ERROR(blocks.find_blocks());
  RETURN_IF_ERROR(blocks.check_memory());
  return blocks;
}

Result<std::size_t> Blocks::read_at(std::uint64_t at, void* to, std::size_t bytes) const {
  const ssize_t got = uprobe::read_at(recording_->file.fd, to, bytes, at);
  if (got < 0) return unreadable(recording_->path);
  return static_cast<std::size_t>(got);
}

Error Blocks::damaged(std::uint64_t at, const std::string& what) const {
  return refused(recording_->path, what + " at byte " + std::to_string(at) + ": what is before it has been printed");
}

// What a recorder adds to the file after it was opened does not count.
Status Blocks::find_blocks() {
  const auto size = static_cast<std::uint64_t>(recording_->file.about.st_size);
  for (std::uint64_t at = sizeof(FileHead); at < size;) {
    BlockHead head;
    const auto got = read_at(at, &head, sizeof head);
    if (!got) return got.error();
    const bool is_whole = *got == sizeof head;
    if (is_whole && !is_good(head)) return end_ = damaged(at), ok();
    if (!is_whole || size - at < sizeof head + head.bytes) return end_ = damaged(at, "the recording breaks off"), ok();
    lanes_[head.lane].push_back({.at = at, .bytes = head.bytes, .sum = head.sum});
    at += sizeof head + head.bytes;
  }
  return ok();
}

Status Blocks::check_memory() const {
  std::uint64_t needed = 0;
  for (const auto& [lane, places] : lanes_) needed += std::ranges::max(places, {}, &BlockPlace::bytes).bytes;
  return needed <= kMostMemory ? ok() : Status(refused(recording_->path, "its blocks are too large to be sorted"));
}

void Blocks::end_at(std::uint64_t at) {
  for (auto& [lane, places] : lanes_) std::erase_if(places, [&](const BlockPlace& place) { return place.at >= at; });
  end_ = damaged(at);
}

Status Blocks::read(std::uint32_t lane, const BlockPlace& place, std::string& entries) const {
  entries.resize(place.bytes);
  const auto got = read_at(place.at + sizeof(BlockHead), entries.data(), entries.size());
  if (!got) return got.error();
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(entries.data());
  if (*got < entries.size() || sum_of(bytes, entries.size(), lane) != place.sum) return damaged(place.at);
  return ok();
}

}  // namespace uprobe::recording
