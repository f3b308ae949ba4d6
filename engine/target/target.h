// SPDX-License-Identifier: MIT
// A process that is being traced, as control sees it: its mappings, its memory, and system calls made by one of its own
// threads. Who makes them differs: a thread stopped by ptrace, or a thread that asked through the mailbox.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/proxy/foreign.h"
#include "engine/proxy/memory.h"
#include "engine/target/maps.h"

namespace uprobe::target {

// Where a stopped thread goes on.
struct ThreadPlace {
  std::uint64_t ip, sp;
};

// One of several system calls that a target makes one after the other.
struct SystemCall {
  static constexpr int kTakesNone = -1;

  long number;
  std::array<std::uint64_t, 6> arguments;
  int takes = kTakesNone;   // the argument, from 0, that is the result of an earlier call of the list
  std::size_t from = 0;     // the index of that call
  std::int64_t result = 0;  // as the kernel returns it: -errno on failure

  bool has_failed() const { return result < 0 && result > -4096; }
};

using proxy::MemoryPiece;
using proxy::ReadPiece;

class Target {
 public:
  virtual ~Target() = default;

  virtual pid_t pid() const = 0;
  virtual Result<std::vector<Mapping>> maps() = 0;
  // The one that holds an address; nothing: none does. Without the cost of all others where the kernel can do so.
  virtual Result<std::optional<Mapping>> mapping_at(Addr address);
  // The text of /proc/PID/status (proc(5)).
  virtual Result<std::string> status();

  // Whole or error. Writes reach read-only private mappings (text) too.
  virtual Status read(Addr from, void* to, std::size_t bytes) = 0;
  virtual Status write(Addr to, const void* from, std::size_t bytes) = 0;
  // All pieces, as by read().
  virtual Status read_all(std::span<const ReadPiece> pieces);
  // All pieces, as by write(). Where is_held(): also those that are left if this process is killed in the middle.
  virtual Status write_all(std::span<const MemoryPiece> pieces);

  // One system call in the target. The value as the kernel returns it (-errno on failure); an Error when it could not be
  // made at all.
  virtual Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) = 0;

  // The same for several, in their order; all are made, whatever the results are.
  virtual Status system_calls(std::span<SystemCall> calls);

  // Whether it is a program that has not begun: one stopped thread, in memory and with descriptors that no other process shares
  // (fs/exec.c, begin_new_exec).
  virtual bool is_new_program() const { return false; }

  // Whether every thread is stopped, wherever it was: text may be written at once.
  virtual bool is_held() const { return false; }
  // Of all threads of one that is.
  virtual std::vector<ThreadPlace> places() const { return {}; }

  // Runs a function without arguments in the target and returns its result. Only targets whose thread waits in the agent can.
  virtual Result<std::uint64_t> call(Addr function);
};

// What is said of a system call that the target has made and the kernel has refused: "WHAT in the target: ...". It has no `err`,
// because that says something about the tool's own calls, such as that it may not trace.
Error failed_in_target(const std::string& what, std::int64_t result);

// mmap as a call of a list, and its result; an Error names what it was for.
SystemCall map_call(Addr at, std::uint64_t bytes, int protection, int flags, int fd = -1, std::uint64_t offset = 0);
Result<Addr> mapped_by(const SystemCall& call, const std::string& what);
// mmap in the target.
Result<Addr> map_memory(Target& target, Addr at, std::uint64_t bytes, int protection, int flags, int fd,
                        std::uint64_t offset, const std::string& what);

// What is said of a process that ended while the tool worked on it; its `err` is ESRCH.
Error process_ended();
// The same of one whose thread calls execve: that thread takes over the id of the first (fs/exec.c, de_thread), and what is known of
// that one is of a dead one. It passes.
Error in_execve();

// The threads of a process; empty if it is gone.
std::vector<pid_t> threads_of(pid_t pid);

// Whether the id is that of a process, and not of another thread of one, in a kernel that can tell at once (5.3).
bool is_process(pid_t id);

// The process that started this one; 0 if that cannot be found out.
pid_t parent_of(pid_t pid);

// Whether `pid` is a process that this one has started, and not a thread of one.
bool is_own_child(pid_t pid);

// The shared mappings of files of a process, without their paths, and one mapping with its path; nothing: the kernel does not answer such
// questions (before 6.11), there is none, or the process does not answer.
std::optional<std::vector<Mapping>> asked_shared_files(pid_t pid);
std::optional<Mapping> asked_mapping(pid_t pid, Addr address);

// The part that every target shares: /proc/PID. Works for a stopped tracee and, as the same user, for a running process. Another user's
// process is read and written by a proxy (engine/proxy/proxy.h), and may be ETIMEDOUT.
class ProcessFiles {
 public:
  static Result<ProcessFiles> open(pid_t pid);

  pid_t pid() const { return pid_; }
  Result<std::vector<Mapping>> maps() const;
  Result<std::optional<Mapping>> mapping_at(Addr address) const;
  // The same; nothing also where it would need the text of all mappings: before 6.11, and for a name with a line break.
  std::optional<Mapping> asked_mapping_at(Addr address) const;
  // Of these the shared ones of files, without their paths: a kernel from 6.11 on finds them without writing the text of all.
  Result<std::vector<Mapping>> shared_files() const;
  Status read(Addr from, void* to, std::size_t bytes) const;
  // By one system call where that is possible.
  Status read_all(std::span<const ReadPiece> pieces) const;
  Status write(Addr to, const void* from, std::size_t bytes) const;
  Status write_all(std::span<const MemoryPiece> pieces) const;
  // By a process of its own, which goes on if this one is killed. False: what has been written is not known.
  bool write_by_child(std::span<const MemoryPiece> pieces) const;

 private:
  ProcessFiles(pid_t pid, std::string folder, Fd memory)
      : pid_(pid), folder_(std::move(folder)), memory_(std::move(memory)), foreign_(pid) {}
  std::optional<Status> read_by_proxy(std::span<const ReadPiece> pieces) const;
  std::optional<Status> write_by_proxy(std::span<const MemoryPiece> pieces) const;
  std::optional<Status> answer_of_proxy(int error, const char* what) const;
  pid_t pid_;
  std::string folder_;  // in /proc
  Fd memory_;
  proxy::Foreign foreign_;
};

// A process that is only read and written, e.g. to restore its text: it cannot make system calls for us.
class RunningTarget : public Target {
 public:
  explicit RunningTarget(ProcessFiles files) : files_(std::move(files)) {}

  pid_t pid() const override { return files_.pid(); }
  Result<std::vector<Mapping>> maps() override { return files_.maps(); }
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Status read_all(std::span<const ReadPiece> pieces) override { return files_.read_all(pieces); }
  Status write_all(std::span<const MemoryPiece> pieces) override { return files_.write_all(pieces); }
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) override;

 private:
  ProcessFiles files_;
};

}  // namespace uprobe::target
