// SPDX-License-Identifier: MIT
// The tool's side of a conversation with a thread that waits in the agent (engine/shared/mailbox.h).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/base/result.h"
#include "engine/shared/mailbox.h"
#include "engine/target/process_stat.h"
#include "engine/target/target.h"
#include "engine/trace/area.h"

namespace uprobe::control {

// The way to a slot and to the thread that waits there.
class MailLine {
 public:
  virtual ~MailLine() = default;
  virtual Status read(std::size_t offset, void* to, std::size_t bytes) = 0;  // of the slot
  virtual Status write(std::size_t offset, const void* from, std::size_t bytes) = 0;
  virtual void wake() = 0;
  // Waits until the thread may have answered, at most `limit`; returns at once if rung() no longer returns `rung`.
  virtual std::uint32_t rung() = 0;
  virtual void wait(std::uint32_t rung, std::chrono::nanoseconds limit) = 0;
  // False: the thread is stopped, or has ended.
  virtual bool may_answer() { return true; }
  // How the thread has run until now; nothing: that cannot be told.
  virtual std::optional<target::ThreadRun> run() { return std::nullopt; }
};

// A slot of a process's own mailbox, through /proc/PID/mem. Other processes can ring the bell, and nothing more.
class PrivateLine : public MailLine {
 public:
  // All arguments must outlive it. `called`: the id by which the thread rings (MailSlot); `part`: the live part of its bell.
  PrivateLine(const target::ProcessFiles& files, Addr slot, trace::Area& area, std::size_t part, std::uint32_t called)
      : files_(files), slot_(slot), area_(area), part_(part), called_(called) {}

  Status read(std::size_t offset, void* to, std::size_t bytes) override {
    return files_.read(slot_ + offset, to, bytes);
  }
  Status write(std::size_t offset, const void* from, std::size_t bytes) override {
    return files_.write(slot_ + offset, from, bytes);
  }
  void wake() override;
  std::uint32_t rung() override;
  void wait(std::uint32_t rung, std::chrono::nanoseconds limit) override;
  bool may_answer() override;
  std::optional<target::ThreadRun> run() override;

 private:
  const target::ProcessFiles& files_;
  Addr slot_;
  trace::Area& area_;
  std::size_t part_;
  std::uint32_t called_;
};

class Conversation {
 public:
  // `line` must outlive it.
  explicit Conversation(MailLine& line) : line_(line) {}

  // How long the tool waits for all answers from now on together, and no longer than a tenth of a second for one that the kernel lets
  // run, or that sleeps. Without this call: for each answer two seconds.
  void limit_patience(std::chrono::nanoseconds patience) { patience_ = patience; }
  // What it has waited for answers that have not come, since that call.
  std::chrono::nanoseconds waited_in_vain() const { return in_vain_; }

  // Whether a new request waits; notes its number. False: there is none, or it has been seen.
  bool has_request();
  // Whether the request is the one that was seen, and its thread still waits for the answer.
  bool still_waits() { return hear() == shared::turn(number_, shared::MailState::request); }
  // Tells the thread that its request is seen.
  Status begin();
  // Makes the thread execute a command and returns the result.
  Result<std::uint64_t> command(const std::array<std::uint64_t, 7>& words);
  // Lets the thread go on, and waits for nothing.
  Status answer();
  // The same. False: it had given up; one that is about to is waited for.
  bool finish();

 private:
  std::uint32_t hear();  // 0: it is being written, or cannot be read
  Status say(shared::MailState state);
  Status await_result();

  Status wait_for(std::uint32_t wanted, std::chrono::steady_clock::time_point begun);
  bool is_silent(std::chrono::nanoseconds waited, std::optional<target::ThreadRun>& seen);

  MailLine& line_;
  std::uint32_t number_ = 0;
  std::optional<std::chrono::nanoseconds> patience_;  // that is left
  std::chrono::nanoseconds in_vain_{0};
};

// Whether a copy of a slot has a request that has not been seen.
bool has_request(const shared::MailSlot& slot);

}  // namespace uprobe::control
