// SPDX-License-Identifier: MIT
#include "engine/recording/blocks.h"

#include <cerrno>

namespace uprobe::recording {

namespace {

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
  if (head.version != kVersion)
    return refused(path, "is a recording of format " + std::to_string(head.version) +
                             ", and this uprobe-run reads format " + std::to_string(kVersion) + ": uprobe-run " +
                             tool_of(head) + " reads it");
  return Recording{file.take(), path};
}

Result<std::size_t> Blocks::read(void* to, std::size_t bytes) {
  const ssize_t got = read_at(recording_.file.fd, to, bytes, at_);
  if (got < 0) return unreadable(recording_.path);
  at_ += static_cast<std::size_t>(got);
  return static_cast<std::size_t>(got);
}

Error Blocks::damaged(const std::string& what) const {
  return refused(recording_.path, what + " at byte " + std::to_string(at_) + ": what is before it has been printed");
}

Result<std::optional<std::string_view>> Blocks::next() {
  BlockHead head;
  const auto got = read(&head, sizeof head);
  if (!got) return got.error();
  if (*got == 0) return std::optional<std::string_view>();
  if (*got < sizeof head) return damaged("the recording breaks off");
  if (head.mark != kBlockMark || head.bytes > kMostBlockBytes) return damaged("the recording is damaged");
  entries_.resize(head.bytes);
  const auto rest = read(entries_.data(), entries_.size());
  if (!rest) return rest.error();
  if (*rest < entries_.size()) return damaged("the recording breaks off");
  if (sum_of(reinterpret_cast<const std::uint8_t*>(entries_.data()), entries_.size()) != head.sum)
    return damaged("the recording is damaged");
  return std::optional<std::string_view>(entries_);
}

}  // namespace uprobe::recording
