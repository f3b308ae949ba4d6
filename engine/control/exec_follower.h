// Follows programs through execve: a thread that is about to call it says so, is seized, stops at the end of the call with
// the new program, gets the agent, and runs on without a tracer.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/control/credentials.h"
#include "engine/target/ptrace_target.h"

namespace uprobe::control {

class ExecFollower {
 public:
  // `load` gets the agent into the stopped program; on an error the program runs on untraced and the text is noted.
  using Load = std::function<Status(target::PtraceTarget&)>;
  explicit ExecFollower(Load load) : load_(std::move(load)) {}
  ~ExecFollower();  // lets go of every thread still waited for

  // The thread `tid` of process `pid` announces execve of `path` (as it sees it, relative to descriptor `folder`).
  // Set-id programs and files with capabilities are not followed: traced by a tool without privileges they would lose their own, and
  // a process of another trust domain than the tool's must not get at what they do. Root's tool follows those of its own domain.
  void begins(pid_t pid, pid_t tid, const std::string& path, int folder);
  // The call came back.
  void failed(pid_t tid);

  // Looks after the threads that are waited for; call often while waiting() is true.
  void step();
  bool waiting() const { return !pending_.empty(); }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Pending {
    pid_t pid;  // after execve the thread has the process's id
    pid_t tid;
    Credentials before;     // of the program that calls execve
    bool given_up = false;  // nothing more is to be done for it but to let it go, or to see its end
  };
  bool look_at(Pending& pending);
  bool handle_stop(Pending& pending, pid_t who, int status);
  bool is_of_tool(const Credentials& credentials) const { return own_ && *own_ == credentials; }
  Status load(const Pending& pending, target::PtraceTarget& target);

  Load load_;
  const Result<Credentials> own_ = own_credentials();
  std::vector<Pending> pending_;
  std::vector<std::string> notes_;
};

}  // namespace uprobe::control
