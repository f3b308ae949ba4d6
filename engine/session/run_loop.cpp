// SPDX-License-Identifier: MIT
#include "engine/session/run_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>

namespace uprobe {
namespace {

using namespace std::chrono_literals;

// Reaps the child. A child that was killed in the middle of execve may have been reaped by the mail service.
Ending ending_of(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED) != 0) return {.signalled = true, .code = SIGKILL};
  return {.signalled = info.si_code != CLD_EXITED, .code = info.si_status};
}

// Waits until the descriptor is readable.
void wait_for(int event, std::chrono::microseconds limit) {
  pollfd poll_for{.fd = event, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  ::ppoll(&poll_for, 1, &timeout, nullptr);
}

}  // namespace

Result<Ending> RunLoop::run(const RunOptions& options, Recipient& recipient) {
  if (parts_.targets.ended_early()) {
    recipient.end_batch();
    return *parts_.targets.ended_early();
  }
  if (parts_.client_tool.has_joined()) return parts_.client_tool.run(options, recipient);
  RETURN_IF_ERROR(parts_.ends.begin(options));
  parts_.recording.own().lead_to(&recipient);
  parts_.course.begin(recipient.wants_course(), recipient.wants_mappings());
  const LeaveWish wish(options, recipient, parts_.targets.attaches());
  Turn turn = parts_.reader.take_over();
  do {
    if (parts_.reader.has_begun()) {
      turn.unlock();
      return run_with_clients(recipient, wish);
    }
    if (take_own_turn(turn, recipient, wish) && !parts_.targets.awaits_program()) return Ending{.detached = true};
  } while (parts_.reader.is_there() || !parts_.ends.await());
  if (parts_.targets.is_daemonized() && parts_.recording.is_on()) {
    take_turn();  // first, because the program's parent is about to see its end
    recipient.end_batch();
    static_cast<void>(wish.is_there());
  }
  return end_with_processes();
}

// Of a process that is seen twice the execs come after it was seen first.
void RunLoop::learn() {
  const auto tasks = parts_.targets.learn_names();
  if (parts_.targets.has_mail()) parts_.course.learn(tasks, parts_.targets.mail().take_execs());
}

void RunLoop::take_turn() {
  learn();
  Recording& recording = parts_.recording;
  if (!recording.is_on()) return;
  if (parts_.ends.begin_flush())
    recording.poll_settled();
  else
    recording.poll();
  parts_.course.step();
  parts_.sockets.tell_turn();
  parts_.reader.serve_settling([&] { recording.poll_settled(); });
}

// True: the session's own user has left, there are no clients, and the session has ended.
bool RunLoop::take_own_turn(Turn& turn, Recipient& recipient, const LeaveWish& wish) {
  take_turn();
  turn.unlock();  // a stopped tool waits here, and so does one whose output is blocked: another thread can read then
  recipient.end_batch();
  const bool is_to_leave = parts_.recording.is_on() && wish.is_there();
  turn.lock();
  if (parts_.reader.is_there() || !is_to_leave || !parts_.clients.close_if_alone()) return false;
  end_session(ClientEnd::owner);
  return true;
}

Ending RunLoop::read_for_clients() {
  do {
    take_turn();
    if (!parts_.recording.is_on() || !parts_.clients.is_deserted()) continue;
    end_session(ClientEnd::owner);
    if (!parts_.targets.awaits_program()) break;
  } while (!parts_.ends.await());
  const bool is_at_end = parts_.recording.is_on() || parts_.targets.awaits_program();
  const Ending ending = is_at_end ? end_with_processes() : Ending{};
  parts_.recording.own().queue().close();
  return ending;
}

void RunLoop::print_queue(std::string& bytes, Recipient& recipient) {
  parts_.recording.own().queue().swap_out(bytes);
  parts_.recording.let_learn(recipient);
  CourseRelay& relay = parts_.recording.own().relay();
  const auto tell = [&](const CourseRelay::Item& item) { recipient.take_course(item); };
  relay.tell_before(tell);
  each_record(bytes, [&](const ClientRecord& record) { recipient.take(record.record, record.task); });
  relay.tell_after(tell);
  recipient.end_batch();
}

Ending RunLoop::run_with_clients(Recipient& recipient, const LeaveWish& wish) {
  constexpr std::chrono::milliseconds kLook = 20ms;
  std::string bytes;
  bool has_left = false;
  const auto print_last = [&] {
    for (int turn = 0; turn < 2; ++turn) print_queue(bytes, recipient);  // the last ends come with the second one
  };
  while (parts_.recording.own().queue().wait(kLook)) {
    print_queue(bytes, recipient);
    if (has_left || !wish.is_there()) continue;
    has_left = true;
    parts_.clients.leave_to_clients(print_last);
    if (parts_.targets.attaches()) return Ending{.detached = true};
  }
  print_last();
  return parts_.reader.join();
}

void RunLoop::stop_tracing() {
  parts_.sockets.stop();
  parts_.attacher.end_search();
  if (parts_.recording.has_area()) parts_.recording.end_requests();
  if (!parts_.changes.end()) return;
  parts_.recording.stop();
  parts_.targets.let_go_of_all(parts_.ends.is_flushing());
}

// Ends the tracing while the programs go on.
void RunLoop::end_session(ClientEnd why) {
  stop_tracing();
  parts_.recording.read_all();
  parts_.course.end(parts_.recording.own().dropped_course());
  parts_.sockets.end_rings();
  parts_.recording.own().end_batch();
  parts_.reader.end_settling();
  parts_.sockets.end_clients(why);
}

Ending RunLoop::end_with_processes() {
  learn();
  parts_.recording.learn_last_names();
  if (parts_.recording.is_on()) {
    end_session(ClientEnd::processes);
    parts_.targets.tell_of_survivors();
  }
  parts_.recording.own().end_batch();
  return parts_.targets.awaits_program() ? ending_of(parts_.targets.child()) : Ending{};
}

void RunLoop::follow_turn(Recipient& recipient) {
  control::MailService& mail = parts_.targets.mail();
  const bool flushes = mail.begin_flush();
  if (flushes)
    parts_.recording.poll_settled();
  else
    parts_.recording.poll();
  recipient.end_batch();
  if (flushes) mail.end_flush();
}

void RunLoop::follow(const control::Preloaded& program, const RunOptions& options, Recipient& recipient) {
  Recording& recording = parts_.recording;
  recording.own().lead_to(&recipient);
  bool deserted = false;
  while (!deserted && !recipient.is_broken() && !(options.detach_requested && options.detach_requested())) {
    deserted = program.is_deserted();
    follow_turn(recipient);
    if (!deserted) wait_for(parts_.targets.mail().flush_wanted(), recording.next_poll());
  }
  if (deserted) recording.end();  // there is no process left to take the probes out of
  stop_tracing();
  follow_turn(recipient);
  recording.read_all();
  recipient.end_batch();
}

}  // namespace uprobe
