// SPDX-License-Identifier: MIT
// A session with another process: a thread of this process runs the session and queues the events that it reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/session/session.h"
#include "library/tracer.h"

namespace libuprobe {

class EngineSession final : public Tracer {
 public:
  static Result<std::unique_ptr<Tracer>> launch(const Options& options, const std::vector<std::string>& argv);
  static Result<std::unique_ptr<Tracer>> attach(const Options& options, int pid);
  explicit EngineSession(uprobe::Session session) : session_(std::move(session)) {}
  ~EngineSession() override;

  int pid() const override;
  std::optional<Event> next(std::chrono::milliseconds patience) override;
  std::vector<Event> finish() override;
  std::optional<Ending> ending() override;
  Status add(const std::string& definition) override;
  Status remove(const std::string& event) override;
  Status switch_events(const std::string& event, bool on) override;
  std::vector<Counts> counts() override;
  Status reset(const std::string& event) override;
  std::vector<EventInfo> info(const std::string& event) override;
  void stop() override;

 private:
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void run();
  void take(Event event);

  uprobe::Session session_;
  int attached_ = 0;  // process id; 0: the program was launched
  std::atomic<bool> stop_{false};
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::optional<Ending> ending_;
  std::vector<Counts> last_counts_;  // once the session has ended
  std::thread thread_;
};

}  // namespace libuprobe
