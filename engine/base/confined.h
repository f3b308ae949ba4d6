// SPDX-License-Identifier: MIT
// A child process that reads files made by others and can do nothing else: it has no privileges, no descriptor of the tool's,
// little memory and time, and may make only the system calls that reading takes. The tool trusts its answers no more than those
// files.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe {

struct Confinement {
  uid_t user = 0;  // with whose rights it opens further files, if the tool has privileges; 0: the tool's own
  std::uint64_t memory_bytes = 0;    // in addition to the tool's memory at the start
  std::chrono::seconds patience{0};  // for one answer; all answers together have ten times as much processor time
};

class Confined {
 public:
  // `answer` runs in the child, once for each request; an exception ends the child.
  using Answer = std::function<std::string(std::string_view)>;
  static Result<Confined> start(const Confinement& how, const Answer& answer);
  Confined(Confined&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), socket_(std::move(other.socket_)), patience_(other.patience_) {}
  Confined& operator=(Confined&&) = delete;
  ~Confined() { end(); }

  // Code::damaged: the child ended instead of answering. Code::limit: it took too long, or its answer was too large. It has
  // then ended.
  Result<std::string> ask(std::string_view request);

 private:
  Confined(pid_t pid, Fd socket, std::chrono::seconds patience)
      : pid_(pid), socket_(std::move(socket)), patience_(patience) {}
  void end();

  pid_t pid_;  // 0: it is gone
  Fd socket_;
  std::chrono::seconds patience_;
};

}  // namespace uprobe
