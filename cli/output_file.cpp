// SPDX-License-Identifier: MIT
#include "cli/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace uprobe::cli {
namespace {

constexpr int kMostLinks = 40;  // as in the kernel

// In a user namespace without all users, those that it lacks, root among them, appear as this one.
bool is_unmapped_root(uid_t user) {
  static const uid_t unmapped = [] {
    const auto map = read_file("/proc/self/uid_map", 1 << 16), number = read_file("/proc/sys/kernel/overflowuid", 64);
    const bool has_all = !map || map->find("4294967295") != std::string::npos;
    return has_all || !number ? 0 : static_cast<uid_t>(std::strtoul(number->c_str(), nullptr, 10));
  }();
  return unmapped != 0 && user == unmapped;
}

// Names that root and this user have made are their own choice.
bool is_trusted(uid_t user) { return user == 0 || user == ::geteuid() || is_unmapped_root(user); }

// Whether others can make, remove and exchange names in the folder. Members of the user's own group (with the user's name and
// number) do not count as others.
bool is_open_to_others(const struct stat& folder) {
  if (!is_trusted(folder.st_uid) || (folder.st_mode & S_IWOTH) != 0) return true;
  const bool is_own_group = folder.st_gid == 0 || (folder.st_gid == ::getegid() && folder.st_gid == ::geteuid());
  return (folder.st_mode & S_IWGRP) != 0 && !is_own_group;
}

bool is_kernels(int folder) {
  struct statfs facts {};
  return ::fstatfs(folder, &facts) == 0 && facts.f_type == PROC_SUPER_MAGIC;
}

Error refused(const std::string& path, std::string why) {
  return Error{.code = Code::refused,
               .text = "not written to: " + std::move(why),
               .where = path,
               .help = "others can change its folder: name another file, or remove this one"};
}

Error failed(const std::string& path, int err) {
  Error error = system_error("cannot write to it", err);
  error.where = path;
  return error;
}

// Splits off the first name: "a/b" -> "a", "b". The rest is empty after the last name.
std::string take_name(std::string& path) {
  const std::size_t begin = path.find_first_not_of('/');
  path.erase(0, begin == std::string::npos ? path.size() : begin);
  const std::size_t end = path.find('/');
  std::string name = path.substr(0, end);
  const std::size_t next = end == std::string::npos ? end : path.find_first_not_of('/', end);
  path.erase(0, next == std::string::npos ? path.size() : next);
  return name;
}

// The end of a path: a folder and the name in it, which is not a link, or does not exist yet.
struct Place {
  Fd folder;
  std::string name;
  bool is_open = false;    // others can change the folder
  bool is_direct = false;  // a kernel link to a process's open file: nothing more is followed
  bool is_folder = false;  // the path ends in a slash, or in "." or ".."
};

class Walk {
 public:
  explicit Walk(const std::string& path) : path_(path), rest_(path) {}

  Result<Place> run() {
    RETURN_IF_ERROR(go_to(rest_[0] == '/' ? "/" : "."));
    for (int links = 0;;) {
      const bool ends_in_slash = !rest_.empty() && rest_.back() == '/';
      std::string name = take_name(rest_);
      const bool is_last = rest_.empty();
      if (name.empty() || (is_last && (ends_in_slash || name == "." || name == "..")))
        return Place{.folder = {}, .name = {}, .is_folder = true};
      std::string target;
      struct stat facts {};
      if (::fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT || !is_last) return failed(path_, errno);
      } else if (S_ISLNK(facts.st_mode)) {
        if (is_open_ && !is_trusted(facts.st_uid)) return refused(path_, "another user's link leads there");
        if (is_open_ && is_last) return refused(path_, "it is a link");
        if (is_kernels(folder_.get())) {
          if (is_last) return end_at(std::move(name), true);
        } else {
          if (++links > kMostLinks) return failed(path_, ELOOP);
          if (!read_link(name, target)) return failed(path_, errno);
        }
      }
      if (!target.empty()) {
        rest_ = target + (is_last ? "" : "/" + rest_);
        if (target[0] != '/') continue;
        RETURN_IF_ERROR(go_to("/"));
      } else if (is_last) {
        return end_at(std::move(name), false);
      } else if (Status entered = enter(name); !entered) {
        return entered.error();
      }
    }
  }

