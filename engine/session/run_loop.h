// SPDX-License-Identifier: MIT
// The course of a session that has begun: its records are read and handed on until its programs have ended, or until its own
// user and then its clients have left. And its end.
//
// Threads: run(), follow() and stop_tracing() belong to the session's own user. read_for_clients() is the work of the reader
// thread, which then takes the turns in the place of run().
#pragma once

#include <mutex>
#include <string>

#include "engine/inject/preloaded.h"
#include "engine/service/course.h"
#include "engine/session/attacher.h"
#include "engine/session/client_service.h"
#include "engine/session/client_tool.h"
#include "engine/session/end_watch.h"
#include "engine/session/event_changes.h"
#include "engine/session/reader_thread.h"
#include "engine/session/recipient.h"
#include "engine/session/recording.h"
#include "engine/session/sockets.h"
#include "engine/session/targets.h"

namespace uprobe {

class RunLoop {
 public:
  // All must outlive it.
  struct Parts {
    Recording& recording;
    Targets& targets;
    EndWatch& ends;
    Attacher& attacher;
    Sockets& sockets;
    EventChanges& changes;
    ReaderThread& reader;
    ClientTool& client_tool;
    ClientService& clients;
    Course& course;
  };
  explicit RunLoop(const Parts& parts) : parts_(parts) {}
  RunLoop(const RunLoop&) = delete;
  RunLoop& operator=(const RunLoop&) = delete;

  // See Session.
  Result<Ending> run(const RunOptions& options, Recipient& recipient);
  void follow(const control::Preloaded& program, const RunOptions& options, Recipient& recipient);
  Ending read_for_clients();

  // Switches recording off and restores the text of every process that has the session: processes that live on run untraced.
  void stop_tracing();

 private:
  using Turn = std::unique_lock<std::mutex>;

  void learn();
  void take_turn();
  bool take_own_turn(Turn& turn, Recipient& recipient, const LeaveWish& wish);
  Ending run_with_clients(Recipient& recipient, const LeaveWish& wish);
  void print_queue(std::string& bytes, Recipient& recipient);
  void follow_turn(Recipient& recipient);
  void end_session(ClientEnd why);
  Ending end_with_processes();

  const Parts parts_;
};

}  // namespace uprobe
