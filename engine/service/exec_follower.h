// SPDX-License-Identifier: MIT
// Follows programs through execve: a thread announces its call, the tool seizes it, it stops at the end of the call with the
// new program, the tool loads the agent, and the program runs on without a tracer.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/notes.h"
#include "engine/process/credentials.h"
#include "engine/target/ptrace_target.h"

namespace uprobe::control {

class ExecFollower {
 public:
  // `load` loads the agent into the stopped program, which has these credentials. On an error the program runs on untraced and the
  // error is noted.
  using Load = std::function<Status(target::PtraceTarget&, const Credentials&)>;
  // `is_ready`: whether load() takes little time. Until then the program stays stopped; asked again with each step().
  using IsReady = std::function<bool(pid_t)>;
  ExecFollower(Load load, IsReady is_ready) : load_(std::move(load)), is_ready_(std::move(is_ready)) {}
  ~ExecFollower();  // releases every thread that it still waits for

  // A thread announces execve of `path` (as the thread sees it, relative to descriptor `folder`).
  struct Call {
    pid_t pid, tid;
    std::string path;
    int folder;
  };
  // A thread that waits for its turn. Its id alone does not identify it: after another thread's execve the new program has that
  // id.
  struct Waiting {
    std::function<bool()> still_asks;
    std::function<void()> answer;  // lets it make its call
    std::function<void()> forget;  // it has ended
  };
  // True: the thread may proceed at once. False: step() answers or forgets it, because of several threads of a process that
  // call execve at the same time the follower lets one proceed at a time. A thread in execve holds the lock that PTRACE_SEIZE
  // of any other thread needs, and it waits until the tracer has reaped every seized thread (fs/exec.c, de_thread;
  // kernel/ptrace.c, ptrace_attach: cred_guard_mutex): with two seized threads in one process, tracer and program would
  // deadlock. Set-id programs and files with capabilities are not followed: a tool without privileges would make them lose
  // theirs, and processes of another trust domain than the tool's must not see what they do. A tool of root follows those of
  // its own domain.
  bool begins(Call call, Waiting waiting);
  // The announced call failed.
  void failed(pid_t tid);

  // Answers every waiting thread, at the end of the session.
  void answer_all();

  // Handles the threads that it waits for. Call often while waiting() is true.
  void step();
  bool waiting() const { return !pending_.empty() || !queue_.empty(); }
  // How soon: at once as a rule, later where an announced call does not come.
  std::chrono::nanoseconds pace() const;
  const Notes& notes() const { return notes_; }

 private:
  struct Pending {
    pid_t pid;  // after execve the thread has the process's id
    pid_t tid;
    Credentials before;     // of the program that calls execve
    bool given_up = false;  // only to be released, or its end to be seen
    std::chrono::steady_clock::time_point next_doubt{}, since{};
  };
  // A thread whose process has another thread in execve.
  struct Queued {
    Call call;
    Waiting waiting;
    std::chrono::steady_clock::time_point since;
  };
  bool is_in_execve(pid_t pid) const;
  bool is_queued(pid_t pid) const;
  void seize(const Call& call);
  bool advance(Queued& queued);
  bool look_at(Pending& pending);
  static bool is_doubtful(Pending& pending);
  bool handle_stop(Pending& pending, pid_t who, int status);
  bool is_of_tool(const Credentials& credentials) const { return own_ && is_same_domain(*own_, credentials); }
  Status load(const Pending& pending, target::PtraceTarget& target);

  Load load_;
  IsReady is_ready_;
  const Result<Credentials> own_ = own_credentials();
  std::vector<Pending> pending_;
  std::vector<Queued> queue_;
  Notes notes_;
};

}  // namespace uprobe::control
