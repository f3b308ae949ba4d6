// SPDX-License-Identifier: MIT
// Which results are a part only follows from the kernel's sources: fs/pipe.c (pipe_write), net/ipv4/tcp.c and net/unix/af_unix.c
// (sendmsg, and recvmsg with MSG_WAITALL), drivers/tty/n_tty.c, drivers/char/random.c, fs/splice.c, fs/aio.c (read_events),
// io_uring/io_uring.c (io_uring_enter). With a descriptor that does not block, a part is what the program has asked for.
#include "engine/target/interrupted_syscall.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"

namespace uprobe::target {
namespace {

using namespace std::chrono_literals;
using arch::call_argument;
using arch::call_number;
using arch::RegisterWord;
using arch::ResumedCall;
using Registers = arch::ThreadRegisters;

constexpr long kEpollPwait2 = 441;

// ---- for how long

enum class Unit { milliseconds, timespec, timeval };  // the first as the argument, the others where it points to
struct Timed {
  long call;
  std::size_t argument;
  Unit unit;
};
constexpr Timed kTimed[] = {
    {SYS_epoll_wait, 3, Unit::milliseconds},  {SYS_epoll_pwait, 3, Unit::milliseconds},
    {kEpollPwait2, 3, Unit::timespec},        {SYS_semtimedop, 3, Unit::timespec},
    {SYS_rt_sigtimedwait, 2, Unit::timespec}, {SYS_io_getevents, 4, Unit::timespec},
    {SYS_io_pgetevents, 4, Unit::timespec},   {SYS_ppoll, 2, Unit::timespec},
    {SYS_pselect6, 4, Unit::timespec},        {SYS_select, 4, Unit::timeval},
};
// The kernel keeps what is left of these, unless they have to begin again (a filter: see is_kept_by_kernel).
constexpr Timed kKept[] = {
    {SYS_poll, 2, Unit::milliseconds}, {SYS_nanosleep, 0, Unit::timespec}, {SYS_clock_nanosleep, 2, Unit::timespec}};

template <std::size_t kCount>
const Timed* find(const Timed (&all)[kCount], long call) {
  const auto* const found = std::find_if(all, all + kCount, [call](const Timed& t) { return t.call == call; });
  return found == all + kCount ? nullptr : found;
}

const Timed* timed(long call) { return find(kTimed, call); }

// Until a time of a clock, which begins again as it was.
bool is_absolute(const Registers& r) {
  return arch::call_number(r) == SYS_clock_nanosleep && (call_argument(r, 1) & TIMER_ABSTIME) != 0;
}

const Timed* timed_of(const Registers& r) {
  const Timed* const usual = timed(arch::call_number(r));
  return usual != nullptr || is_absolute(r) ? usual : find(kKept, arch::call_number(r));
}

bool shorten_milliseconds(RegisterWord& value, std::chrono::nanoseconds slept) {
  const auto whole = static_cast<std::int32_t>(value);
  if (whole <= 0) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::milliseconds(whole) - slept);
  value = static_cast<std::uint64_t>(std::max(left, 0ms).count());
  return true;
}

struct Time {
  std::int64_t seconds, rest;
};

bool shorten_time(const ProcessFiles& files, Time& time, Addr at, std::chrono::nanoseconds unit,
                  std::chrono::nanoseconds slept) {
  constexpr std::int64_t kMostSeconds = 1'000'000'000;  // sums of nanoseconds fit
  if (!at || !files.read(at, &time, sizeof time)) return false;
  if (time.seconds < 0 || time.seconds > kMostSeconds) return false;
  const auto whole = std::chrono::seconds(time.seconds) + time.rest * unit;
  const auto left = std::max(whole - slept, std::chrono::nanoseconds(0));
  time.seconds = left / 1s, time.rest = left % 1s / unit;
  return true;
}

// True when there is a time, and it is what is left of it.
bool shorten(const ProcessFiles& files, Registers& r, ResumedCall& call, Addr frame, std::chrono::nanoseconds slept) {
  const Timed* how = timed_of(r);
  if (how == nullptr) return false;
  if (how->unit == Unit::milliseconds) return shorten_milliseconds(call_argument(r, how->argument), slept);
  Time time{};
  const auto unit = how->unit == Unit::timeval ? std::chrono::nanoseconds(1us) : 1ns;
  if (!shorten_time(files, time, Addr{call_argument(r, how->argument)}, unit, slept)) return false;
  call.time[0] = time.seconds, call.time[1] = time.rest;
  call_argument(r, how->argument) = (frame + offsetof(ResumedCall, time)).value;
  return true;
}

// ---- how much

struct stat status_of(const ProcessFiles& files, std::uint64_t fd) {
  struct stat found {};
  const std::string path = procfs::path(files.pid(), "fd/") + std::to_string(static_cast<int>(fd));
  if (::stat(path.c_str(), &found) != 0) found.st_mode = 0;
  return found;
}

bool blocks(const ProcessFiles& files, std::uint64_t fd) {
  const auto text = read_file(procfs::path(files.pid(), "fdinfo/") + std::to_string(static_cast<int>(fd)));
  const std::size_t at = text ? text->find("flags:\t") : std::string::npos;
  return at != std::string::npos && (std::strtoul(text->c_str() + at + 7, nullptr, 8) & O_NONBLOCK) == 0;
}

bool is_terminal(dev_t device) {
  constexpr unsigned kVirtual = 4, kAlternate = 5, kFirstPty = 136,
                     kLastPty = 143;  // Documentation/admin-guide/devices.txt
  const unsigned number = major(device);
  return number == kVirtual || number == kAlternate || (number >= kFirstPty && number <= kLastPty);
}

// Writes of all, however long that takes.
bool takes_all(const ProcessFiles& files, std::uint64_t fd) {
  const struct stat found = status_of(files, fd);
  const bool is_stream =
      S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode) || (S_ISCHR(found.st_mode) && is_terminal(found.st_rdev));
  return is_stream && blocks(files, fd);
}

