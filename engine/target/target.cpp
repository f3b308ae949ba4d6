// SPDX-License-Identifier: MIT
#include "engine/target/target.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/procfs.h"
#include "engine/proxy/mapping_query.h"
#include "engine/target/process_stat.h"

namespace uprobe::target {

Result<std::uint64_t> Target::call(Addr) {
  return Error{.code = Code::refused, .text = "no thread of the process can run a function for us"};
}

Status Target::system_calls(std::span<SystemCall> calls) {
  for (SystemCall& call : calls) {
    if (call.takes != SystemCall::kTakesNone)
      call.arguments.at(static_cast<std::size_t>(call.takes)) = static_cast<std::uint64_t>(calls[call.from].result);
    auto result = system_call(call.number, call.arguments);
    if (!result) return result.error();
    call.result = *result;
  }
  return ok();
}

SystemCall map_call(Addr at, std::uint64_t bytes, int protection, int flags, int fd, std::uint64_t offset) {
  return {.number = SYS_mmap,
          .arguments = {at.value, bytes, static_cast<std::uint64_t>(protection), static_cast<std::uint64_t>(flags),
                        static_cast<std::uint64_t>(static_cast<std::int64_t>(fd)), offset}};
}

Error failed_in_target(const std::string& what, std::int64_t result) {
  Error error = system_error(what + " in the target", static_cast<int>(-result));
  error.err = 0;
  return error;
}

Result<Addr> mapped_by(const SystemCall& call, const std::string& what) {
  if (call.has_failed()) return failed_in_target("mmap of " + what, call.result);
  return Addr{static_cast<std::uint64_t>(call.result)};
}

Result<Addr> map_memory(Target& target, Addr at, std::uint64_t bytes, int protection, int flags, int fd,
                        std::uint64_t offset, const std::string& what) {
  SystemCall call = map_call(at, bytes, protection, flags, fd, offset);
  auto made = target.system_call(call.number, call.arguments);
  if (!made) return made.error();
  call.result = *made;
  return mapped_by(call, what);
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  const std::string folder = procfs::path(pid, "task");
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir(folder.c_str()), ::closedir);
  if (!tasks) return threads;
  while (const dirent* entry = ::readdir(tasks.get()))
    if (const auto tid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)); tid != 0) threads.push_back(tid);
  return threads;
}

pid_t parent_of(pid_t pid) {
  const auto status = procfs::read(pid, "status");
  return status ? static_cast<pid_t>(procfs::number(*status, "PPid")) : 0;
}

// The kernel makes no such descriptor for another thread than a process's first one.
bool is_process(pid_t id) { return bool(Fd(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)))); }

bool is_own_child(pid_t pid) {
  const auto status = procfs::read(pid, "status");
  return status && procfs::number(*status, "PPid") == ::getpid() && procfs::number(*status, "Tgid") == pid;
}

Error process_ended() { return Error{.code = Code::killed, .text = "the process has ended", .err = ESRCH}; }

Error in_execve() {
  return Error{.code = Code::refused, .text = "begins another program just now", .retry = Retry::soon};
}

namespace {

// Of an error that the files of a process in /proc gave.
Error error_of_files(pid_t pid, Error error) {
  if (error.err == ETIMEDOUT)
    error.text = "the memory of its user's processes does not answer (its pages may come from a FUSE server)";
  if (error.err != ESRCH && error.err != ENOENT) return error;
  return has_ended(pid) ? process_ended() : in_execve();
}

}  // namespace

// The first thread may have ended: then the others have the memory.
Result<ProcessFiles> ProcessFiles::open(pid_t pid) {
  const std::string own = procfs::path(pid);
  const auto open_in = [pid](const std::string& folder) { return proxy::open_of(pid, folder + "/mem", O_RDWR); };
  auto memory = open_in(own);
  if (memory) return ProcessFiles(pid, own, memory.take());
  for (const pid_t tid : memory.error().err == ESRCH ? threads_of(pid) : std::vector<pid_t>()) {
    const std::string folder = own + "/task/" + std::to_string(tid);
    if (auto others = open_in(folder)) return ProcessFiles(pid, folder, others.take());
  }
  return error_of_files(pid, memory.error());
}

Result<std::vector<Mapping>> ProcessFiles::maps() const {
  const auto text = proxy::read_of(pid_, folder_ + "/maps");
  if (!text) return error_of_files(pid_, text.error());
  return parse_maps(*text);
}

