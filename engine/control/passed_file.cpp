#include "engine/control/passed_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "engine/base/fd.h"

namespace uprobe::control {
namespace {

using target::Target;

// A message of one byte with a descriptor, as recvmsg takes it; laid out for the address where it will be.
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

Error failed(const char* what, std::int64_t result) {
  return system_error(std::string(what) + " in the target", static_cast<int>(-result));
}

// In another PID namespace somebody else may have our number.
bool is_ours(pid_t pid, int opened, int fd) {
  struct stat there {
  }, here{};
  const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(opened);
  return ::stat(link.c_str(), &there) == 0 && ::fstat(fd, &here) == 0 && there.st_ino == here.st_ino &&
         there.st_dev == here.st_dev;
}

Result<int> open_by_name(Target& target, Addr scratch, int fd) {
  const std::string link = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  if (Status s = target.write(scratch, link.c_str(), link.size() + 1); !s) return s.error();
  constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
  auto opened = target.system_call(SYS_openat, {kHere, scratch.value, O_RDWR | O_CLOEXEC, 0, 0, 0});
  if (!opened) return opened.error();
  if (*opened < 0) return failed("open of a file of ours", *opened);
  if (is_ours(target.pid(), static_cast<int>(*opened), fd)) return static_cast<int>(*opened);
  close_in(target, static_cast<int>(*opened));
  return failed("open of a file of ours", -ENOENT);
}

Status send_to(pid_t pid, int socket, int fd) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const Fd ours(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), socket, 0)));
  if (!ours) return system_error("pidfd_getfd", errno);
  Message m{};
  m = Message::at(reinterpret_cast<std::uint64_t>(&m));
  cmsghdr* rights = CMSG_FIRSTHDR(&m.head);
  *rights = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return ::sendmsg(ours.get(), &m.head, MSG_NOSIGNAL) == 1 ? ok() : system_error("sendmsg", errno);
}

Result<int> receive(Target& target, Addr scratch, int socket) {
  Message m = Message::at(scratch.value);
  if (Status s = target.write(scratch, &m, sizeof m); !s) return s.error();
  const auto number = static_cast<std::uint64_t>(socket);
  auto got = target.system_call(SYS_recvmsg, {number, scratch.value, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0});
  if (!got) return got.error();
  if (*got < 0) return failed("recvmsg", *got);
  if (Status s = target.read(scratch, &m, sizeof m); !s) return s.error();
  cmsghdr head;
  std::memcpy(&head, m.control, sizeof head);
  if (m.head.msg_controllen < CMSG_LEN(sizeof(int)) || head.cmsg_type != SCM_RIGHTS)
    return failed("receiving a descriptor", -EMFILE);
  int fd = -1;
  std::memcpy(&fd, m.control + CMSG_LEN(0), sizeof fd);
  return fd;
}

Result<int> send_through_socket(Target& target, Addr scratch, int fd) {
  auto made = target.system_call(SYS_socketpair, {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, scratch.value, 0, 0});
  if (!made) return made.error();
  if (*made < 0) return failed("socketpair", *made);
  int ends[2] = {-1, -1};
  if (Status s = target.read(scratch, ends, sizeof ends); !s) return s.error();
  const Status sent = send_to(target.pid(), ends[0], fd);
  close_in(target, ends[0]);
  auto received = sent ? receive(target, scratch, ends[1]) : Result<int>(sent.error());
  close_in(target, ends[1]);
  return received;
}

}  // namespace

Result<int> pass_file(Target& target, Addr scratch, int fd) {
  static_assert(sizeof(Message) <= 512);
  auto named = open_by_name(target, scratch, fd);
  if (named) return named;
  auto sent = send_through_socket(target, scratch, fd);
  return sent ? sent : named;
}

void close_in(Target& target, int fd) {
  static_cast<void>(target.system_call(SYS_close, {static_cast<std::uint64_t>(fd), 0, 0, 0, 0, 0}));
}

}  // namespace uprobe::control
