// SPDX-License-Identifier: MIT
// Follows programs through execve: a thread that is about to call it says so, is seized, stops at the end of the call with
// the new program, gets the agent, and runs on without a tracer.
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
  // `load` gets the agent into the stopped program; on an error the program runs on untraced and the text is noted.
  using Load = std::function<Status(target::PtraceTarget&)>;
  explicit ExecFollower(Load load) : load_(std::move(load)) {}
  ~ExecFollower();  // lets go of every thread still waited for

  // A thread announces execve of `path` (as it sees it, relative to descriptor `folder`).
  struct Call {
    pid_t pid, tid;
    std::string path;
    int folder;
  };
  // A thread that waits for its turn. Its number alone does not name it: after execve of another thread the new program has it.
  struct Waiting {
    std::function<bool()> still_asks;
    std::function<void()> answer;  // lets it go on to its call
    std::function<void()> forget;  // it has ended
  };
  // True: the thread may go on at once. False: step() answers it or forgets it: of several threads of a process that call execve at the
  // same time the follower lets one go at a time. A thread in execve holds the lock that PTRACE_SEIZE of any other thread asks for,
  // and it waits until the tracer has taken the end of every seized thread (fs/exec.c, de_thread; kernel/ptrace.c, ptrace_attach:
  // cred_guard_mutex): with two seized threads of a process the tracer and the program would wait for each other.
  // Set-id programs and files with capabilities are not followed: traced by a tool without privileges they would lose their own, and
  // a process of another trust domain than the tool's must not get at what they do. Root's tool follows those of its own domain.
  bool begins(Call call, Waiting waiting);
  // The call came back.
  void failed(pid_t tid);

  // Answers every thread that waits, for the end of the session.
  void answer_all();

  // Looks after the threads that are waited for; call often while waiting() is true.
  void step();
  bool waiting() const { return !pending_.empty() || !queue_.empty(); }
  const Notes& notes() const { return notes_; }

 private:
  struct Pending {
    pid_t pid;  // after execve the thread has the process's id
    pid_t tid;
    Credentials before;     // of the program that calls execve
    bool given_up = false;  // nothing more is to be done for it but to let it go, or to see its end
  };
  // A thread whose process has another one in execve.
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
  bool handle_stop(Pending& pending, pid_t who, int status);
  bool is_of_tool(const Credentials& credentials) const { return own_ && is_same_domain(*own_, credentials); }
  Status load(const Pending& pending, target::PtraceTarget& target);

  Load load_;
  const Result<Credentials> own_ = own_credentials();
  std::vector<Pending> pending_;
  std::vector<Queued> queue_;
  Notes notes_;
};

}  // namespace uprobe::control
