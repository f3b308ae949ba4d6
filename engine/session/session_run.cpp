// SPDX-License-Identifier: MIT
// The run of a session: its records are read and handed on until its programs have ended, or until its own user and then its
// clients have left.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/process/program_end.h"
#include "engine/session/session_state.h"
#include "engine/target/process_stat.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;

// Whether all have ended; forgets those that have.
bool all_ended(std::vector<Fd>& processes, std::chrono::microseconds limit) {
  while (!processes.empty() && has_ended(processes.back().get(), limit)) processes.pop_back();
  return processes.empty();
}

// Reaps the child. A child that was killed in the middle of execve may have been reaped by the mail service.
Ending ending_of(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED) != 0) return {.signalled = true, .code = SIGKILL};
  return {.signalled = info.si_code != CLD_EXITED, .code = info.si_status};
}

}  // namespace

// The child stays a zombie, so that its name can still be read. This asks the pidfd and not waitid, which would also report the
// child's stops while the mail service leads it through execve.
bool has_ended(int pidfd, std::chrono::microseconds limit) {
  pollfd poll_for{.fd = pidfd, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  return ::ppoll(&poll_for, 1, &timeout, nullptr) == 1;
}

Result<Ending> Session::State::run(const RunOptions& run_options, Recipient& recipient) {
  if (ended_early) {
    recipient.end_batch();
    return *ended_early;
  }
  if (connection) return run_as_client(run_options, recipient);
  RETURN_IF_ERROR(stay_with_survivors(run_options));
  own_recipient = &recipient;
  const auto started = steady_clock::now();
  const auto is_over_time = [&] {
    return run_options.duration.count() != 0 && steady_clock::now() - started >= run_options.duration;
  };
  const auto wants_to_leave = [&] {
    return recipient.is_full() || (attaches && recipient.is_broken()) || is_over_time() ||
           (run_options.detach_requested && run_options.detach_requested());
  };
  std::unique_lock turn(reader_lock);
  do {
    if (wants_reader_thread && !reader_thread.joinable()) start_reader_thread();
    if (reader_thread.joinable()) {
      turn.unlock();
      return run_with_clients(recipient, wants_to_leave);
    }
    take_turn();
    turn.unlock();  // a stopped tool waits here, and so does one whose output is blocked: another thread can read then
    recipient.end_batch();
    const bool is_to_leave = recording && wants_to_leave();
    turn.lock();
    if (reader_thread.joinable() || !is_to_leave || !close_if_alone()) continue;
    end_session(ClientEnd::owner);
    if (!awaits_program()) return Ending{.detached = true};
  } while (reader_thread.joinable() || !await_end());
  if (is_daemonized() && recording) {  // first, because the program's parent is about to see its end
    take_turn();
    recipient.end_batch();
    static_cast<void>(wants_to_leave());
  }
  return end_with_processes();
}

void Session::State::take_turn() {
  learn_names();
  if (!recording) return;
  is_flushing = is_flushing || (is_daemonized() && mail->begin_flush());
  if (is_flushing)
    print_settled();
  else
    poll();
  serve_settling();
}

// Whether the program waits at its end for its records to be printed. Where it does not, or the session stays for other
// processes, the flush round ends: any process of the session can ask for one. The checks take a small share of the time.
bool Session::State::is_program_ending() {
  constexpr pid_t kLastOfAll = 1;  // when it ends, all processes of its namespace end
  constexpr int kShare = 5;
  const auto begun = steady_clock::now();
  if (!is_flushing || begun < next_end_look) return false;
  if (recording && (!survivors || child == kLastOfAll) && control::waits_at_its_end(child)) return true;
  next_end_look = begun + kShare * (steady_clock::now() - begun);
  end_flush();
  return false;
}

void Session::State::end_flush() {
  if (std::exchange(is_flushing, false)) mail->end_flush();
}

// Also returns when the program asks for a flush: then it has not ended.
bool Session::State::has_program_ended(std::chrono::microseconds limit) const {
  if (!is_daemonized() || !recording) return has_ended(pidfd.get(), limit);
  pollfd both[] = {{.fd = pidfd.get(), .events = POLLIN, .revents = 0},
                   {.fd = mail->flush_wanted(), .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  ::ppoll(both, std::size(both), &timeout, nullptr);
  return both[0].revents != 0;
}

bool Session::State::await_end() {
  if (is_program_ending()) return true;
  const auto wait = recording ? reader->next_poll() : std::chrono::microseconds(100'000);
  if (waits) return std::this_thread::sleep_for(wait), false;
  if (!(attaches ? all_ended(processes, wait) : has_program_ended(wait))) return false;
  if (!survivors || !recording || survivors->have_ended(wait)) return true;
  if (first_ended && survivors->count() != 0) std::exchange(first_ended, nullptr)(survivors->count());
  return false;
}

Status Session::State::stay_with_survivors(const RunOptions& run_options) {
  if (!run_options.until_last) return ok();
  struct stat status {};
  if (::fstat(area->fd(), &status) != 0) return system_error("fstat of the session area", errno);
  survivors.emplace(status.st_ino, [this] { return mail->is_following(); });
  first_ended = run_options.first_ended;
  return ok();
}

// Notes how many processes go on without the probes that stop_tracing() has removed.
void Session::State::tell_survivors() {
  const auto goes_on = [](pid_t pid) {
    const auto stat = target::stat_of(pid);
    return stat && !target::has_ended(*stat);
  };
  const auto count = std::ranges::count_if(let_go, goes_on);
  if (count == 0) return;
  const std::string who = count == 1 ? "1 traced process goes" : std::to_string(count) + " traced processes go";
  notes.push_back(who + " on untraced; --until=last stays until the last has ended");
}

// Ends the tracing while the programs go on.
void Session::State::end_session(ClientEnd why) {
  stop_tracing();
  read_all();
  if (own_recipient != nullptr) own_recipient->end_batch();
  {
    const std::lock_guard lock(settling);
    is_over = true;
  }
  settled.notify_all();
  if (peer_server) peer_server->end(why);
}

Ending Session::State::end_with_processes() {
  learn_names();
  learn_counted_tasks();
  names.refresh_all();
  if (recording) {
    end_session(ClientEnd::processes);
    tell_survivors();
  }
  if (own_recipient != nullptr) own_recipient->end_batch();
  return awaits_program() ? ending_of(child) : Ending{};
}

void Session::State::poll() {
  table.alone([this] {
    if (own_recipient != nullptr) own_recipient->learn_events();
    reader->poll([this](const trace::EventRecord& record) { hand_on(record); });
    learn_counted_tasks();
    table.flush_clients();
    if (own_queue) own_queue->tell();
  });
}

void Session::State::read_all() {
  table.alone([this] {
    if (own_recipient != nullptr) own_recipient->learn_events();
    reader->finish([this](const trace::EventRecord& record) { hand_on(record); });
  });
}

void Session::State::hand_on(const trace::EventRecord& record) {
  const std::string_view task = names.name(record.task, record.ns);
  const EventTable::Route* const route = table.route_of(record.type);
  if (route != nullptr && route->client) {
    if (record.ns >= route->since) route->client->records.take({route->index, record, task});
  } else if (own_queue) {
    if (!is_left) own_queue->take({record.type, record, task});
  } else if (own_recipient != nullptr) {
    own_recipient->take(record, task);
  }
}

// Prints at least everything that is committed now. The reader keeps records back as long as threads in the middle of a hit may
// still publish older ones: for microseconds, unless such a thread is stopped.
void Session::State::print_settled() {
  const std::uint64_t now = trace::Clock::now();
  const auto may_be_older = [&](std::uint32_t ring) {
    for (std::size_t part = 0; part < area->live_count(); ++part) {
      const trace::LiveArea& live = area->live(part);
      if (live.is_being_written(ring) && __atomic_load_n(&live.ring(ring).stamp, __ATOMIC_RELAXED) < now) return true;
    }
    return false;
  };
  for (int tries = 0; tries < 20; ++tries) {
    bool waiting = false;
    for (std::uint32_t i = 0; i < area->ring_count(); ++i) waiting = waiting || may_be_older(i);
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // more than the difference of the CPUs' clocks
    if (waiting) continue;
    do poll();
    while (reader->next_poll().count() == 0);
    return;
  }
  read_all();
}

}  // namespace uprobe
