// SPDX-License-Identifier: MIT
// The clients of a session: other tools whose probes this session has among its own (peer_protocol.h). Each client has its own
// names, filters and counts; clients with a probe at the same place each get every hit. Clients come and go as live changes
// (session_live.cpp), so no other client loses hits by it.
//
// The session's own user can leave while there are clients: the session's own probes are removed, the rest stays, and the
// process of the session goes on for its clients. A launched session lasts as long as its program, an attached one until its
// last client has left.
//
// Locks: see session_live.cpp; `settling` is locked last.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/attach/attach.h"
#include "engine/base/exhaustion.h"
#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/session/session_state.h"
#include "engine/spec/listing.h"

namespace uprobe {
namespace {

using namespace std::chrono_literals;

constexpr auto kSettlePatience = 2000ms;  // the reader may be delayed by its own output

Error going() { return Error{.code = Code::refused, .text = "the session has ended", .retry = Retry::anew}; }

std::string list_of(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += (text.empty() ? "" : ",") + std::to_string(pid);
  return text;
}

bool is_alive(pid_t pid) {
  const auto stat = procfs::read(pid, "stat");
  const std::size_t name_end = stat ? stat->rfind(") ") : std::string::npos;
  return name_end != std::string::npos && (*stat)[name_end + 2] != 'Z' && (*stat)[name_end + 2] != 'X';
}

// Owner tool and client tool must mean the same by the same words, in the same file.
std::string described(const Probe& probe) {
  const elf::Identity file = probe.site.file->identity();
  return spec::listing(probe.spec, probe.site.offset) + " in " + std::to_string(file.device) + ":" +
         std::to_string(file.inode);
}

}  // namespace

std::vector<std::string> describe(const std::vector<Probe>& probes) {
  std::vector<std::string> all;
  for (const Probe& probe : probes) all.push_back(described(probe));
  return all;
}

// The processes with which, or for which, the session was started, as far as they still exist.
std::vector<pid_t> Session::State::roots() const {
  if (!attaches) return {child};
  std::vector<pid_t> alive;
  std::copy_if(attached.begin(), attached.end(), std::back_inserter(alive), is_alive);
  std::sort(alive.begin(), alive.end());
  return alive;
}

// A client's probes are in all processes of the session, so the client has to want all of them.
Status Session::State::may_be_joined(const Hello& hello) const {
  std::vector<pid_t> wanted(hello.processes.begin(), hello.processes.end());
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const std::vector<pid_t> there = roots();
  if (wanted == there && !searches) return ok();
  return Error{
      .code = Code::refused,
      .text = "is traced by another uprobe-run, process " +
              std::to_string(attaches && options.known_as != 0 ? options.known_as : ::getpid()) +
              ", together with the processes for which that one was started",
      .where = "process " + list_of(wanted),
      .column = -1,
      .help = searches ? "it finds its processes itself and cannot be joined" : "-P " + list_of(there) + " joins it"};
}

Result<std::vector<std::string>> Session::State::admit(const std::shared_ptr<Client>& client, const Hello& hello) {
  const std::lock_guard lock(changing);
  if (!recording || is_closing) return going();
  RETURN_IF_ERROR(may_be_joined(hello));
  // Two ways to catch the returns of one function would disturb each other.
  if (hello.returns == plan::ReturnMode::stub && options.returns != plan::ReturnMode::stub)
    return Error{.code = Code::refused, .text = "the session that traces it has no return stubs (--return=stub)"};
  SessionOptions wanted;
  wanted.strict = hello.strict, wanted.force = hello.force, wanted.style = hello.style;
  wanted.returns = options.returns;
  auto more = mail->alone([&]() -> Result<std::vector<Probe>> {
    ProbeBuilder its(wanted, table.flows());
    for (const control::FilePoints& file : table.planned().files()) its.know(file.file);
    for (const Definition& definition : hello.definitions) RETURN_IF_ERROR(its.read(definition));
    auto made = its.make_new();
    if (!made) return made;
    RETURN_IF_ERROR(number_objects(*made, table.planned()));
    return made;
  });
  if (!more) return more.error();
  if (more->empty()) return Error{.code = Code::usage, .text = "no probe is defined"};
  const std::uint32_t owner = ++last_owner;
  for (Probe& probe : *more) probe.owner = owner;
  RETURN_IF_ERROR(may_join(*more, hello.tier));
  client->owner = owner, client->tier = hello.tier, client->known_as = control::known_as(client->pid());
  // While output was blocked the rings were not read, and they may be full.
  wants_reader_thread = true;
  if (const std::unique_lock turn(reader_lock, std::try_to_lock); turn && !reader_thread.joinable())
    start_reader_thread();
  settle();
  auto events = join(*more, client);
  if (!events) return events.error();
  client->events = events.take();
  ++client_count;
  return describe(*more);
}

bool Session::State::dismiss(Client& client) {
  {
    const std::lock_guard lock(changing);
    if (recording) leave(table.live_events_of(client.owner));
  }
  settle();
  const std::lock_guard lock(changing);
  --client_count;
  is_closing = is_closing || (is_left && client_count == 0);
  return is_closing;
}

// Waits until the reader has handed on everything that is recorded by now.
void Session::State::settle() {
  std::unique_lock lock(settling);
  const std::uint64_t mine = ++settle_wanted;
  settled.wait_for(lock, kSettlePatience, [&] { return is_over || settle_done >= mine; });
}

void Session::State::serve_settling() {
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(settling);
    wanted = settle_wanted;
    if (wanted == settle_done) return;
  }
  print_settled();
  {
    const std::lock_guard lock(settling);
    settle_done = wanted;
  }
  settled.notify_all();
}

