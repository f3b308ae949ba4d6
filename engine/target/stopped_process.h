// SPDX-License-Identifier: MIT
// A running process whose threads are all stopped by ptrace, each wherever it was. It goes on as if the tool had not been there:
// waits go on waiting, stopped processes stay stopped. It survives the death of its tracer at any moment (`arch/code/remote_call.h`).
// (stopped_calls.cpp: what its threads do for the tool.)
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "arch/abi/thread_registers.h"
#include "engine/target/exit_reaper.h"
#include "engine/target/sleep_clock.h"
#include "engine/target/target.h"

namespace uprobe::target {

class StoppedProcess : public Target {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};

  struct Thread {
    pid_t tid;
    arch::ThreadRegisters registers;  // its own
    std::uint64_t mask;               // of blocked signals, its own
    bool in_group_stop;               // by SIGSTOP and the like
    std::optional<Sleep> sleep;       // that the stop has ended, in a call that would begin anew with all of its time
  };

  // Code::refused where a thread cannot be stopped or seen through; Retry::soon: it is in an execve. The
  // process has been let go then, but for threads that have not stopped within `patience`: the end of the calling thread lets these
  // go. A parent in vfork does not stop before its child has gone on.
  static Result<std::unique_ptr<StoppedProcess>> hold(pid_t pid, std::chrono::milliseconds patience = kPatience);
  // One thread alone, for a look: the others run on, and is_held() holds for that thread. Code::refused where a killed tool has left
  // something in the process.
  static Result<std::unique_ptr<StoppedProcess>> hold_thread(pid_t pid, pid_t tid, std::chrono::milliseconds patience);
  ~StoppedProcess() override;  // lets go

  pid_t pid() const override { return files_.pid(); }
  Result<std::vector<Mapping>> maps() override { return files_.maps(); }
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Status write_all(std::span<const MemoryPiece> pieces) override {
    return files_.write_by_child(pieces) ? ok() : files_.write_all(pieces);
  }
  bool is_held() const override { return true; }
  std::vector<ThreadPlace> places() const override;

  const std::vector<Thread>& threads() const { return threads_; }

  // Whether a thread that is at home stands in the code of the return path: on a remote call of a tool that was killed.
  bool is_in_remote_call(const Thread& thread) const {
    return is_remote_call(arch::instruction_pointer(thread.registers));
  }
  bool is_remote_call(std::uint64_t ip) const;

  // Whether a thread is under seccomp filters, or in the strict mode (seccomp.h): looked at once for as long as none of them runs.
  bool is_filtered(pid_t tid) const;

  // Which thread makes the calls from now on; the one before is brought back to its own work first. Without it the first one.
  Status send(pid_t tid);
  Status bring_home();
  // Code::refused where the call does not return: it has been interrupted, and later ones get a moment each. A thread that not even
  // that brings back is lost to the tool: it finds its return path by itself when the calling thread has ended.
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) override;
  // Has the agent's `function` carry out an order (shared::AttachOrder), on a stack that ends where the order stands, all signals
  // held back; waits until it is done.
  Status run(Addr function, Addr order);

  // For threads that are at home: what they go on with.
  Status set_mask(pid_t tid, std::uint64_t mask);
  Status set_registers(pid_t tid, const arch::ThreadRegisters& registers);
  // Lets one thread run for a moment and stops it again. Another one may have begun by then: it is held too.
  Status let_run(pid_t tid, std::chrono::microseconds moment);
  // The same for one in the tool's code, until it has left that: of system calls it makes only those that `is_ours` has. Before
  // another one it stands as if it had not begun.
  Status let_out(pid_t tid, std::chrono::microseconds moment, const std::function<bool(std::uint64_t ip)>& is_ours);

  // From now on no system call is made in the process, not even as it is let go: a call that the stop has cut short stays so.
  void forbid_calls() { may_call_ = false; }
  // Detaches; the process runs (or stays stopped by SIGSTOP). Ok also when it has ended.
  void let_go();

 private:
  StoppedProcess(ProcessFiles files, std::chrono::milliseconds patience)
      : files_(std::move(files)), patience_(patience) {}
  void look_at_sleepers();
  std::optional<Sleep> sleep_until_now(pid_t tid);
  Status check_dispatch() const;
  Status hold_all();
  int seize(pid_t tid);
  Result<bool> seize_new(std::vector<pid_t>& stopping);
  Status await_stops(std::vector<pid_t>& stopping, std::chrono::steady_clock::time_point deadline);
  Status take_state(pid_t tid, bool in_group_stop);
  Status await_others_remote_calls();
  std::optional<int> await_change(std::chrono::steady_clock::time_point deadline);
  Error blocked();
  std::optional<int> change_by(pid_t tid, std::chrono::steady_clock::time_point deadline);
  void take_ends(const std::vector<pid_t>& but);
  Result<int> next_stop();
  Status await_done(Addr state);
  Status await_rest();
  Status left_early();
  Status open_filters();
  Status close_filters();
  Status put(const arch::ThreadRegisters& registers);
  Result<Addr> place_resume_code();
  void resume_interrupted_syscalls();
  void let_go_running(pid_t tid, std::chrono::steady_clock::time_point deadline);
  Result<int> stop_again(pid_t tid, std::chrono::steady_clock::time_point deadline);
  arch::ThreadRegisters resume_frame() const;
  Thread* thread(pid_t tid);

  std::vector<pid_t> wanted_threads() const;

  ProcessFiles files_;
  std::chrono::milliseconds patience_;
  pid_t only_ = 0;                   // the one thread that is to be held; 0: all
  std::map<pid_t, Sleep> sleepers_;  // before the stop
  std::set<pid_t> judged_;           // threads that were there before the stop, and execute the process's code
  mutable std::map<pid_t, bool> filtered_;
  std::vector<Thread> threads_;
  std::vector<pid_t> seized_;                          // also those that have not stopped
  std::optional<ExitReaper> undertaker_;               // of these, while more of them are being seized
  std::chrono::steady_clock::time_point next_take_{};  // of the ends of threads
  pid_t away_ = 0;                                     // on a remote call
  std::chrono::milliseconds call_patience_ = kPatience;
  bool is_suspended_ = false;  // its seccomp filters are
  bool may_call_ = true;
  bool is_at_rest_ = false;  // that one: in a stop after which the kernel looks at what it was doing
  Addr place_;               // of the remote call's code
  std::vector<std::uint8_t> before_;
  bool is_changed_ = false;  // what stands there
};

}  // namespace uprobe::target
