// SPDX-License-Identifier: MIT
#include "engine/generated/perf_map.h"

#include <algorithm>
#include <charconv>

#include "engine/base/regular_file.h"
#include "engine/generated/program_file.h"
#include "engine/target/process_list.h"

namespace uprobe::control {
namespace {

constexpr std::size_t kKept = 256;

// A number in hexadecimal digits, perhaps after "0x", and the blanks after it.
std::optional<std::uint64_t> take_number(std::string_view& line) {
  if (line.starts_with("0x")) line.remove_prefix(2);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number, 16);
  if (error != std::errc{}) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  const std::size_t name = line.find_first_not_of(' ');
  if (name == 0 || name == std::string_view::npos) return std::nullopt;
  line.remove_prefix(name);
  return number;
}

std::optional<RegularFile> open_map(pid_t pid) {
  const auto ids = target::ids_of_thread(pid, pid);
  if (ids.empty()) return std::nullopt;
  return open_of_program(pid, "/tmp/perf-" + std::to_string(ids.back()) + ".map");
}

}  // namespace

std::optional<GeneratedFunction> parse_perf_map_line(std::string_view line) {
  const auto address = take_number(line);
  const auto bytes = address ? take_number(line) : std::nullopt;
  while (line.ends_with(' ') || line.ends_with('\r')) line.remove_suffix(1);
  if (!bytes || !is_range_of_code(*address, *bytes)) return std::nullopt;
  if (line.empty() || line.size() > kMostName) return std::nullopt;
  return GeneratedFunction{*address, *bytes, line};
}

void PerfMap::rewind() {
  at_ = 0;
  end_.clear();
}

// Whether what was read is still there, as far as its end shows that.
bool PerfMap::goes_on(const Fd& file) const {
  std::string now(end_.size(), '\0');
  const ssize_t bytes = read_at(file, now.data(), now.size(), at_ - end_.size());
  return bytes == static_cast<ssize_t>(end_.size()) && now == end_;
}

// A line that has no end yet is left for the next look, unless it is longer than any name. False: there is no more.
bool PerfMap::read_part(const Fd& file, std::uint64_t& budget,
                        const std::function<void(const GeneratedFunction&)>& show) {
  std::string part(kPart, '\0');
  const ssize_t bytes = at_ < kMostBytes ? read_at(file, part.data(), part.size(), at_) : 0;
  part.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  budget -= std::min<std::uint64_t>(budget, part.size());
  const bool is_full = part.size() == kPart;
  if (const std::size_t end = part.rfind('\n'); end != std::string::npos)
    part.resize(end + 1);
  else if (!is_full)
    return false;
  for (std::size_t begin = 0; begin < part.size();) {
    const std::size_t end = std::min(part.find('\n', begin), part.size());
    if (const auto function = parse_perf_map_line(std::string_view(part).substr(begin, end - begin))) show(*function);
    begin = end + 1;
  }
  at_ += part.size();
  end_ = part.substr(part.size() - std::min(part.size(), kKept));
  return is_full;
}

bool PerfMap::read(std::uint64_t& budget, const std::function<void()>& begins_anew,
                   const std::function<void(const GeneratedFunction&)>& show) {
  const auto file = open_map(pid_);
  if (!file) return false;
  const bool is_other = file->about.st_dev != device_ || file->about.st_ino != inode_;
  if (is_other || !goes_on(file->fd)) {
    rewind();
    begins_anew();
  }
  device_ = file->about.st_dev, inode_ = file->about.st_ino;
  while (budget != 0 && read_part(file->fd, budget, show)) {
  }
  return true;
}

}  // namespace uprobe::control
