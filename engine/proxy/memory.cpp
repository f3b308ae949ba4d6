// SPDX-License-Identifier: MIT
#include "engine/proxy/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/proxy/proxy.h"

namespace uprobe::proxy {
namespace {

// A piece of what is read or written, so that a long one shows that it gets on.
constexpr std::size_t kStep = 65536;

// What `call(done, count)` has moved, as the system calls tell it, until all is done, it moves nothing, or it fails.
struct Moved {
  std::size_t done = 0;
  int error = 0;
};
template <class Call>
Moved move_all(std::size_t bytes, Order& order, Call call) {
  Moved moved;
  for (; moved.done < bytes; ++order.steps) {
    const long n = call(moved.done, std::min(bytes - moved.done, kStep));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) moved.error = errno;
    if (n <= 0) break;
    moved.done += static_cast<std::size_t>(n);
  }
  return moved;
}

struct Part {
  Addr at;
  std::vector<std::uint8_t> bytes;
};

// Parts of a process's memory, in order. `call`: SYS_pread64 or SYS_pwrite64, which take the same arguments.
class Access : public Order {
 public:
  Access(long call, int memory, std::vector<Part> parts) : parts_(std::move(parts)), call_(call), memory_(memory) {}

  void carry_out(Place& place) override {
    const int memory = place.descriptor(memory_);
    if (memory < 0) return static_cast<void>(error_ = ENOTSUP);
    for (std::size_t i = 0; i < parts_.size() && error_ == 0; ++i) error_ = all_of(memory, parts_[i]);
    ::syscall(SYS_close, memory);
  }
  int error() const { return error_; }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  int all_of(int memory, Part& part) {
    const Moved moved = move_all(part.bytes.size(), *this, [&](std::size_t done, std::size_t count) {
      return ::syscall(call_, memory, part.bytes.data() + done, count, part.at.value + done);
    });
    return moved.error == 0 && moved.done < part.bytes.size() ? ESRCH : moved.error;
  }

  std::vector<Part> parts_;
  const long call_;
  const int memory_;
  int error_ = 0;
};

// With the tool's death the proxy's comes after the last part.
class Writing : public Access {
 public:
  Writing(int memory, std::vector<Part> parts) : Access(SYS_pwrite64, memory, std::move(parts)) {}

  void carry_out(Place& place) override {
    const long tool = ::syscall(SYS_getppid);
    ::syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
    Access::carry_out(place);
    ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::syscall(SYS_getppid) != tool) ::syscall(SYS_exit, 0);
  }
};

// What the order says is wrong, where it was carried out.
template <class Made>
int result_of(const std::shared_ptr<Made>& order, Owner user) {
  const Outcome outcome = carry_out(order, user);
  if (outcome == Outcome::done) return order->error();
  return outcome == Outcome::silent ? ETIMEDOUT : ENOTSUP;
}

// As much of a file as there is room for.
class ReadingFile : public Order {
 public:
  ReadingFile(std::string path, std::size_t room) : path_(std::move(path)), text_(room, '\0') {}

  void carry_out(Place&) override {
    const long file = ::syscall(SYS_openat, AT_FDCWD, path_.c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return static_cast<void>(error_ = errno);
    const Moved moved = move_all(text_.size(), *this, [&](std::size_t done, std::size_t count) {
      return ::syscall(SYS_read, file, text_.data() + done, count);
    });
    size_ = moved.done, error_ = moved.error;
    ::syscall(SYS_close, file);
  }
  int error() const { return error_; }
  bool is_whole() const { return size_ < text_.size(); }
  std::string text() const { return text_.substr(0, size_); }

 private:
  const std::string path_;
  std::string text_;
  std::size_t size_ = 0;
  int error_ = 0;
};

class ReadingLink : public Order {
 public:
  explicit ReadingLink(std::string path) : path_(std::move(path)) {}

  void carry_out(Place&) override { size_ = ::syscall(SYS_readlink, path_.c_str(), text_.data(), text_.size()); }
  std::string text() const { return std::string(text_.data(), static_cast<std::size_t>(std::max(size_, 0L))); }

 private:
  const std::string path_;
  std::array<char, PATH_MAX> text_{};
  long size_ = 0;
};

class Comparing : public Order {
 public:
  Comparing(pid_t one, pid_t other) : one_(one), other_(other) {}

  void look() {
    compared_ = ::syscall(SYS_kcmp, one_, other_, KCMP_VM, 0, 0);
    if (compared_ < 0 && errno == ESRCH) compared_ = 1;
  }
  void carry_out(Place&) override { look(); }
  std::optional<bool> answer() const { return compared_ < 0 ? std::nullopt : std::optional(compared_ == 0); }

 private:
  const pid_t one_, other_;
  long compared_ = 1;
};

class Opening : public Order {
 public:
  Opening(std::string path, int flags) : path_(std::move(path)), flags_(flags | O_CLOEXEC) {}

  void carry_out(Place&) override {
    made = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path_.c_str(), flags_, 0));
    error_ = made < 0 ? errno : 0;
  }
  int error() const { return error_; }

 private:
  const std::string path_;
  const int flags_;
  int error_ = 0;
};

class AskingForPrivileges : public Order {
 public:
  explicit AskingForPrivileges(std::string path) : path_(std::move(path)) {}

  void look() {
    struct stat status {};
    if (::syscall(SYS_newfstatat, AT_FDCWD, path_.c_str(), &status, 0) != 0) return;
    gives_ = (status.st_mode & (S_ISUID | S_ISGID)) != 0 ||
             ::syscall(SYS_getxattr, path_.c_str(), "security.capability", nullptr, 0) > 0;
  }
  void carry_out(Place&) override { look(); }
  bool gives() const { return gives_; }

