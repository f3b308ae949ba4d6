// SPDX-License-Identifier: MIT
#include "bench/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace uprobe::bench {
namespace {

struct Pipe {
  Fd read, write;
};

// Closed in every program but the one whose standard stream it becomes: otherwise the end of the input would not get through.
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& argv, const std::string& errors) {
  auto in = make_pipe(), out = make_pipe();
  if (!in) return in.error();
  if (!out) return out.error();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in->read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out->write.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int err = ::posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, pointers(argv).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (err != 0) return system_error(argv[0], err);
  return Child(pid, std::move(in->write), std::move(out->read));
}

Child::~Child() { static_cast<void>(finish()); }

Status Child::send(const std::string& line) {
  const std::string text = line + "\n";
  if (const int err = write_all(to_.get(), text.data(), text.size())) return system_error("write to a target", err);
  return ok();
}

Result<std::string> Child::receive() {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    char bytes[256];
    const ssize_t n = ::read(from_.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{.code = Code::system, .text = "a target ended before it answered"};
    received_.append(bytes, static_cast<std::size_t>(n));
  }
}

Status Child::finish() {
  to_.reset();
  if (pid_.value == 0) return ok();
  int status = 0;
  while (::waitpid(pid_.value, &status, 0) < 0 && errno == EINTR) {
  }
  pid_.value = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok();
  return Error{.code = Code::system, .text = "a target did not end well, status " + std::to_string(status)};
}

}  // namespace uprobe::bench