 private:
  Result<Place> end_at(std::string name, bool is_direct) {
    return Place{std::move(folder_), std::move(name), is_open_, is_direct, false};
  }

  bool read_link(const std::string& name, std::string& target) {
    std::array<char, PATH_MAX> text{};
    const ssize_t size = ::readlinkat(folder_.get(), name.c_str(), text.data(), text.size());
    if (size > 0) target.assign(text.data(), static_cast<std::size_t>(size));
    return size > 0;
  }

  Status go_to(const char* folder) {
    folder_ = Fd(::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC));
    return look();
  }

  // The only links left to follow here are the kernel's.
  Status enter(const std::string& name) {
    const int follow = is_kernels(folder_.get()) ? 0 : O_NOFOLLOW;
    Fd next(::openat(folder_.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | follow));
    if (!next) return failed(path_, errno);
    folder_ = std::move(next);
    return look();
  }

  Status look() {
    struct stat facts {};
    if (!folder_ || ::fstat(folder_.get(), &facts) != 0) return failed(path_, errno);
    is_open_ = is_open_to_others(facts);
    return ok();
  }

  const std::string& path_;
  std::string rest_;
  Fd folder_;
  bool is_open_ = false;
};

// Why a file in a folder that others can change must not be used; empty: it may be used.
std::string reason_against(const struct stat& file) {
  if (!S_ISREG(file.st_mode)) return "it is not a regular file";
  if (file.st_uid != ::geteuid()) return "it is another user's";
  return file.st_nlink == 1 ? "" : "it has another name elsewhere";
}

int flags_of(OpenMode mode) {
  const int access = mode == OpenMode::rewrite || mode == OpenMode::create ? O_RDWR : O_WRONLY;
  return access | O_CLOEXEC | O_NOCTTY | (mode == OpenMode::append ? O_APPEND : 0);
}

bool truncates(OpenMode mode) { return mode == OpenMode::truncate || mode == OpenMode::rewrite; }

Result<OutputFile> open_existing(const std::string& path, Place& place, OpenMode mode, const struct stat* input) {
  const int careful = (place.is_open ? O_NONBLOCK : 0) | (place.is_direct ? 0 : O_NOFOLLOW);
  OutputFile opened{Fd(::openat(place.folder.get(), place.name.c_str(), flags_of(mode) | careful)), {}, {}};
  struct stat facts {};
  if (!opened.file && place.is_open && (errno == ENXIO || errno == ELOOP))
    return refused(path, "it is not a regular file");
  if (!opened.file || ::fstat(opened.file.get(), &facts) != 0) return failed(path, errno);
  if (place.is_open) {
    if (std::string why = reason_against(facts); !why.empty()) return refused(path, std::move(why));
    ::fcntl(opened.file.get(), F_SETFL, mode == OpenMode::append ? O_APPEND : 0);
  }
  if (is_input(opened.file.get(), input)) return refused_input(path);
  if (truncates(mode) && S_ISREG(facts.st_mode) && ::ftruncate(opened.file.get(), 0) != 0) return failed(path, errno);
  if (!place.is_direct) opened.folder = std::move(place.folder), opened.name = std::move(place.name);
  return opened;
}

bool is_empty(int folder) {
  DIR* const names = ::fdopendir(::dup(folder));
  if (names == nullptr) return false;
  int count = 0;
  while (const dirent* name = ::readdir(names))
    if (std::strcmp(name->d_name, ".") != 0 && std::strcmp(name->d_name, "..") != 0) ++count;
  ::closedir(names);
  return count == 0;
}