namespace {

Mapping mapping_of(const proxy::MappingQuery& answer) {
  return {.begin = Addr{answer.begin},
          .end = Addr{answer.end},
          .readable = (answer.vma_flags & proxy::kMappingReadable) != 0,
          .writable = (answer.vma_flags & proxy::kMappingWritable) != 0,
          .executable = (answer.vma_flags & proxy::kMappingExecutable) != 0,
          .shared = (answer.vma_flags & proxy::kMappingShared) != 0,
          .offset = answer.offset,
          .device = std::uint64_t{answer.major} << 32 | answer.minor,
          .inode = answer.inode,
          .path = {}};
}

// The shared mappings of files; nothing: the kernel does not answer such questions.
std::optional<std::vector<Mapping>> ask_for_shared_files(std::optional<proxy::Owner> user, const std::string& maps) {
  constexpr std::size_t kMost = 65536, kOneLook = 16;  // of a program that changes them all the time, for ever
  constexpr std::uint64_t kWhich = proxy::kMappingShared | proxy::kMappingOfFile | proxy::kMappingOrNext;
  std::vector<Mapping> found;
  for (bool is_over = false; !is_over && found.size() < kMost;) {
    const std::uint64_t from = found.empty() ? 0 : found.back().end.value;
    const proxy::MappingAnswers answers = proxy::ask_mappings(user, maps, kWhich, from, kOneLook);
    if (answers.has_failed) return std::nullopt;
    for (const proxy::MappingQuery& one : answers.found) found.push_back(mapping_of(one));
    is_over = answers.is_over;
  }
  return found.size() < kMost ? std::optional(std::move(found)) : std::nullopt;
}

// A name with a line break is another one in the text of all mappings.
std::optional<Mapping> ask_for(std::optional<proxy::Owner> user, const std::string& maps, Addr address) {
  const proxy::MappingAnswers answers = proxy::ask_mappings(user, maps, 0, address.value, 1);
  if (answers.found.empty() || answers.name.find('\n') != std::string::npos) return std::nullopt;
  Mapping found = mapping_of(answers.found.front());
  found.path = answers.name;
  return found;
}

}  // namespace

namespace {

Result<std::optional<Mapping>> mapping_in(const Result<std::vector<Mapping>>& maps, Addr address) {
  if (!maps) return maps.error();
  const Mapping* found = target::mapping_at(*maps, address);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

}  // namespace

std::optional<std::vector<Mapping>> asked_shared_files(pid_t pid) {
  return ask_for_shared_files(proxy::Foreign(pid).user(), procfs::path(pid, "maps"));
}

std::optional<Mapping> asked_mapping(pid_t pid, Addr address) {
  return ask_for(proxy::Foreign(pid).user(), procfs::path(pid, "maps"), address);
}

std::optional<Mapping> ProcessFiles::asked_mapping_at(Addr address) const {
  return ask_for(foreign_.user(), folder_ + "/maps", address);
}

Result<std::optional<Mapping>> ProcessFiles::mapping_at(Addr address) const {
  if (auto asked = asked_mapping_at(address)) return asked;
  return mapping_in(maps(), address);
}

Result<std::vector<Mapping>> ProcessFiles::shared_files() const {
  if (auto asked = ask_for_shared_files(foreign_.user(), folder_ + "/maps")) return std::move(*asked);
  auto all = maps();
  if (all) std::erase_if(*all, [](const Mapping& m) { return !m.shared; });
  return all;
}

// Nothing at all, and no error: the address space is gone, with its process or by execve (fs/proc/base.c, mem_rw).
Status ProcessFiles::read(Addr from, void* to, std::size_t bytes) const {
  const ReadPiece whole{from, {static_cast<std::uint8_t*>(to), bytes}};
  if (auto done = read_by_proxy({&whole, 1})) return *done;
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t n = ::pread(memory_.get(), at, bytes, static_cast<off_t>(from.value));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error_of_files(pid_, system_error("read of the target's memory", n == 0 ? ESRCH : errno));
    at += n, from = from + static_cast<std::uint64_t>(n), bytes -= static_cast<std::size_t>(n);
  }
  return ok();
}

namespace {

// How many of the first pieces were read whole. It asks for the process by its id: see the callers' later writes, which go to the
// memory that was opened.
std::size_t read_at_once(pid_t pid, std::span<const ReadPiece> pieces) {
  constexpr std::size_t kMost = 64;
  std::array<iovec, kMost> here, there;
  const std::size_t count = std::min(kMost, pieces.size());
  for (std::size_t i = 0; i < count; ++i) {
    here[i] = {pieces[i].to.data(), pieces[i].to.size()};
    there[i] = {reinterpret_cast<void*>(pieces[i].from.value), pieces[i].to.size()};
  }
  ssize_t left = ::process_vm_readv(pid, here.data(), count, there.data(), count, 0);
  std::size_t whole = 0;
  for (; whole < count && left >= static_cast<ssize_t>(pieces[whole].to.size()); ++whole)
    left -= static_cast<ssize_t>(pieces[whole].to.size());
  return whole;
}

}  // namespace

