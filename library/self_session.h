// SPDX-License-Identifier: MIT
// A session of this process with itself. The self-attach tracer runs it (engine/ipc/self_attach_protocol.h); this class is the
// other end of the socket, on a thread of its own (worker_thread.h): all private functions run there.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "engine/base/fd.h"
#include "engine/ipc/self_attach_protocol.h"
#include "library/callbacks.h"
#include "library/self_attach_tracer.h"
#include "library/tracer.h"
#include "library/worker_thread.h"

namespace libuprobe {

class SelfSession final : public Tracer {
 public:
  static Result<std::unique_ptr<Tracer>> begin(const Options& options);
  SelfSession(std::unique_ptr<Callbacks> callbacks, std::unique_ptr<WorkerThread> thread)
      : callbacks_(std::move(callbacks)), thread_(std::move(thread)) {}
  ~SelfSession() override;

  int pid() const override { return process_; }
  std::optional<Event> next(std::chrono::milliseconds patience) override;
  std::vector<Event> finish() override;
  std::optional<Ending> ending() override;
  Status add(const std::string& definition) override;
  Status remove(const std::string& event) override;
  Status switch_events(const std::string& event, bool on) override;
  std::vector<Counts> counts() override;
  Status reset(const std::string& event) override;
  std::vector<EventInfo> info(const std::string& event) override;
  std::vector<CallbackCounts> callback_counts() override { return callbacks_->counts(); }
  void stop() override;
  Status keep(const std::string& file, std::uint64_t bytes) override;
  Result<std::uint64_t> dump(const std::string& file) override;

 private:
  using Clock = std::chrono::steady_clock;

  Status start(const Options& options);
  Status meet(const Options& options);
  Status await_admission();
  // Waits until a message has come or the session has ended; false: the time is over.
  bool wait(std::optional<Clock::time_point> until);
  void receive();
  void handle(const uprobe::MessageCutter::Message& message);
  void send(std::string_view bytes);
  std::optional<Event> take_next(std::chrono::milliseconds patience);
  Status command(const uprobe::Command& command);
  Status ask(uprobe::CommandKind kind, const std::string& text);
  void ask_counts();
  void leave();
  void let_go();

  const int process_ = ::getpid();
  uprobe::Fd socket_, life_;  // to the self-attach tracer, and its pidfd
  pid_t intermediate_ = 0;
  bool is_tracer_named_ = false;
  uprobe::MessageCutter in_;
  std::map<std::uint32_t, uprobe::program::EventLayout> layouts_;
  std::deque<Event> events_;
  std::vector<Counts> counts_;
  std::optional<Error> refusal_;
  std::optional<uprobe::Reply> reply_;
  bool wants_events_ = true;  // else some that were under way are dropped
  bool is_met_ = false, is_admitted_ = false, has_counts_ = false, has_ended_ = false;
  int tracer_ = 0;
  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<WorkerThread> thread_;  // declared last, so that it ends before any member is destroyed
};

}  // namespace libuprobe
