// SPDX-License-Identifier: MIT
#include "engine/process/fd_transfer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::control {
namespace {

using target::failed_in_target;
using target::Target;

// A message of one byte and a descriptor, as recvmsg takes it; laid out for its address in the target.
struct Message {
  msghdr head;
  iovec piece;
  char byte;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];

  static Message at(std::uint64_t address) {
    Message m{};
    m.piece.iov_base = pointer(address + offsetof(Message, byte));
    m.piece.iov_len = 1;
    m.head.msg_iov = static_cast<iovec*>(pointer(address + offsetof(Message, piece)));
    m.head.msg_iovlen = 1;
    m.head.msg_control = pointer(address + offsetof(Message, control));
    m.head.msg_controllen = sizeof m.control;
    return m;
  }

 private:
  static void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }
};

Error exchanged() {
  return Error{
      .code = Code::refused,
      .text = "a process that shares its descriptors has exchanged one of the tool's; stop that process first"};
}

int access_of(int fd) { return ::fcntl(fd, F_GETFL) & O_ACCMODE; }

Result<int> open_by_name(Target& target, Addr scratch, int fd) {
  if (!shares_our_view(target.pid())) return failed_in_target("open of a file of the tool", -ENOENT);
  const std::string link = procfs::path(::getpid(), "fd/") + std::to_string(fd);
  RETURN_IF_ERROR(target.write(scratch, link.c_str(), link.size() + 1));
  constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
  const auto flags = static_cast<std::uint64_t>(access_of(fd) | O_CLOEXEC);
  auto opened = target.system_call(SYS_openat, {kHere, scratch.value, flags, 0, 0, 0});
  if (!opened) return opened.error();
  return *opened < 0 ? Result<int>(failed_in_target("open of a file of the tool", *opened)) : static_cast<int>(*opened);
}

// Whether the target itself has made this socket pair: the descriptor is sent to no other process.
bool is_pair_of(pid_t pid, int socket) {
  int domain = 0, type = 0;
  ucred peer{};
  socklen_t domain_bytes = sizeof domain, type_bytes = sizeof type, peer_bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) == 0 && domain == AF_UNIX &&
         ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_DGRAM &&
         ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 && peer.pid == pid;
}

Status send_to(pid_t pid, int socket, int fd) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const Fd ours(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), socket, 0)));
  if (!ours) return system_error("pidfd_getfd", errno);
  if (!is_pair_of(pid, ours.get())) return exchanged();
  Message m{};
  m = Message::at(reinterpret_cast<std::uint64_t>(&m));
  cmsghdr* rights = CMSG_FIRSTHDR(&m.head);
  *rights = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return ::sendmsg(ours.get(), &m.head, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? ok() : system_error("sendmsg", errno);
}

Result<int> receive(Target& target, Addr scratch, int socket) {
  Message m = Message::at(scratch.value);
  RETURN_IF_ERROR(target.write(scratch, &m, sizeof m));
  const auto number = static_cast<std::uint64_t>(socket);
  auto got = target.system_call(SYS_recvmsg, {number, scratch.value, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0});
  if (!got) return got.error();
  if (*got < 0) return failed_in_target("recvmsg", *got);
  RETURN_IF_ERROR(target.read(scratch, &m, sizeof m));
  cmsghdr head;
  std::memcpy(&head, m.control, sizeof head);
  if (m.head.msg_controllen < CMSG_LEN(sizeof(int)) || head.cmsg_type != SCM_RIGHTS)
    return failed_in_target("receiving a descriptor", -EMFILE);
  int fd = -1;
  std::memcpy(&fd, m.control + CMSG_LEN(0), sizeof fd);
  return fd;
}

void close_number(Target& target, int number) {
  static_cast<void>(target.system_call(SYS_close, {static_cast<std::uint64_t>(number), 0, 0, 0, 0, 0}));
}

void close_socket_in(Target& target, int number) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, target.pid(), 0)));
  const Fd same(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
  if (same && is_pair_of(target.pid(), same.get())) close_number(target, number);
}

Result<int> send_through_socket(Target& target, Addr scratch, int fd) {
  auto made = target.system_call(SYS_socketpair, {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, scratch.value, 0, 0});
  if (!made) return made.error();
  if (*made < 0) return failed_in_target("socketpair", *made);
  int ends[2] = {-1, -1};
  RETURN_IF_ERROR(target.read(scratch, ends, sizeof ends));
  const Status sent = send_to(target.pid(), ends[0], fd);
  close_socket_in(target, ends[0]);
  auto received = sent ? receive(target, scratch, ends[1]) : Result<int>(sent.error());
  close_socket_in(target, ends[1]);
  return received;
}

