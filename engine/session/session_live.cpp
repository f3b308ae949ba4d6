// SPDX-License-Identifier: MIT
// Changes to a session while its programs run; engine/arm/live_changes.h says how a process is changed.
//
// The thread of run() reads records, the mail service arms, and any other thread may call a change. Three locks, always taken
// in this order: `changing` (one change at a time), then either the service's (armer, probes, flows) or `reading` (the list of
// probes and what the reader knows of events), never both.
#include <algorithm>
#include <set>

#include "engine/session/session_state.h"
#include "engine/spec/listing.h"

namespace uprobe {
namespace {

Error ended() { return Error{.code = Code::refused, .text = "the session has ended"}; }

// "GROUP/EVENT", "EVENT", "GROUP/"; empty: all.
bool is_called(const spec::ProbeSpec& spec, const std::string& name) {
  if (name.empty() || name == spec.event || name == spec.group + "/") return true;
  return name == spec.group + "/" + spec.event;
}

std::string name_of(const Probe& probe) { return probe.spec.group + "/" + probe.spec.event; }

Error about(Error error, const Probe& probe) {
  if (!error.where.empty()) error.text = error.where + ": " + error.text;
  error.definition = probe.definition;
  return spec::at_column(probe.spec, probe.spec.place.place_column, std::move(error));
}

}  // namespace

Status Session::State::has_room(const std::vector<Probe>& more) {
  std::vector<const program::EventProgram*> programs;
  for (const Probe& probe : more)
    if (!table.former(probe)) programs.push_back(&probe.program);
  if (area->has_room(programs)) return ok();
  return Error{.code = Code::limit, .text = "the session has no room for further events"};
}

Result<std::uint16_t> Session::State::number_for(Probe probe) {
  const auto former = table.former(probe);
  if (!former) {
    RETURN_IF_ERROR(area->add_event(probe.program));
    return table.put(std::move(probe), former);
  }
  const Probe& before = table.probes()[*former];
  probe.before = before.owner == probe.owner ? before.before : all_counts_of(*former);
  table.put(std::move(probe), former);
  area->set_event(*former, true);
  return *former;
}

// Switches the events off first, which every process sees at once.
void Session::State::leave(const std::vector<std::uint16_t>& events) {
  if (events.empty()) return;
  table.alone([&] {
    for (const std::uint16_t event : events) {
      area->set_event(event, false);
      table.set_live(event, false);
    }
  });
  const auto is_live = [this](std::uint16_t event) {
    return event < table.probes().size() && table.probes()[event].live;
  };
  mail->alone([&] { mail->changes().remove(events, is_live); });
}

// Enters the probes in the table, in alone(), until one fails.
Status Session::State::enter(const std::vector<Probe>& more, const std::shared_ptr<Client>& client, Entered& entered) {
  const std::uint64_t since = client ? clock->to_ns(trace::Clock::now()) : 0;
  for (const Probe& probe : more) {
    const auto number = number_for(probe);
    if (!number) return number.error();
    table.lead(*number, {.client = client, .index = static_cast<std::uint32_t>(entered.events.size()), .since = since});
    entered.events.push_back(*number);
    add_points(probe, *number, entered.points);
  }
  return ok();
}

// The reader learns the events first: no process may record an event that the reader does not know.
Result<std::vector<std::uint16_t>> Session::State::join(const std::vector<Probe>& more,
                                                        const std::shared_ptr<Client>& client) {
  Entered entered;
  const auto& events = entered.events;
  bool has_begun = false;
  Status joined = table.alone([&]() -> Status {
    RETURN_IF_ERROR(has_room(more));
    has_begun = true;
    const Status all = enter(more, client, entered);
    reader->know_events();
    return all;
  });
  if (!has_begun) return about(joined.error(), more.front());
  if (joined) joined = mail->alone([&] { return mail->changes().add(entered.points); });
  if (joined) return events;
  const Error error = about(joined.error(), events.empty() ? more.front() : table.probes()[events.front()]);
  leave(events);
  table.alone([&] {
    for (const std::uint16_t event : events)
      table.withdraw(event, reader->counts().recorded[event] != 0, client != nullptr);
  });
  return error;
}

// Whether the probes can be added to a program that runs.
Status Session::State::may_join(const std::vector<Probe>& more, plan::Tier tier) const {
  if (tier == plan::Tier::jump)
    return about({.code = Code::refused, .text = "needs a breakpoint, because the program is running"}, more.front());
  for (const Probe& probe : more)
    if (shows_symbols(probe))
      return about(
          {.code = Code::refused, .text = "an event that shows symbol names cannot be added to a running session"},
          probe);
  for (const Probe& probe : more)
    if (probe.returns && probe.returns->mode == plan::ReturnMode::stub && !table.planned().wants_stubs())
      return about({.code = Code::refused, .text = "return stubs can be added only to a session that started with one"},
                   probe);
  return ok();
}

Result<Changes> Session::State::define_one(const Definition& definition) {
  if (!recording || is_leaving) return ended();
  auto more = mail->alone([&] { return table.read(definition); });
  if (!more) return more.error();
  Changes changes;
  std::vector<std::uint16_t> gone;
  for (const std::uint16_t event : table.live_events_of(0)) {
    if (table.is_defined(table.probes()[event])) continue;
    gone.push_back(event);
    changes.removed.push_back(name_of(table.probes()[event]));
  }
  leave(gone);
  if (more->empty()) return changes;
  std::vector<spec::DefinitionSet::Id> ids;
  for (const Probe& probe : *more) {
    ids.push_back(probe.id);
    changes.added.push_back(name_of(probe));
  }
  Status joined = may_join(*more, options.tier);
  if (joined) joined = mail->alone([&] { return number_objects(*more, table.planned()); });
  if (joined) {
    const auto events = join(*more, nullptr);
    joined = events ? ok() : Status(events.error());
  }
  if (joined) return changes;
  for (const auto id : ids) table.forget(id);
  return joined.error();
}

Result<Changes> Session::State::define(const Definition& definition) {
  const std::lock_guard lock(changing);
  return define_one(definition);
}

Result<Changes> Session::State::remove(const std::string& name) {
  const std::lock_guard lock(changing);
  if (!name.empty()) return define_one({.text = "-:" + name, .default_object = {}});
  if (!recording || is_leaving) return ended();
  Changes all;
  std::set<std::string> groups;
  for (const std::uint16_t event : table.live_events_of(0)) groups.insert(table.probes()[event].spec.group);
  for (const std::string& group : groups) {
    const auto changes = define_one({.text = "-:" + group + "/", .default_object = {}});
    if (!changes) return changes.error();
    all.removed.insert(all.removed.end(), changes->removed.begin(), changes->removed.end());
  }
  return all;
}

Result<std::size_t> Session::State::switch_events(const std::string& name, bool on) {
  const std::lock_guard changes(changing);
  if (!recording || is_leaving) return ended();
  std::size_t switched = 0;
  table.alone([&] {
    for (const std::uint16_t event : table.live_events_of(0)) {
      if (!is_called(table.probes()[event].spec, name)) continue;
      table.set_on(event, on);
      area->set_event(event, on);
      ++switched;
    }
  });
  if (switched == 0 && !name.empty()) return Error{.code = Code::not_found, .text = "no such event", .where = name};
  return switched;
}

ProbeState Session::State::state_of(std::uint16_t event) const {
  const Probe& probe = table.probes()[event];
  const EventCounts counts = counts_of(event);
  ProbeState state{.definition = spec::listing(probe.spec, probe.site.offset), .name = name_of(probe), .on = probe.on};
  if (const Client* const client = table.client_of(event)) state.owner = client->known_as;
  state.lost = counts.lost_full + counts.lost_too_big + counts.lost_busy;
  state.hits = counts.recorded + counts.filtered + state.lost;
  state.missed = counts.missed;
  return state;
}

std::vector<ProbeState> Session::State::list() const {
  const std::lock_guard changes(changing);
  std::vector<ProbeState> all;
  if (!recording) return all;
  table.alone([&] {
    for (std::size_t i = 0; i < table.probes().size(); ++i)
      if (table.probes()[i].live) all.push_back(state_of(static_cast<std::uint16_t>(i)));
  });
  return all;
}

Result<Changes> Session::define(const Definition& definition) { return state_->define(definition); }
Result<Changes> Session::remove(const std::string& name) { return state_->remove(name); }
Result<std::size_t> Session::switch_events(const std::string& name, bool on) { return state_->switch_events(name, on); }
std::vector<ProbeState> Session::probes() const { return state_->list(); }

}  // namespace uprobe