 private:
  const std::string path_;
  bool gives_ = false;
};

class AskingForStatus : public Order {
 public:
  explicit AskingForStatus(std::string path) : path_(std::move(path)) {}

  void carry_out(Place&) override {
    error_ = ::syscall(SYS_newfstatat, AT_FDCWD, path_.c_str(), &status_, 0) == 0 ? 0 : errno;
  }
  int error() const { return error_; }
  const struct stat& status() const { return status_; }

 private:
  const std::string path_;
  struct stat status_ {};
  int error_ = 0;
};

}  // namespace

int read_memory(Owner user, int memory, std::span<const ReadPiece> pieces) {
  std::vector<Part> parts;
  for (const ReadPiece& piece : pieces) parts.push_back({piece.from, std::vector<std::uint8_t>(piece.to.size())});
  const auto order = std::make_shared<Access>(SYS_pread64, memory, std::move(parts));
  if (const int error = result_of(order, user); error != 0) return error;
  for (std::size_t i = 0; i < pieces.size(); ++i) std::ranges::copy(order->parts()[i].bytes, pieces[i].to.begin());
  return 0;
}

int write_memory(Owner user, int memory, std::span<const MemoryPiece> pieces) {
  std::vector<Part> parts;
  for (const MemoryPiece& piece : pieces) parts.push_back({piece.at, {piece.bytes.begin(), piece.bytes.end()}});
  return result_of(std::make_shared<Writing>(memory, std::move(parts)), user);
}

Result<std::string> read_file(Owner user, const std::string& path, std::size_t limit) {
  for (std::size_t room = kStep;; room = std::min(room * 4, limit + 1)) {
    const auto order = std::make_shared<ReadingFile>(path, room);
    const int error = result_of(order, user);
    if (error != 0) return system_error("read " + path, error);
    if (order->is_whole()) return order->text();
    if (room > limit)
      return Error{.code = Code::limit, .text = path + " is larger than " + std::to_string(limit) + " bytes"};
  }
}

std::optional<bool> share_memory(pid_t one, pid_t other) {
  const auto owner = Foreign(one).user(), of_other = Foreign(other).user();
  // Else it would be the first one whose order does not come back.
  if (of_other && carry_out(std::make_shared<ReadingLink>(procfs::path(other, "exe")), *of_other) == Outcome::silent)
    return false;
  const auto order = std::make_shared<Comparing>(one, other);
  const Outcome outcome = owner || of_other ? carry_out(order, owner ? *owner : *of_other) : Outcome::impossible;
  if (outcome == Outcome::impossible) order->look();
  return outcome != Outcome::silent ? order->answer() : false;
}

void stand_in_for_procfs() {
  const auto read = [](pid_t pid, const std::string& path) -> std::optional<Result<std::string>> {
    const auto owner = Foreign(pid).user();
    if (!owner) return std::nullopt;
    auto text = read_file(*owner, path, kMostText);
    if (!text && text.error().err == ENOTSUP) return std::nullopt;
    return text;
  };
  const auto link = [](pid_t pid, const std::string& path) -> std::optional<std::string> {
    const auto owner = Foreign(pid).user();
    const auto order = std::make_shared<ReadingLink>(path);
    const Outcome outcome = owner ? carry_out(order, *owner) : Outcome::impossible;
    if (outcome == Outcome::impossible) return std::nullopt;
    return outcome == Outcome::done ? order->text() : std::string();
  };
  static const bool is_done = (procfs::read_by({.read = read, .link = link}), true);
  static_cast<void>(is_done);
}

std::optional<bool> gives_privileges(std::optional<Owner> user, const std::string& path) {
  const auto order = std::make_shared<AskingForPrivileges>(path);
  const Outcome outcome = user ? carry_out(order, *user) : Outcome::impossible;
  if (outcome == Outcome::silent) return std::nullopt;
  if (outcome == Outcome::impossible) order->look();
  return order->gives();
}

namespace {

Error not_asked(const std::string& path) { return system_error("open " + path, EACCES); }

}  // namespace

Result<std::string> read_of(pid_t pid, const std::string& path, std::size_t limit) {
  const auto user = Foreign(pid).user();
  if (user && !may_look_at_others()) return not_asked(path);
  auto text = user ? read_file(*user, path, limit) : uprobe::read_file(path, limit);
  return !text && user && text.error().err == ENOTSUP ? uprobe::read_file(path, limit) : std::move(text);
}

Result<Fd> open_of(pid_t pid, const std::string& path, int flags) {
  const auto user = Foreign(pid).user();
  if (user && !may_look_at_others()) return not_asked(path);
  if (user) {
    const auto order = std::make_shared<Opening>(path, flags);
    const int error = result_of(order, *user);
    if (error == 0 && order->taken) return std::move(order->taken);
    if (error != 0 && error != ENOTSUP) return system_error("open " + path, error);
  }
  Fd file(::open(path.c_str(), flags | O_CLOEXEC));
  return file ? Result<Fd>(std::move(file)) : system_error("open " + path, errno);
}

std::optional<struct stat> status_of(std::optional<Owner> user, const std::string& path) {
  if (user) {
    const auto order = std::make_shared<AskingForStatus>(path);
    const int error = result_of(order, *user);
    if (error != ENOTSUP) return error == 0 ? std::optional(order->status()) : std::nullopt;
  }
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

}  // namespace uprobe::proxy