// These two never wait for `changing`: a client that is being admitted holds it and waits for the reader.
bool Session::State::close_if_alone() {
  const std::unique_lock lock(changing, std::try_to_lock);
  if (!lock) return false;
  is_closing = is_closing || client_count == 0;
  return is_closing;
}

bool Session::State::is_deserted() {
  const std::unique_lock lock(changing, std::try_to_lock);
  if (!lock) return false;
  is_closing = is_closing || (is_left && client_count == 0);
  return is_closing;
}

Status Session::State::serve_clients() {
  if (!peer_server) return ok();
  const ClientCalls calls{
      .admit = [this](const auto& client, const Hello& hello) { return admit(client, hello); },
      .dismiss = [this](Client& client) { return dismiss(client); },
      .summary_of =
          [this](const Client& client) {
            const std::lock_guard lock(changing);
            return summary_of(client.owner, &client);
          },
      .forget =
          [this](const Client& client) {
            const std::lock_guard lock(changing);
            table.free_events_of(client.owner);
          },
  };
  return catch_resource_exhaustion([&] { return peer_server->serve(calls), ok(); });
}

// Call with `reader_lock` held. If no thread can be made, the next turn tries again.
void Session::State::start_reader_thread() {
  Recipient* const before = std::exchange(own_recipient, nullptr);
  own_queue.emplace();
  const Status begun = catch_resource_exhaustion([&] {
    reader_thread = start_signal_masked_thread([this] { run_reader_thread(); });
    return ok();
  });
  if (begun) return;
  own_queue.reset();
  own_recipient = before;
}

void Session::State::run_reader_thread() {
  do {
    take_turn();
    if (!recording || !is_deserted()) continue;
    end_session(ClientEnd::owner);
    if (!awaits_program()) break;
  } while (!await_end());
  if (recording || awaits_program()) reader_thread_ending = end_with_processes();
  own_queue->close();
}

Ending Session::State::run_with_clients(Recipient& recipient, const std::function<bool()>& wants_to_leave) {
  constexpr auto kLook = 20ms;
  std::string bytes;
  const auto print = [&] {
    own_queue->swap_out(bytes);
    table.alone([&] { recipient.learn_events(); });
    each_record(bytes, [&](const ClientRecord& record) { recipient.take(record.record, record.task); });
    recipient.end_batch();
  };
  while (own_queue->wait(kLook)) {
    print();
    if (is_left || !wants_to_leave()) continue;
    leave_to_clients();
    print();
    {
      const std::lock_guard lock(changing);
      own_summary = summary_of(0, nullptr);
      table.free_events_of(0);
    }
    if (attaches) return Ending{.detached = true};
  }
  reader_thread.join();
  return reader_thread_ending;
}

// The session's own user leaves as a client does.
void Session::State::leave_to_clients() {
  {
    const std::lock_guard lock(changing);
    is_leaving = true;
    leave(table.live_events_of(0));
  }
  settle();
  const std::lock_guard lock(changing);
  is_left = true;
}

bool Session::has_clients() const {
  State& s = *state_;
  if (!s.reader_thread.joinable()) return false;
  if (!s.close_if_alone()) return true;
  s.reader_thread.join();
  return false;
}

void Session::serve_clients() {
  if (state_->reader_thread.joinable()) state_->reader_thread.join();
}

}  // namespace uprobe
