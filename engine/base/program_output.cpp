// SPDX-License-Identifier: MIT
#include "engine/base/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace uprobe {

namespace {

// Where the program's standard streams lead to.
class Streams {
 public:
  explicit Streams(int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 1);
    ::posix_spawn_file_actions_addopen(&actions_, 2, "/dev/null", O_WRONLY, 0);
  }
  ~Streams() { ::posix_spawn_file_actions_destroy(&actions_); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

Result<ProgramOutput> ProgramOutput::start(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe", errno);
  Fd from(ends[0]);
  const Fd to(ends[1]);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0], Streams(to.get()).get(), nullptr, arguments.data(), environ);
  if (error == ENOENT) return Error{.code = Code::not_found, .text = words[0] + " is not installed"};
  if (error != 0) return system_error("starting " + words[0], error);
  return ProgramOutput(pid, std::move(from));
}

ProgramOutput::ProgramOutput(ProgramOutput&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      pipe_(std::move(other.pipe_)),
      buffer_(std::move(other.buffer_)),
      at_(other.at_) {}

ProgramOutput::~ProgramOutput() {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
  wait();
}

int ProgramOutput::wait() {
  int status = -1;
  if (pid_ == 0) return status;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = 0;
  return status;
}

// A program that says nothing for so long is ended: what it reads may be a file that keeps it waiting.
bool ProgramOutput::fill() {
  constexpr std::size_t kPiece = 64 * 1024;
  constexpr int kPatienceMs = 120'000;
  pollfd output{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  int polled = 0;
  do polled = ::poll(&output, 1, kPatienceMs);
  while (polled < 0 && errno == EINTR);
  if (polled == 0) ::kill(pid_, SIGKILL);
  if (polled == 0) return false;
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kPiece);
  ssize_t got = 0;
  do got = ::read(pipe_.get(), buffer_.data() + size, kPiece);
  while (got < 0 && errno == EINTR);
  buffer_.resize(size + static_cast<std::size_t>(got > 0 ? got : 0));
  return got > 0;
}

std::optional<std::string> ProgramOutput::next_line() {
  for (;;) {
    const std::size_t end = buffer_.find('\n', at_);
    const bool is_whole = end != std::string::npos;
    const std::size_t size = std::min((is_whole ? end : buffer_.size()) - at_, kMostLine);
    if (is_whole || size == kMostLine) {
      std::string line = buffer_.substr(at_, size);
      at_ += size + (is_whole && at_ + size == end ? 1 : 0);
      return line;
    }
    if (fill()) continue;
    if (size == 0) return std::nullopt;
    return buffer_.substr(std::exchange(at_, buffer_.size()));
  }
}

bool ProgramOutput::has_succeeded() {
  const int status = wait();
  return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace uprobe