// A process whose first thread has ended is not found by its id; memory that may not be read is, by the file.
Status ProcessFiles::read_all(std::span<const ReadPiece> pieces) const {
  if (auto done = read_by_proxy(pieces)) return *done;
  while (!pieces.empty()) {
    const std::size_t whole = read_at_once(pid_, pieces);
    if (whole == 0) RETURN_IF_ERROR(read(pieces[0].from, pieces[0].to.data(), pieces[0].to.size()));
    pieces = pieces.subspan(std::max<std::size_t>(whole, 1));
  }
  return ok();
}

Status ProcessFiles::write(Addr to, const void* from, std::size_t bytes) const {
  const MemoryPiece whole{to, {static_cast<const std::uint8_t*>(from), bytes}};
  if (auto done = write_by_proxy({&whole, 1})) return *done;
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t n = ::pwrite(memory_.get(), at, bytes, static_cast<off_t>(to.value));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error_of_files(pid_, system_error("write to the target's memory", n == 0 ? ESRCH : errno));
    at += n, to = to + static_cast<std::uint64_t>(n), bytes -= static_cast<std::size_t>(n);
  }
  return ok();
}

Status ProcessFiles::write_all(std::span<const MemoryPiece> pieces) const {
  if (auto done = write_by_proxy(pieces)) return *done;
  for (const MemoryPiece& piece : pieces) RETURN_IF_ERROR(write(piece.at, piece.bytes.data(), piece.bytes.size()));
  return ok();
}

// Nothing, as the two after it, where there is no proxy for it.
std::optional<Status> ProcessFiles::answer_of_proxy(int error, const char* what) const {
  if (error == ENOTSUP) return std::nullopt;
  return error == 0 ? ok() : Status(error_of_files(pid_, system_error(what, error)));
}

std::optional<Status> ProcessFiles::read_by_proxy(std::span<const ReadPiece> pieces) const {
  const auto user = foreign_.user();
  if (!user) return std::nullopt;
  return answer_of_proxy(proxy::read_memory(*user, memory_.get(), pieces), "read of the target's memory");
}

std::optional<Status> ProcessFiles::write_by_proxy(std::span<const MemoryPiece> pieces) const {
  const auto user = foreign_.user();
  if (!user) return std::nullopt;
  return answer_of_proxy(proxy::write_memory(*user, memory_.get(), pieces), "write to the target's memory");
}

Result<std::optional<Mapping>> Target::mapping_at(Addr address) { return mapping_in(maps(), address); }

Result<std::string> Target::status() { return procfs::read(pid(), "status"); }

Status Target::read_all(std::span<const ReadPiece> pieces) {
  for (const ReadPiece& piece : pieces) RETURN_IF_ERROR(read(piece.from, piece.to.data(), piece.to.size()));
  return ok();
}

Status Target::write_all(std::span<const MemoryPiece> pieces) {
  for (const MemoryPiece& piece : pieces) RETURN_IF_ERROR(write(piece.at, piece.bytes.data(), piece.bytes.size()));
  return ok();
}

namespace {

struct Writing {
  int memory;
  std::span<const MemoryPiece> pieces;
};

// In a process that has this one's memory: system calls only.
int carry_out(void* of) {
  const auto& writing = *static_cast<const Writing*>(of);
  ::setpgid(0, 0);  // what kills the tool's process group leaves it alone
  for (const MemoryPiece& piece : writing.pieces) {
    const auto bytes = static_cast<ssize_t>(piece.bytes.size());
    if (::pwrite(writing.memory, piece.bytes.data(), piece.bytes.size(), static_cast<off_t>(piece.at.value)) != bytes)
      return 1;
  }
  return 0;
}

}  // namespace

// As by vfork and not by fork: the program is held all the while. The process's end is no signal (a program that uses the library may
// await children of its own), and no handler of this process may run in it.
bool ProcessFiles::write_by_child(std::span<const MemoryPiece> pieces) const {
  if (auto done = write_by_proxy(pieces)) return bool(*done);
  constexpr std::size_t kStack = 16384;
  alignas(16) std::array<char, kStack> stack;
  Writing writing{memory_.get(), pieces};
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::clone(carry_out, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK, &writing);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  int status = -1;
  while (child > 0 && ::waitpid(child, &status, __WALL) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result<std::int64_t> RunningTarget::system_call(long, const std::array<std::uint64_t, 6>&) {
  return Error{.code = Code::refused, .text = "no thread of the process can make a system call for us"};
}

}  // namespace uprobe::target
