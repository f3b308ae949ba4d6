// SPDX-License-Identifier: MIT
// A program started under ptrace, stopped at the end of its execve: nothing of it has run yet. It survives the death of its
// tracer at any moment, and then begins untraced.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/abi/thread_registers.h"
#include "engine/target/return_path.h"
#include "engine/target/target.h"

namespace uprobe::target {

// What happens between fork and execve.
struct LaunchHooks {
  void (*in_child)() = nullptr;  // runs in the child (dispositions, mask)
  // Runs in the calling process while the child waits. The child has inherited everything by then, and this work delays no program
  // that runs already. An error ends the launch.
  std::function<Status()> in_parent = nullptr;
};

class PtraceTarget : public Target {
 public:
  // Starts `path` with `argv` and the environment of the caller; returns with it stopped. When execve fails there:
  // Code::not_found or Code::not_executable, as the errno says.
  static Result<std::unique_ptr<PtraceTarget>> launch(const std::string& path, const std::vector<std::string>& argv,
                                                      const LaunchHooks& hooks);
  // The same with the process `pid`, which waits at the other end of the line (engine/base/start_line.h): it says one number when it
  // may be traced, and becomes the program. It is no child of the caller. Code::killed if it has ended by then, also for its
  // execve has failed, which it has told its user then.
  static Result<std::unique_ptr<PtraceTarget>> launch_waiting(pid_t pid, int line, const std::string& path);
  // Takes over a tracee of the calling thread that stands at PTRACE_EVENT_EXEC (options: TRACESYSGOOD). When this fails the
  // tracee has been let go.
  static Result<std::unique_ptr<PtraceTarget>> adopt(pid_t pid);
  // A launched target that was never released is killed, an adopted one let go.
  ~PtraceTarget() override;

  pid_t pid() const override { return files_.pid(); }
  // Read again only after a call that may have changed them: it shares its memory with no other process.
  Result<std::vector<Mapping>> maps() override;
  // As it was when it was stopped: what the tool asks it for only the program itself changes.
  Result<std::string> status() override;
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status read_all(std::span<const ReadPiece> pieces) override { return files_.read_all(pieces); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Status write_all(std::span<const MemoryPiece> pieces) override { return files_.write_all(pieces); }
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) override;
  Status system_calls(std::span<SystemCall> calls) override;
  bool is_new_program() const override { return true; }

  // Memory of the program that the tool may use until it lets go of it; nothing where there is none. Its beginning is zero.
  static constexpr std::uint64_t kScratchBytes = ListedCalls::kScratchBytes;
  std::optional<Addr> scratch();

  // What the thread's signal mask will be when it runs. All signals are held back while it is stopped.
  std::uint64_t signal_mask() const { return mask_; }
  Status set_signal_mask(std::uint64_t mask);

  // It ends with this exit code, without having run. The target is good for nothing afterwards.
  void end(int code);

  // Registers and mask as they were, then detach: the target runs free.
  Status release();

 private:
  PtraceTarget(ProcessFiles files) : files_(std::move(files)) {}
  static Result<std::unique_ptr<PtraceTarget>> stopped_at_exec(pid_t pid);
  Status prepare();
  std::optional<int> await_change() const;
  Result<int> next_stop();
  Result<int> run_to_stop(bool stops_at_calls, int signal);
  int defer_signal(int status);
  bool makes_lists();
  Status make_list(std::span<SystemCall> calls, std::size_t first, std::size_t count);
  Status run_list(arch::ThreadRegisters& r);

  ProcessFiles files_;
  std::optional<std::vector<Mapping>> maps_;
  std::optional<std::string> status_;
  arch::ThreadRegisters registers_{};
  std::uint64_t mask_ = 0;
  ReturnPath
      return_path_;  // at every moment from prepare() on: if we die, the program begins as if we had not been there
  std::optional<ListedCalls> lists_;          // once it was tried to prepare them
  std::vector<int> deferred_signals_;         // arrived while we worked; sent again at release
  std::chrono::milliseconds patience_{2000};  // for a call of one that was adopted
  bool prepared_ = false;                     // its registers are ours
  bool passes_filters_ = false;               // every call of its, to a filter that may end it
  bool attached_ = true;
  bool ours_ = true;  // launched by us, not adopted
};

}  // namespace uprobe::target