bool is_random(const ProcessFiles& files, std::uint64_t fd) {
  const struct stat found = status_of(files, fd);
  return S_ISCHR(found.st_mode) && (found.st_rdev == makedev(1, 8) || found.st_rdev == makedev(1, 9));
}

bool shrink(RegisterWord& size, std::uint64_t done) {
  size -= done;
  return true;
}
bool advance(RegisterWord& place, RegisterWord& size, std::uint64_t done, std::uint64_t bytes = 1) {
  place += done * bytes;
  return shrink(size, done);
}

bool advance_parts(const ProcessFiles& files, Registers& r, ResumedCall& call, Addr frame, std::uint64_t done) {
  iovec parts[arch::kMostResumedParts];
  const std::uint64_t count = call_argument(r, 2);
  if (count == 0 || count > std::size(parts) || !files.read(Addr{call_argument(r, 1)}, parts, count * sizeof *parts))
    return false;
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t step = std::min<std::uint64_t>(done, parts[i].iov_len);
    done -= step;
    call.parts[2 * i] = reinterpret_cast<std::uint64_t>(parts[i].iov_base) + step;
    call.parts[2 * i + 1] = parts[i].iov_len - step;
    left += call.parts[2 * i + 1];
  }
  call_argument(r, 1) = (frame + offsetof(ResumedCall, parts)).value;
  return left != 0;
}

// True when a part is missing: the arguments are those of the rest.
bool take_rest(const ProcessFiles& files, Registers& r, ResumedCall& call, Addr frame, bool has_slept) {
  constexpr std::uint64_t kEventBytes = 32;  // struct io_event
  RegisterWord &a = call_argument(r, 0), &b = call_argument(r, 1), &c = call_argument(r, 2), &d = call_argument(r, 3);
  const auto done = static_cast<std::uint64_t>(arch::result(r));
  switch (call_number(r)) {
    case SYS_write:
      return done < c && takes_all(files, a) && advance(b, c, done);
    case SYS_sendto:
      return done < c && (d & MSG_DONTWAIT) == 0 && takes_all(files, a) && advance(b, c, done);
    case SYS_writev:
      return takes_all(files, a) && advance_parts(files, r, call, frame, done);
    case SYS_recvfrom:
      return done < c && (d & (MSG_WAITALL | MSG_DONTWAIT | MSG_PEEK)) == MSG_WAITALL && blocks(files, a) &&
             advance(b, c, done);
    case SYS_read:
      return done < c && is_random(files, a) && advance(b, c, done);
    case SYS_getrandom:
      return done < b && advance(a, b, done);
    case SYS_sendfile:
      return done < d && takes_all(files, a) && shrink(d, done);
    case SYS_io_getevents:
    case SYS_io_pgetevents:
      return has_slept && done < b && shrink(b, done) && advance(d, c, done, kEventBytes);
    case SYS_io_uring_enter:
      return has_slept && done == b && c != 0 && shrink(b, done) &&
             (d & (IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG)) == IORING_ENTER_GETEVENTS;
    default:
      return false;
  }
}

