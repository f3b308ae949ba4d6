// SPDX-License-Identifier: MIT
#include "engine/recording/blocks.h"

#include <fcntl.h>

#include <cerrno>

namespace uprobe::recording {

namespace {

Error refused(const std::string& path, const std::string& text) {
  return Error{.code = Code::refused, .text = text, .where = path};
}

std::string tool_of(const FileHead& head) {
  const std::string tool(head.tool.begin(), head.tool.end());
  const std::string shown = tool.substr(0, tool.find('\0'));
  return shown.find_first_not_of("0123456789.") == std::string::npos && !shown.empty() ? shown : "of another version";
}

}  // namespace

Result<Blocks> Blocks::open(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    Error error = system_error("cannot be read", errno);
    error.where = path;
    return error;
  }
  Blocks blocks(std::move(file), path);
  FileHead head;
  const auto got = blocks.read(&head, sizeof head);
  if (!got) return got.error();
  if (*got < sizeof head || head.magic != kMagic) return refused(path, "is not a recording of uprobe-run");
  if (head.version != kVersion)
    return refused(path, "is a recording of format " + std::to_string(head.version) +
                             ", and this uprobe-run reads format " + std::to_string(kVersion) + ": uprobe-run " +
                             tool_of(head) + " reads it");
  return blocks;
}

Result<std::size_t> Blocks::read(void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(file_.get(), static_cast<char*>(to) + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      Error error = system_error("cannot be read", errno);
      error.where = path_;
      return error;
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  at_ += done;
  return done;
}

Error Blocks::damaged(const std::string& what) const {
  return refused(path_, what + " at byte " + std::to_string(at_) + ": what is before it has been printed");
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
