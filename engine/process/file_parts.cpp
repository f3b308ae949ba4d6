// SPDX-License-Identifier: MIT
#include "engine/process/file_parts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

using target::SystemCall;

// The calls for several files, and the names that they open.
class Opening {
 public:
  explicit Opening(Addr names_at) : names_at_(names_at) {}

  void add(const FileParts& file) {
    const std::size_t open = calls_.size();
    calls_.push_back(open_call(file));
    for (const FilePart& part : file.parts) {
      calls_.push_back(
          target::map_call(part.at, part.bytes, part.protection, file.sharing | MAP_FIXED, -1, part.offset));
      calls_.back().takes = 4, calls_.back().from = open;
    }
    calls_.push_back({.number = SYS_close, .arguments = {}, .takes = 0, .from = open});
  }
  void add(std::span<const SystemCall> others) { calls_.insert(calls_.end(), others.begin(), others.end()); }

  Status make(target::Target& target, std::size_t scratch_bytes) {
    if (names_.size() > scratch_bytes) return Error{.code = Code::limit, .text = "path too long"};
    RETURN_IF_ERROR(target.write(names_at_, names_.data(), names_.size()));
    RETURN_IF_ERROR(target.system_calls(calls_));
    const auto is_mapping = [](const SystemCall& call) { return call.number == SYS_mmap; };
    for (const SystemCall& call : calls_)
      if (is_mapping(call) && call.has_failed()) return target::mapped_by(call, "files of the tool").error();
    return ok();
  }

 private:
  SystemCall open_call(const FileParts& file) {
    const std::string tools = procfs::path(::getpid(), "fd/") + std::to_string(file.fd);
    const Addr name = names_at_ + names_.size();
    names_.append(file.path.empty() ? tools : file.path).push_back('\0');
    constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
    const int access = file.path.empty() ? ::fcntl(file.fd, F_GETFL) & O_ACCMODE : O_RDONLY | O_NONBLOCK;
    return {.number = SYS_openat, .arguments = {kHere, name.value, static_cast<std::uint64_t>(access | O_CLOEXEC)}};
  }

  Addr names_at_;
  std::string names_;
  std::vector<SystemCall> calls_;
};

}  // namespace

std::vector<MappedRange> ranges_of(const FileParts& file) {
  std::vector<MappedRange> ranges;
  ranges.reserve(file.parts.size());
  for (const FilePart& part : file.parts) ranges.push_back({part.at, part.bytes});
  return ranges;
}

Status map_parts(target::Target& target, const FileParts& file, int number, const std::string& what) {
  for (const FilePart& part : file.parts) {
    auto made = target::map_memory(target, part.at, part.bytes, part.protection, file.sharing | MAP_FIXED, number,
                                   part.offset, what);
    if (!made) return made.error();
  }
  return ok();
}

Status map_at_once(target::Target& target, Addr scratch, std::size_t scratch_bytes, std::span<const FileParts> files,
                   std::span<const SystemCall> others) {
  if (!target.is_new_program() || !shares_our_view(target.pid()))
    return Error{.code = Code::refused, .text = "the program cannot open the tool's files by name"};
  Opening opening(scratch);
  for (const FileParts& file : files) opening.add(file);
  opening.add(others);
  RETURN_IF_ERROR(opening.make(target, scratch_bytes));
  for (const FileParts& file : files) RETURN_IF_ERROR(check_mapped(target, ranges_of(file), file.fd));
  return ok();
}

}  // namespace uprobe::control