bool is_same(const OutputFile& file, int folder, const std::string& name) {
  struct stat own {
  }, named{};
  return ::fstat(file.file.get(), &own) == 0 && ::fstatat(folder, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

}  // namespace

bool is_input(int file, const struct stat* input) {
  struct stat facts {};
  return input != nullptr && ::fstat(file, &facts) == 0 && facts.st_dev == input->st_dev &&
         facts.st_ino == input->st_ino;
}

Error refused_input(const std::string& path) {
  return Error{.code = Code::usage,
               .text = "not written to: it is the file that is read",
               .where = path,
               .help = "-o OTHER-FILE"};
}

Result<OutputFile> open_output(const std::string& path, OpenMode mode, const struct stat* input) {
  // A name may appear and disappear between the two attempts.
  for (int tries = 0;; ++tries) {
    auto place = Walk(path).run();
    if (!place) return place.error();
    if (place->is_folder) return failed(path, EISDIR);
    if (!place->is_direct) {
      Fd made(::openat(place->folder.get(), place->name.c_str(), flags_of(mode) | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
      if (made) return OutputFile{std::move(made), std::move(place->folder), std::move(place->name)};
      if (errno != EEXIST || mode == OpenMode::create) return failed(path, errno);
    }
    auto opened = open_existing(path, *place, mode, input);
    if (opened || opened.error().err != ENOENT || tries == 3) return opened;
  }
}

Result<Fd> open_output_folder(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  auto place = Walk(path.substr(0, end == std::string::npos ? 0 : end + 1)).run();
  if (!place) return place.error();
  if (place->is_folder || place->is_direct) return failed(path, EEXIST);
  const bool is_new = ::mkdirat(place->folder.get(), place->name.c_str(), 0700) == 0;
  if (!is_new && errno != EEXIST) return failed(path, errno);
  Fd folder(::openat(place->folder.get(), place->name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  if (!folder || ::fstat(folder.get(), &facts) != 0) return failed(path, errno);
  if (facts.st_uid != ::geteuid() || is_open_to_others(facts)) return refused(path, "others can change it");
  if (!is_empty(folder.get())) return failed(path, ENOTEMPTY);
  return folder;
}

Status rename_output(OutputFile& file, const std::string& path) {
  auto place = Walk(path).run();
  if (!place) return place.error();
  if (place->is_folder || place->is_direct) return failed(path, EISDIR);
  if (!is_same(file, file.folder.get(), file.name)) return refused(path, "its preliminary file was exchanged");
  const auto rename = [&](unsigned flags) {
    return ::renameat2(file.folder.get(), file.name.c_str(), place->folder.get(), place->name.c_str(), flags);
  };
  int done = rename(RENAME_NOREPLACE);
  if (done != 0 && (errno == EEXIST || errno == EINVAL)) {
    struct stat facts {};
    const bool is_there = ::fstatat(place->folder.get(), place->name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
    const std::string why = is_there && place->is_open ? reason_against(facts) : std::string();
    if (!why.empty()) return refused(path, why);
    done = rename(0);
  }
  if (done != 0) return failed(path, errno);
  file.folder = std::move(place->folder);
  file.name = std::move(place->name);
  return ok();
}

Status shift_outputs(const OutputFile& file, unsigned count) {
  const int folder = file.folder.get();
  const auto named = [&](unsigned number) {
    return number == 0 ? file.name : file.name + "." + std::to_string(number);
  };
  for (unsigned number = 1; number < count; ++number) {
    struct stat facts {};
    if (::fstatat(folder, named(number).c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const std::string why = !S_ISREG(facts.st_mode) ? "is not a regular file" : "is another user's";
    if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid())
      return Error{.code = Code::refused, .text = named(number) + " " + why};
  }
  if (!is_same(file, folder, file.name)) return Error{.code = Code::refused, .text = "its file was exchanged"};
  for (unsigned number = count - 1; number != 0; --number)
    if (::renameat(folder, named(number - 1).c_str(), folder, named(number).c_str()) != 0 && errno != ENOENT)
      return failed(named(number), errno);
  return ok();
}

Result<OutputFile> open_next(const OutputFile& file) {
  const int flags = flags_of(OpenMode::create) | O_CREAT | O_EXCL | O_NOFOLLOW;
  OutputFile next{Fd(::openat(file.folder.get(), file.name.c_str(), flags, 0600)),
                  Fd(::fcntl(file.folder.get(), F_DUPFD_CLOEXEC, 3)), file.name};
  if (!next.file || !next.folder) return failed(file.name, errno);
  return next;
}

void remove_output(const OutputFile& file) {
  if (file.folder && is_same(file, file.folder.get(), file.name)) ::unlinkat(file.folder.get(), file.name.c_str(), 0);
}

}  // namespace uprobe::cli
