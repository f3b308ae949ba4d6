// SPDX-License-Identifier: MIT
#include "engine/generated/jit_dump.h"

#include <algorithm>
#include <cstring>

#include "engine/generated/program_file.h"
#include "engine/target/target.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kMostDump = std::uint64_t{16}
                                    << 30;  // of a file, most of which is skipped; the rest is not read
constexpr unsigned kSearchEvery = 10;       // looks, for a file that was not found

constexpr std::uint32_t kMagic = 0x4a695444, kVersion = 1;  // "JiTD"
constexpr std::uint64_t kHeader = 40, kMostHeader = 4096;
constexpr std::uint64_t kRecordHead = 16, kLoadHead = kRecordHead + 40, kMoveHead = kRecordHead + 48;
enum : std::uint32_t { kLoad = 0, kMove = 1 };

// `at` and the number's bytes are in the text.
template <class Number>
Number number_at(std::string_view text, std::size_t at) {
  Number number{};
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

// Process and thread (4 bytes each), an address, the address of the code, its length, its number; the name; the code.
std::optional<GeneratedFunction> made_by(std::string_view record) {
  const auto address = number_at<std::uint64_t>(record, kRecordHead + 16);
  const auto bytes = number_at<std::uint64_t>(record, kRecordHead + 24);
  const std::string_view rest = record.substr(kLoadHead);
  const std::size_t end = rest.find('\0');
  if (!is_range_of_code(address, bytes) || end == 0 || end == std::string_view::npos || end > kMostName) return {};
  return GeneratedFunction{address, bytes, rest.substr(0, end)};
}

// Process and thread, an address, the code's addresses before and after, its length, its number.
std::optional<MovedFunction> moved_by(std::string_view record) {
  const MovedFunction moved{.from = number_at<std::uint64_t>(record, kRecordHead + 16),
                            .to = number_at<std::uint64_t>(record, kRecordHead + 24),
                            .bytes = number_at<std::uint64_t>(record, kRecordHead + 32)};
  return is_range_of_code(moved.from, moved.bytes) && is_range_of_code(moved.to, moved.bytes) ? std::optional(moved)
                                                                                              : std::nullopt;
}

// "jit-812.dump", wherever it lies.
bool is_name_of_dump(std::string_view path) {
  constexpr std::string_view kBefore = "jit-", kAfter = ".dump";
  path.remove_prefix(path.rfind('/') + 1);
  if (!path.starts_with(kBefore) || !path.ends_with(kAfter) || path.size() <= kBefore.size() + kAfter.size())
    return false;
  path = path.substr(kBefore.size(), path.size() - kBefore.size() - kAfter.size());
  return path.find_first_not_of("0123456789") == std::string_view::npos;
}

// The file that the process shows by mapping it; empty: none.
std::string find_dump(pid_t pid) {
  const auto files = target::ProcessFiles::open(pid);
  const auto maps = files ? files->maps() : Result<std::vector<target::Mapping>>(Error{});
  if (!maps) return {};
  const auto found = std::find_if(maps->begin(), maps->end(), [](const target::Mapping& m) {
    return m.executable && m.is_file() && is_name_of_dump(m.path);
  });
  return found == maps->end() ? std::string() : found->path;
}

}  // namespace

std::optional<std::uint64_t> parse_jit_header(std::string_view text) {
  if (text.size() < kHeader || number_at<std::uint32_t>(text, 0) != kMagic ||
      number_at<std::uint32_t>(text, 4) != kVersion)
    return {};
  const std::uint64_t bytes = number_at<std::uint32_t>(text, 8);
  return bytes >= kHeader && bytes <= kMostHeader ? std::optional(bytes) : std::nullopt;
}

std::optional<JitRecord> parse_jit_record(std::string_view text) {
  if (text.size() < kRecordHead) return {};
  const auto kind = number_at<std::uint32_t>(text, 0);
  JitRecord record{.bytes = number_at<std::uint32_t>(text, 4)};
  if (record.bytes < kRecordHead) return {};
  const std::string_view seen = text.substr(0, record.bytes);
  if (kind == kLoad && seen.size() > kLoadHead) record.made = made_by(seen);
  if (kind == kMove && seen.size() >= kMoveHead) record.moved = moved_by(seen);
  return record;
}

void JitDump::rewind() {
  at_ = 0;
  is_damaged_ = false;
}

std::optional<RegularFile> JitDump::open() {
  if (path_.empty() && looks_++ % kSearchEvery == 0) path_ = find_dump(pid_);
  if (path_.empty()) return {};
  auto file = open_of_program(pid_, path_);
  if (!file) path_.clear();
  return file;
}

// A record that does not end in the file yet is left for the next look. False: there is no more.
bool JitDump::read_part(const RegularFile& file, const Show& show, const Move& move) {
  const auto size = std::min(static_cast<std::uint64_t>(file.about.st_size), kMostDump);
  std::string part(kPart, '\0');
  const ssize_t bytes = at_ < size ? read_at(file.fd, part.data(), part.size(), at_) : 0;
  part.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  const std::string_view text(part);
  std::uint64_t begin = 0;
  if (at_ == 0 && !text.empty()) {
    const auto header = parse_jit_header(text);
    is_damaged_ = !header && text.size() >= kHeader;
    if (!header) return false;
    begin = *header;
  }
  while (begin < text.size()) {
    const bool is_seen = text.size() - begin >= kJitRecordSeen || at_ + text.size() >= size;
    if (!is_seen) break;
    const auto record = parse_jit_record(text.substr(begin));
    is_damaged_ = !record && text.size() - begin >= kRecordHead;
    if (!record || at_ + begin + record->bytes > size) return at_ += begin, false;
    if (record->made) show(*record->made);
    if (record->moved) move(*record->moved);
    begin += record->bytes;
  }
  at_ += begin;
  return begin != 0 && at_ < size;
}

void JitDump::read(const std::function<void()>& begins_anew, const Show& show, const Move& move) {
  const auto file = open();
  if (!file) return;
  const bool is_other = file->about.st_dev != device_ || file->about.st_ino != inode_;
  if (is_other || static_cast<std::uint64_t>(file->about.st_size) < at_) {
    rewind();
    begins_anew();
  }
  device_ = file->about.st_dev, inode_ = file->about.st_ino;
  for (int parts = 0; !is_damaged_ && parts < kMostParts && read_part(*file, show, move); ++parts) {
  }
}

}  // namespace uprobe::control
