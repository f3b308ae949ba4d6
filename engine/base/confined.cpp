// SPDX-License-Identifier: MIT
#include "engine/base/confined.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "arch/shared/kernel.h"

namespace uprobe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMostAnswer = 16 << 20;
constexpr int kSocket = 3;  // in the child
constexpr gid_t kNoGroup = 65534;

// The system calls of libdw, the allocator and the conversation. Files are opened only for reading, and made only in memory
// (units of .dwp packages); any other call fails with EPERM.
constexpr unsigned kAllowed[] = {SYS_read,           SYS_pread64,   SYS_readv,     SYS_write,       SYS_recvfrom,
                                 SYS_sendto,         SYS_close,     SYS_fstat,     SYS_newfstatat,  SYS_statx,
                                 SYS_lseek,          SYS_mmap,      SYS_munmap,    SYS_mremap,      SYS_mprotect,
                                 SYS_madvise,        SYS_brk,       SYS_futex,     SYS_readlink,    SYS_getcwd,
                                 SYS_clock_gettime,  SYS_getrandom, SYS_prlimit64, SYS_exit_group,  SYS_exit,
                                 SYS_getpid,         SYS_gettid,    SYS_fcntl,     SYS_access,      SYS_rt_sigreturn,
                                 SYS_rt_sigprocmask, SYS_poll,      SYS_getrlimit, SYS_memfd_create};

sock_filter load(std::size_t from) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(from)); }
sock_filter answer_with(std::uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }
// Goes on with the next instruction if equal, else with the one after `skipped`.
sock_filter unless_equal(std::uint32_t value, std::uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

bool allow_reading_alone() {
  constexpr std::uint32_t kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  constexpr std::uint32_t kRefused = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> code = {load(offsetof(seccomp_data, arch)),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, shared::kAuditArch, 1, 0),
                                   answer_with(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
  for (const unsigned number : kAllowed) {
    code.push_back(unless_equal(number, 1));
    code.push_back(answer_with(SECCOMP_RET_ALLOW));
  }
  for (const auto& [number, flags] :
       {std::pair(SYS_open, offsetof(seccomp_data, args[1])), std::pair(SYS_openat, offsetof(seccomp_data, args[2]))}) {
    code.push_back(unless_equal(static_cast<std::uint32_t>(number), 4));
    code.push_back(load(flags));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWrites, 0, 1));
    code.push_back(answer_with(kRefused));
    code.push_back(answer_with(SECCOMP_RET_ALLOW));
  }
  code.push_back(answer_with(kRefused));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Drops the tool's privileges, if it has any. A failure here leaves the child a right of the tool's, never more than that.
void drop_privileges(uid_t user) {
  if (::geteuid() == 0) {
    ::syscall(SYS_setgroups, 0, nullptr);
    if (user != 0) ::syscall(SYS_setresgid, kNoGroup, kNoGroup, kNoGroup);
    if (user != 0) ::syscall(SYS_setresuid, user, user, user);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  ::syscall(SYS_capset, &header, none);
  ::prctl(PR_SET_DUMPABLE, 0);
}

std::uint64_t own_address_space() {
  const auto text = read_file("/proc/self/statm");
  unsigned long long pages = 0;
  if (!text || std::sscanf(text->c_str(), "%llu", &pages) != 1) return 0;
  return pages * static_cast<std::uint64_t>(::getpagesize());
}

void limit(int resource, std::uint64_t most) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) return;
  now.rlim_cur = now.rlim_max = std::min<rlim_t>(now.rlim_max, most);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

void reset_signals() {
  struct sigaction none {};
  none.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &none, nullptr);
  sigset_t empty;
  ::sigemptyset(&empty);
  ::sigprocmask(SIG_SETMASK, &empty, nullptr);
}

// Closes all of the tool's descriptors but the conversation.
bool keep_descriptor(int socket) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return false;
  for (int fd = 0; fd < kSocket; ++fd)
    if (fd != socket && ::dup2(null, fd) < 0) return false;
  if (::dup2(socket, kSocket) < 0) return false;
  if (socket < kSocket) ::dup2(null, socket);
  return ::syscall(SYS_close_range, kSocket + 1, ~0U, 0) == 0;
}

bool confine(const Confinement& how, int socket) {
  constexpr std::uint64_t kDescriptors = 64, kAnswers = 10;
  reset_signals();
  if (!keep_descriptor(socket)) return false;
  limit(RLIMIT_AS, own_address_space() + how.memory_bytes);
  limit(RLIMIT_CPU, kAnswers * static_cast<std::uint64_t>(how.patience.count()));
  limit(RLIMIT_NOFILE, kDescriptors);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, how.memory_bytes / kDescriptors);  // files in memory: all together as much as the limit of memory
  drop_privileges(how.user);
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && allow_reading_alone();
}

// In the child. False: the other side has closed.
bool receive(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got, bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool send_all(int socket, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent, bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool send_text(int socket, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return send_all(socket, &size, sizeof size) && send_all(socket, text.data(), text.size());
}

[[noreturn]] void serve(const Confinement& how, const Confined::Answer& answer, int socket) {
  if (!confine(how, socket)) ::_exit(1);
  try {
    std::string request;
    for (std::uint32_t size = 0; receive(kSocket, &size, sizeof size);) {
      request.resize(size);
      if (!receive(kSocket, request.data(), size) || !send_text(kSocket, answer(request))) break;
    }
  } catch (...) {  // no memory: the tool sees the end
  }
  ::_exit(0);
}

enum class Got { all, end, late };

Got receive_until(int socket, void* to, std::size_t bytes, Clock::time_point deadline) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
    if (left <= 0) return Got::late;
    if (::poll(&ready, 1, static_cast<int>(std::min<long long>(left, 1000))) <= 0) continue;
    const ssize_t got = ::recv(socket, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Got::end;
    at += got, bytes -= static_cast<std::size_t>(got);
  }
  return Got::all;
}

}  // namespace

Result<Confined> Confined::start(const Confinement& how, const Answer& answer) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("socketpair", errno);
  Fd ours(ends[0]), its(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid == 0) serve(how, answer, its.get());
  return Confined(pid, std::move(ours), how.patience);
}

// The tool does not wait for a child that a file system keeps in the kernel.
void Confined::end() {
  socket_.reset();
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  for (int looks = 0; looks < 1000; ++looks) {
    const pid_t ended = ::waitpid(pid_, nullptr, WNOHANG | __WALL);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) break;
    ::usleep(looks < 100 ? 100 : 1000);
  }
  pid_ = 0;
}

Result<std::string> Confined::ask(std::string_view request) {
  const Error gone{.code = Code::damaged, .text = "reading it failed: the file is damaged, or made to be"};
  if (pid_ == 0) return gone;
  const auto deadline = Clock::now() + patience_;
  std::uint32_t size = 0;
  std::string text;
  Got got = send_text(socket_.get(), request) ? receive_until(socket_.get(), &size, sizeof size, deadline) : Got::end;
  const bool is_too_large = got == Got::all && size > kMostAnswer;
  if (got == Got::all && !is_too_large) {
    text.resize(size);
    got = receive_until(socket_.get(), text.data(), size, deadline);
  }
  if (got == Got::all && !is_too_large) return text;
  end();
  if (got == Got::end) return gone;
  return Error{.code = Code::limit,
               .text = is_too_large ? "what it says is too much"
                                    : "reading it takes longer than " + std::to_string(patience_.count()) + " seconds"};
}

}  // namespace uprobe
