#include "engine/control/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace uprobe::control {
namespace {

Error senseless() { return Error{.code = Code::damaged, .text = "/proc/PID/status does not show its credentials"}; }

// The rest of the line that begins with `name`; nothing: there is no such line.
std::string_view line_of(std::string_view status, std::string_view name) {
  for (std::size_t at = 0; at < status.size();) {
    const std::size_t end = std::min(status.find('\n', at), status.size());
    const std::string_view line = status.substr(at, end - at);
    if (line.starts_with(name)) return line.substr(name.size());
    at = end + 1;
  }
  return {};
}

// Numbers between blanks. False: something else is there.
bool read_numbers(std::string_view text, std::vector<std::uint32_t>& numbers) {
  while (true) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return true;
    text.remove_prefix(first);
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return false;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

bool read_ids(std::string_view text, std::array<std::uint32_t, 4>& ids) {
  std::vector<std::uint32_t> numbers;
  if (!read_numbers(text, numbers) || numbers.size() != ids.size()) return false;
  std::copy(numbers.begin(), numbers.end(), ids.begin());
  return true;
}

bool read_set(std::string_view text, std::uint64_t& set) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  text.remove_prefix(first);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), set, 16);
  return error == std::errc{} && end == text.data() + text.size();
}

// Of a file of /proc/PID, whose folder is open: the folder stands for one process and never for a later one with its id.
Result<std::string> read_in(int folder, const char* name) {
  const Fd file(::openat(folder, name, O_RDONLY | O_CLOEXEC));
  if (!file) return system_error(std::string("/proc/PID/") + name, errno);
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = ::read(file.get(), part, sizeof part)) != 0;) {
    if (size < 0) return system_error(std::string("/proc/PID/") + name, errno);
    text.append(part, static_cast<std::size_t>(size));
  }
  return text;
}

Result<Credentials> credentials_in(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return system_error(path, errno);
  const auto status = read_in(folder.get(), "status");
  if (!status) return status.error();
  auto credentials = parse_credentials(*status);
  if (!credentials) return credentials;
  struct stat user {};
  if (::fstatat(folder.get(), "ns/user", &user, 0) != 0) return system_error(path + "/ns/user", errno);
  credentials->namespace_device = user.st_dev;
  credentials->user_namespace = user.st_ino;
  return credentials;
}

bool is_subset(std::uint64_t some, std::uint64_t all) { return (some & ~all) == 0; }

bool have_same_names(const Credentials& a, const Credentials& b) {
  return a.uids == b.uids && a.gids == b.gids && a.groups == b.groups && a.namespace_device == b.namespace_device &&
         a.user_namespace == b.user_namespace;
}

// Root of its namespace, and nothing is kept from it. A capability that the kernel does not know is in no bounding set.
bool is_full_root(const Credentials& c) {
  constexpr std::uint64_t kFirstCapabilities = (std::uint64_t{1} << 38) - 1;  // up to audit_read, Linux 3.16
  const bool is_root = std::ranges::all_of(c.uids, [](std::uint32_t uid) { return uid == 0; });
  return is_root && c.permitted == c.bounding && is_subset(kFirstCapabilities, c.permitted);
}

}  // namespace

Result<Credentials> parse_credentials(const std::string& status) {
  Credentials found;
  const bool is_read = read_ids(line_of(status, "Uid:"), found.uids) && read_ids(line_of(status, "Gid:"), found.gids) &&
                       read_numbers(line_of(status, "Groups:"), found.groups) &&
                       read_set(line_of(status, "CapPrm:"), found.permitted) &&
                       read_set(line_of(status, "CapBnd:"), found.bounding);
  if (!is_read) return senseless();
  std::ranges::sort(found.groups);
  return found;
}

Result<Credentials> credentials_of(pid_t pid) { return credentials_in("/proc/" + std::to_string(pid)); }

Result<Credentials> own_credentials() { return credentials_in("/proc/self"); }

bool is_within(const Credentials& lesser, const Credentials& greater) {
  const bool same_namespace =
      lesser.namespace_device == greater.namespace_device && lesser.user_namespace == greater.user_namespace;
  if (!same_namespace || !is_subset(lesser.permitted, greater.permitted) ||
      !is_subset(lesser.bounding, greater.bounding))
    return false;
  return have_same_names(lesser, greater) || is_full_root(greater);
}

bool has_gained(const Credentials& before, const Credentials& after) {
  return !have_same_names(before, after) || !is_subset(after.permitted, before.permitted);
}

}  // namespace uprobe::control