// The "ino:" line that the kernel shows for a descriptor, since 5.14; empty: not known.
std::string inode_of(pid_t pid, int number) {
  const auto text = read_file(procfs::path(pid, "fdinfo/") + std::to_string(number));
  const std::size_t at = text ? text->find("ino:\t") : std::string::npos;
  return at == std::string::npos ? "" : text->substr(at, text->find('\n', at) - at);
}

Result<target::Mapping> map_once(int fd) {
  constexpr std::size_t kOnePage = 4096;
  void* const page = ::mmap(nullptr, kOnePage, PROT_READ, MAP_PRIVATE, fd, 0);
  if (page == MAP_FAILED) return system_error("mmap of a file of the tool", errno);
  const auto text = read_file("/proc/self/maps");
  ::munmap(page, kOnePage);
  if (!text) return text.error();
  const auto mapping = target::mapping_beginning_at(*text, Addr{reinterpret_cast<std::uintptr_t>(page)});
  return mapping ? Result<target::Mapping>(*mapping) : system_error("a mapping of the tool", ENOENT);
}

// The last files that were asked for. An open file keeps its inode.
class MappedFiles {
 public:
  // A mapping of the file as the kernel prints it: on some file systems its device and inode are not stat's.
  Result<target::Mapping> of(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return system_error("fstat of a file of the tool", errno);
    const std::lock_guard lock(lock_);
    const auto is_same = [&](const Known& known) {
      return known.device == status.st_dev && known.inode == status.st_ino;
    };
    if (const auto found = std::ranges::find_if(known_, is_same); found != known_.end()) return found->mapping;
    auto mapping = map_once(fd);
    Fd held(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (mapping && held) known_.push_back({std::move(held), status.st_dev, status.st_ino, *mapping});
    if (known_.size() > kMost) known_.pop_front();
    return mapping;
  }

 private:
  static constexpr std::size_t kMost = 8;
  struct Known {
    Fd held;
    dev_t device;
    ino_t inode;
    target::Mapping mapping;
  };
  std::mutex lock_;
  std::deque<Known> known_;
};

bool is_mapped(const std::vector<target::Mapping>& maps, const MappedRange& range, const target::Mapping& file) {
  const Addr end = range.begin + range.bytes;
  for (Addr at = range.begin; at < end;) {
    const target::Mapping* m = target::mapping_at(maps, at);
    if (m == nullptr || m->inode != file.inode || m->device != file.device || file.inode == 0) return false;
    at = m->end;
  }
  return true;
}

}  // namespace

Result<int> pass_file(Target& target, Addr scratch, int fd) {
  static_assert(sizeof(Message) <= 512);
  auto named = open_by_name(target, scratch, fd);
  if (named) return named;
  auto sent = send_through_socket(target, scratch, fd);
  return sent ? sent : named;
}

// Compares what the kernel prints: a question to the file itself might go to the file's owner (FUSE).
void close_in(Target& target, int number, int fd) {
  const std::string there = inode_of(target.pid(), number), here = inode_of(::getpid(), fd);
  if (there == here) close_number(target, number);
}

Status check_mapped(Target& target, std::span<const MappedRange> ranges, int fd) {
  static MappedFiles files;
  const auto file = files.of(fd);
  if (!file) return file.error();
  const auto maps = target.maps();
  if (!maps) return maps.error();
  const auto is_of_file = [&](const MappedRange& range) { return is_mapped(*maps, range, *file); };
  return std::all_of(ranges.begin(), ranges.end(), is_of_file) ? ok() : Status(exchanged());
}

// Compares the text of the links: the target controls what they lead to. Its own the tool reads once.
bool shares_our_view(pid_t pid) {
  static constexpr std::array kLinks = {"ns/pid", "ns/mnt", "root"};
  static const std::array ours = {procfs::link("/proc/self/ns/pid"), procfs::link("/proc/self/ns/mnt"),
                                  procfs::link("/proc/self/root")};
  for (std::size_t i = 0; i < kLinks.size(); ++i)
    if (const std::string there = procfs::link(pid, kLinks[i]); there.empty() || there != ours[i]) return false;
  return true;
}

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
