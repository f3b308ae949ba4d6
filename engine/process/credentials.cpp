// SPDX-License-Identifier: MIT
#include "engine/process/credentials.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/memory.h"
#include "engine/target/process_list.h"

namespace uprobe::control {
namespace {

Error senseless() { return Error{.code = Code::damaged, .text = "/proc/PID/status does not show its credentials"}; }

// The rest of the line that begins with `name`; empty: there is no such line.
std::string_view line_of(std::string_view status, std::string_view name) {
  for (std::size_t at = 0; at < status.size();) {
    const std::size_t end = std::min(status.find('\n', at), status.size());
    const std::string_view line = status.substr(at, end - at);
    if (line.starts_with(name)) return line.substr(name.size());
    at = end + 1;
  }
  return {};
}

// Numbers separated by blanks. False: there is something else in the text.
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

// Reads a file of /proc/PID, whose folder is open: the folder stands for one process, never for a later one with its id.
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

// Adds the namespace of the process that the text is about.
Result<Credentials> complete(Result<Credentials> parsed, std::optional<proxy::Owner> owner, const std::string& folder) {
  if (!parsed) return parsed;
  const std::string name = folder + "/ns/user";
  const auto user = proxy::status_of(owner, name);
  if (!user) return system_error(name, ESRCH);
  parsed->namespace_device = user->st_dev;
  parsed->user_namespace = user->st_ino;
  return parsed;
}

// `has_ended`: whether the thread is a zombie.
Result<Credentials> credentials_in(std::optional<proxy::Owner> owner, const std::string& path,
                                   bool* has_ended = nullptr) {
  const Fd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return system_error(path, errno);
  const auto status = read_in(folder.get(), "status");
  if (!status) return status.error();
  if (has_ended != nullptr) *has_ended = procfs::field(*status, "State").value_or("").starts_with('Z');
  auto found = complete(parse_credentials(*status), owner, path);
  // The path may lead to a later process with that id, the folder does not.
  if (::faccessat(folder.get(), "status", F_OK, 0) != 0) return system_error(path, errno);
  return found;
}

bool is_subset(std::uint64_t some, std::uint64_t all) { return (some & ~all) == 0; }

bool have_same_names(const Credentials& a, const Credentials& b) {
  return a.uids == b.uids && a.gids == b.gids && a.groups == b.groups;
}

bool have_same_namespace(const Credentials& a, const Credentials& b) {
  return a.namespace_device == b.namespace_device && a.user_namespace == b.user_namespace;
}

bool is_of(const Credentials& c, const Fd& user_namespace) {
  struct stat status {};
  return ::fstat(user_namespace.get(), &status) == 0 && status.st_dev == c.namespace_device &&
         status.st_ino == c.user_namespace;
}

// Whether the capability applies to a process: it is permitted in the process's user namespace or in one around it; or the
// effective user owns a namespace directly inside its own, which gives all capabilities there.
bool is_capable_over(const Credentials& c, std::uint64_t capability, pid_t pid) {
  constexpr int kMostNested = 33;  // of user namespaces (kernel/user_namespace.c)
  auto first = proxy::open_of(pid, procfs::path(pid, "ns/user"), O_RDONLY);
  Fd inner = first ? first.take() : Fd();
  for (int depth = 0; inner && depth < kMostNested; ++depth) {
    if (is_of(c, inner)) return is_subset(capability, c.permitted);
    Fd outer(::ioctl(inner.get(), NS_GET_PARENT));
    uid_t owner = 0;
    if (outer && is_of(c, outer) && ::ioctl(inner.get(), NS_GET_OWNER_UID, &owner) == 0 && owner == c.uids[1])
      return true;
    inner = std::move(outer);
  }
  return false;
}

// Whether real, effective and saved ids all have this value.
bool are_all(const std::array<std::uint32_t, 4>& ids, std::uint32_t id) {
  return ids[0] == id && ids[1] == id && ids[2] == id;
}

// Whether it can take any uid, gid and groups.
bool can_be_anyone(const Credentials& c) {
  constexpr std::uint64_t kSetgid = std::uint64_t{1} << 6, kSetuid = std::uint64_t{1} << 7;
  return is_subset(kSetgid | kSetuid, c.permitted);
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

// A first thread that has ended keeps the credentials that it had, whatever the others do.
Result<Credentials> credentials_of(pid_t pid) {
  bool has_ended = false;
  const auto owner = proxy::Foreign(pid).user();
  auto found = credentials_in(owner, procfs::path(pid), &has_ended);
  if (!has_ended) return found;
  for (const pid_t tid : target::threads_of(pid)) {
    auto of_thread = credentials_in(owner, procfs::path(tid), &has_ended);
    if (of_thread && !has_ended) return of_thread;
  }
  return found;
}

Result<Credentials> credentials_of_stopped(target::Target& target) {
  const auto status = target.status();
  if (!status) return status.error();
  return complete(parse_credentials(*status), proxy::Foreign(target.pid()).user(), procfs::path(target.pid()));
}

Result<Credentials> own_credentials() { return credentials_in({}, "/proc/self"); }

bool is_same_domain(const Credentials& a, const Credentials& b) {
  return have_same_namespace(a, b) && a.permitted == b.permitted && a.bounding == b.bounding &&
         (can_be_anyone(a) || have_same_names(a, b));
}

bool is_own_user(const Credentials& credentials) {
  const auto own = own_credentials();
  return own && have_same_namespace(*own, credentials) && are_all(credentials.uids, ::getuid());
}

bool is_within(const Credentials& lesser, const Credentials& greater) {
  return have_same_namespace(lesser, greater) && is_subset(lesser.permitted, greater.permitted) &&
         is_subset(lesser.bounding, greater.bounding) && (can_be_anyone(greater) || have_same_names(lesser, greater));
}

bool may_trace(pid_t tracer, pid_t tracee) {
  constexpr std::uint64_t kSysPtrace = std::uint64_t{1} << 19;
  const auto asks = credentials_of(tracer), is_asked = credentials_of(tracee);
  if (!asks || !is_asked) return false;
  const bool is_its_own = have_same_namespace(*asks, *is_asked) && are_all(is_asked->uids, asks->uids[0]) &&
                          are_all(is_asked->gids, asks->gids[0]) && is_subset(is_asked->permitted, asks->permitted);
  return is_its_own || is_capable_over(*asks, kSysPtrace, tracee);
}

bool has_gained(const Credentials& before, const Credentials& after) {
  return !have_same_namespace(before, after) || !have_same_names(before, after) ||
         !is_subset(after.permitted, before.permitted);
}

}  // namespace uprobe::control
