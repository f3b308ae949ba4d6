// SPDX-License-Identifier: MIT
// A program into which ld.so has loaded the agent, and which waits for its session. It is reached through the page that the
// agent shares with the tool (engine/shared/bootstrap.h) and /proc/PID alone: no ptrace, no process_vm_*.
#pragma once

#include <memory>
#include <optional>

#include "engine/base/fd.h"
#include "engine/inject/load.h"
#include "engine/mailbox/heartbeat.h"
#include "engine/mailbox/mail_target.h"
#include "engine/process/block.h"
#include "engine/shared/bootstrap.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class Preloaded {
 public:
  // Accepts the request in the page. Code::damaged when it is malformed or the process does not have the page; Code::killed
  // when the program has given up waiting, which the page shows.
  static Result<std::unique_ptr<Preloaded>> open(Fd page);
  ~Preloaded();

  target::Target& target() { return *target_; }

  // Makes block and area and installs handlers for the agent. On an error no handler is installed.
  Result<Block> load(const trace::Area& area, const BlockNeeds& needs);

  // Lets the program begin, with probes or without. False: it had given up waiting. Later calls do nothing.
  bool finish(bool armed);
  // After finish: whether no process has the session any more. Once true, always true.
  bool is_deserted() const;

 private:
  Preloaded(Fd page, shared::Bootstrap* shared);
  Status find_process();

  // The slot in the page.
  class PageLine : public MailLine {
   public:
    explicit PageLine(shared::Bootstrap& page) : page_(page) {}
    Status read(std::size_t offset, void* to, std::size_t bytes) override;
    Status write(std::size_t offset, const void* from, std::size_t bytes) override;
    void wake() override;
    std::uint32_t rung() override;
    void wait(std::uint32_t rung, std::chrono::nanoseconds limit) override;

   private:
    shared::Bootstrap& page_;
  };

  Fd page_;
  shared::Bootstrap* shared_;  // null after finish
  PageLine line_;
  Conversation thread_;
  std::uint64_t blocked_;
  MappedAgent agent_{};
  std::optional<Heartbeat> heartbeat_;
  std::optional<target::ProcessFiles> files_;
  std::optional<MailTarget> target_;
};

}  // namespace uprobe::control
