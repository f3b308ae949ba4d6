// SPDX-License-Identifier: MIT
#include "engine/session/sockets.h"

#include <unistd.h>

#include <utility>

#include "engine/base/exhaustion.h"
#include "engine/ipc/call_table.h"
#include "engine/ipc/event_info.h"
#include "engine/output/escape.h"
#include "engine/session/event_changes.h"

namespace uprobe {
namespace {

void append(std::string& text, const char* verb, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += text.empty() ? "" : ", ";
  text += std::string(verb) + " " + (names.size() == 1 ? names[0] : std::to_string(names.size()) + " probes");
}

// "added uprobes/e", "removed 3 probes"
std::string describe(const Changes& changes) {
  std::string text;
  append(text, "added", changes.added);
  append(text, "removed", changes.removed);
  return (text.empty() ? "nothing changed" : text) + "\n";
}

Result<std::string> describe(const Result<Changes>& changes) {
  if (!changes) return changes.error();
  return describe(*changes);
}

Result<std::string> describe(const Result<std::size_t>& switched, const char* verb) {
  if (!switched) return switched.error();
  return std::string(verb) + " " + std::to_string(*switched) + (*switched == 1 ? " probe\n" : " probes\n");
}

std::string owner_text(int owner) { return owner == 0 ? std::string() : ", of process " + std::to_string(owner); }

std::string listing(const std::vector<ProbeState>& probes) {
  std::string text;
  for (const ProbeState& probe : probes)
    text += format::escaped(probe.definition) + (probe.on ? " # on" : " # off") + owner_text(probe.owner) + "\n";
  return text;
}

std::string statistics(const std::vector<ProbeState>& probes) {
  std::string text;
  for (const ProbeState& probe : probes) {
    text += probe.name + owner_text(probe.owner) + " " + std::to_string(probe.hits) + " hits, " +
            std::to_string(probe.lost) + " lost";
    text +=
        (probe.missed == 0 ? "" : ", " + std::to_string(probe.missed) + " returns not followed") + std::string("\n");
  }
  return text;
}

// A line for each event: "shop/sold on, 2 places, 12 hits, 0 lost, "count=%d what=%s"".
Result<std::string> information(const std::vector<ProbeState>& probes, const std::string& name) {
  if (probes.empty() && !name.empty()) return Error{.code = Code::not_found, .text = "no such event", .where = name};
  std::string text;
  for (const EventInfo& event : events_of(probes)) {
    text += event.name + owner_text(event.owner) + (event.on ? " on, " : " off, ") + std::to_string(event.places) +
            (event.places == 1 ? " place, " : " places, ") + std::to_string(event.hits) + " hits, " +
            std::to_string(event.lost) + " lost";
    if (!event.print_format.empty()) text += ", \"" + format::escaped(event.print_format) + "\"";
    text += "\n";
  }
  return text;
}

// "lost by CPU: 12 on 0, 3 on 5"; nothing where no hit is lost.
std::string losses(const std::vector<std::uint64_t>& lost) {
  std::string text;
  for (std::size_t cpu = 0; cpu < lost.size(); ++cpu)
    if (lost[cpu] != 0)
      text += (text.empty() ? "lost by CPU: " : ", ") + std::to_string(lost[cpu]) + " on " + std::to_string(cpu);
  return text.empty() ? text : text + "\n";
}

// With a line of all events where the command is about all.
Result<std::string> information(const EventChanges& changes, const std::string& name) {
  auto text = information(changes.list(name), name);
  if (text && name.empty()) *text += losses(changes.lost_by_cpu());
  return text;
}

Result<std::string> table_of(const std::vector<CallSummary>& rows) {
  if (!rows.empty()) return encode(rows);
  return Error{.code = Code::refused, .text = "the session sums up no calls", .help = "-c or -C, when it starts"};
}

Result<std::string> follow(EventChanges& changes, const Sockets::Rows& rows, const Command& order) {
  switch (order.kind) {
    case CommandKind::summary:
      return table_of(rows());
    case CommandKind::define:
      return describe(changes.define({.text = order.text,
                                      .default_object = order.default_object,
                                      .filter = order.filter.empty() ? std::nullopt : std::optional(order.filter)}));
    case CommandKind::remove:
      return describe(changes.remove(order.text));
    case CommandKind::clear:
      return describe(changes.remove({}));
    case CommandKind::enable:
      return describe(changes.switch_events(order.text, true), "enabled");
    case CommandKind::disable:
      return describe(changes.switch_events(order.text, false), "disabled");
    case CommandKind::list:
      return listing(changes.list());
    case CommandKind::tiers:
      return changes.list_tiers();
    case CommandKind::stats:
      return statistics(changes.list());
    case CommandKind::reset:
      return describe(changes.reset_counts(order.text), "reset");
    case CommandKind::info:
      return information(changes, order.text);
    case CommandKind::keep:
    case CommandKind::dump:
      break;
  }
  return Error{.code = Code::damaged, .text = "a command that this session does not know"};
}

std::string no_sockets_text(const Error& why) {
  const bool has_place = why.where.empty() || why.text.find(why.where) != std::string::npos;
  return "no other tool can join or change this session: " + (has_place ? "" : why.where + " ") + why.text;
}

// Runs the commands in order until one fails. The effects of earlier ones stay.
Reply answer(EventChanges& changes, const Sockets::Rows& rows, const std::vector<Command>& commands) {
  Reply reply;
  for (; reply.failed < commands.size(); ++reply.failed) {
    const Status done = catch_resource_exhaustion([&]() -> Status {
      const auto text = follow(changes, rows, commands[reply.failed]);
      if (!text) return text.error();
      reply.text += *text;
      return ok();
    });
    if (done) continue;
    reply.error = done.error();
    break;
  }
  return reply;
}

}  // namespace

// A session without a name goes on without a socket where none can be made. A folder that another user has prepared is a note,
// which the user always sees; that the system has no place for a socket is a detail.
Status Sockets::open_usual() {
  if (!options_.has_socket) return ok();
  auto opened = ControlServer::open(options_.name, options_.known_as != 0 ? options_.known_as : ::getpid());
  auto for_clients = opened ? PeerServer::open() : Result<PeerServer>(opened.error());
  if (opened && for_clients) {
    control_.emplace(opened.take());
    clients_.emplace(for_clients.take());
    return ok();
  }
  const Error why = opened ? for_clients.error() : opened.error();
  if (!options_.name.empty()) return why;
  auto& list = why.err != 0 || why.code != Code::refused ? messages_.details : messages_.notes;
  list.push_back(no_sockets_text(why));
  return ok();
}

Status Sockets::open() {
  if (!options_.ring_socket.empty()) {
    auto opened = rings::RingServer::open(options_.ring_socket);
    if (!opened) return opened.error();
    rings_.emplace(opened.take());
  }
  return open_usual();
}

Status Sockets::serve_rings() {
  const auto layout_of = [this](std::uint32_t number) {
    return table_.alone([&] {
      const std::vector<Probe>& probes = table_.probes();
      return number < probes.size() ? std::optional(probes[number].program.layout) : std::nullopt;
    });
  };
  return catch_resource_exhaustion(
      [&] { return rings_->serve(recording_.area(), recording_.tick_rate(), layout_of), ok(); });
}

Status Sockets::serve(EventChanges& changes, const Rows& rows, ClientCalls calls) {
  if (rings_) RETURN_IF_ERROR(serve_rings());
  if (clients_) RETURN_IF_ERROR(catch_resource_exhaustion([&] { return clients_->serve(std::move(calls)), ok(); }));
  if (!control_) return ok();
  return catch_resource_exhaustion([&] {
    return control_->serve([&changes, rows](const auto& commands) { return answer(changes, rows, commands); }), ok();
  });
}

void Sockets::close() {
  rings_.reset();
  clients_.reset();
  control_.reset();
}

void Sockets::stop() {
  control_.reset();
  if (clients_) clients_->close();
}

void Sockets::end_clients(ClientEnd why) {
  if (clients_) clients_->end(why);
}

}  // namespace uprobe