// ---- where

// Room for the frame is where the stack is mapped already: a write from outside would not make it grow.
bool has_room(const ProcessFiles& files, Addr frame, Addr stack) {
  const auto maps = files.maps();
  const Mapping* m = maps ? mapping_at(*maps, frame) : nullptr;
  return m != nullptr && m->writable && stack <= m->end;
}

}  // namespace

bool may_begin_again(long call) {
  constexpr long kCalls[] = {
      SYS_read,
      SYS_readv,
      SYS_write,
      SYS_writev,
      SYS_accept,
      SYS_accept4,
      SYS_connect,
      SYS_recvfrom,
      SYS_recvmsg,
      SYS_recvmmsg,
      SYS_sendto,
      SYS_sendmsg,
      SYS_sendmmsg,
      SYS_semop,
      SYS_semtimedop,
      SYS_epoll_wait,
      SYS_epoll_pwait,
      SYS_epoll_pwait2,
      SYS_sendfile,
      SYS_splice,
      SYS_io_getevents,
      SYS_rt_sigtimedwait,
      SYS_io_uring_enter,
      // Where it cannot be written to the program's memory what is left of the time (fs/select.c, poll_select_finish).
      SYS_select,
      SYS_pselect6,
      SYS_ppoll,
  };
  return std::find(std::begin(kCalls), std::end(kCalls), call) != std::end(kCalls);
}

bool loses_time(long call) { return timed(call) != nullptr || call == SYS_io_uring_enter; }

bool is_kept_by_kernel(long call) { return find(kKept, call) != nullptr; }

bool has_kept_time(long call, std::int64_t result) {
  return result != -EINTR && (call == SYS_ppoll || call == SYS_pselect6 || call == SYS_select);
}

bool may_be_cut(const Registers& r) {
  if (call_number(r) < 0) return false;
  const std::int64_t result = arch::result(r);
  if (result == kRestartNoHandler) return timed_of(r) != nullptr;
  constexpr long kInParts[] = {SYS_write,     SYS_writev,   SYS_sendto,       SYS_recvfrom,      SYS_read,
                               SYS_getrandom, SYS_sendfile, SYS_io_getevents, SYS_io_pgetevents, SYS_io_uring_enter};
  return result > 0 && std::find(std::begin(kInParts), std::end(kInParts), call_number(r)) != std::end(kInParts);
}

std::optional<RestOfCall> rest_of_call(const ProcessFiles& files, const Registers& registers, Addr code,
                                       std::optional<std::chrono::nanoseconds> slept) {
  const bool is_there = arch::instruction_pointer(registers) == (code + arch::kResumedBack).value;
  RestOfCall rest{registers, {}};
  Registers& r = rest.registers;
  const std::uint64_t sp = arch::stack_pointer(r);
  const Addr frame{is_there ? sp : sp - arch::kResumedDistance};
  if (is_there && !files.read(frame, &rest.call, sizeof rest.call)) return std::nullopt;
  if (!is_there) arch::keep_registers(rest.call, r);
  const bool is_part = arch::result(r) > 0;
  if (is_part && !take_rest(files, r, rest.call, frame, slept.has_value())) return std::nullopt;
  const bool is_shorter = slept && shorten(files, r, rest.call, frame, *slept);
  if (!is_part && !is_shorter) return std::nullopt;
  if (!is_there && !has_room(files, frame, Addr{sp})) return std::nullopt;
  if (is_part) rest.call.done += static_cast<std::uint64_t>(arch::result(registers));
  arch::set_result(r, kRestartNoHandler);
  arch::set_instruction_pointer(r, (code + arch::kResumedBack).value);
  arch::set_stack_pointer(r, frame.value);
  return rest;
}

}  // namespace uprobe::target
