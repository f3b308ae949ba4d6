// SPDX-License-Identifier: MIT
// Changes to a session while its programs run; engine/arm/live_changes.h says how a process is changed.
//
// The thread of run() reads records, the mail service arms, and any other thread may call a change. Three locks, always taken
// in this order: `changing` (one change at a time), then either the service's (armer, probes, flows) or `reading` (the list of
// probes and what the reader knows of events), never both.
#include <algorithm>
#include <cstring>
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

template <class T>
bool is_same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Whether two probes make the same records, under the same name, at the same place.
bool is_same(const Probe& a, const Probe& b) {
  if (a.site.offset != b.site.offset || a.spec.event != b.spec.event) return false;
  const auto& x = a.program.insns;
  const auto& y = b.program.insns;
  return a.site.file->identity() == b.site.file->identity() && a.returns.has_value() == b.returns.has_value() &&
         spec::listing(a.spec, a.site.offset) == spec::listing(b.spec, b.site.offset) && is_same(x, y) &&
         is_same(a.program.filter, b.program.filter) && a.program.text == b.program.text;
}

}  // namespace

// The removed probe that is defined again now.
std::vector<Probe>::iterator Session::State::before(const Probe& probe) {
  return std::find_if(probes.begin(), probes.end(), [&](const Probe& p) {
    return !p.live && (p.is_free || p.owner == probe.owner) && is_same(p, probe);
  });
}

Status Session::State::has_room(const std::vector<Probe>& more) {
  std::vector<const program::EventProgram*> programs;
  for (const Probe& probe : more)
    if (before(probe) == probes.end()) programs.push_back(&probe.program);
  if (area->has_room(programs)) return ok();
  return Error{.code = Code::limit, .text = "the session has no room for further events"};
}

// An event number is never given to a different event. A definition that comes back, perhaps from another owner, gets the old
// number, so that a thread that was still on its way to the probe records the right event.
Result<std::uint16_t> Session::State::number_for(Probe probe) {
  const auto same = before(probe);
  const auto number = static_cast<std::uint16_t>(same - probes.begin());
  if (same == probes.end()) {
    RETURN_IF_ERROR(area->add_event(probe.program));
    probes.push_back(std::move(probe));
  } else {
    probe.before = same->owner == probe.owner ? same->before : all_counts_of(number);
    *same = std::move(probe);
    area->set_event(number, true);
  }
  return number;
}

// Switches the events off first, which every process sees at once.
void Session::State::leave(const std::vector<std::uint16_t>& events) {
  if (events.empty()) return;
  {
    const std::lock_guard lock(reading);
    for (const std::uint16_t event : events) {
      area->set_event(event, false);
      probes[event].live = false;
    }
  }
  const auto is_live = [this](std::uint16_t event) { return event < probes.size() && probes[event].live; };
  mail->alone([&] { mail->changes().remove(events, is_live); });
}

// The reader learns the events first: no process may record an event that the reader does not know.
Result<std::vector<std::uint16_t>> Session::State::join(const std::vector<Probe>& more,
                                                        const std::shared_ptr<Client>& client) {
  std::vector<std::uint16_t> events;
  control::ProbeSet points;
  Status joined = ok();
  {
    const std::lock_guard lock(reading);
    if (joined = has_room(more); !joined) return about(joined.error(), more.front());
    const std::uint64_t since = client ? clock->to_ns(trace::Clock::now()) : 0;
    for (const Probe& probe : more) {
      const auto number = number_for(probe);
      joined = number ? ok() : Status(number.error());
      if (!joined) break;
      routes.resize(probes.size());
      routes[*number] = {client, static_cast<std::uint32_t>(events.size()), since};
      events.push_back(*number);
      add_points(probe, *number, points);
    }
    reader->know_events();
  }
  if (joined) joined = mail->alone([&] { return mail->changes().add(points); });
  if (joined) return events;
  const Probe& first = events.empty() ? more.front() : probes[events.front()];
  const Error error = about(joined.error(), first);
  leave(events);
  const std::lock_guard lock(reading);
  for (const std::uint16_t event : events) {
    probes[event].was_refused = reader->counts().recorded[event] == 0;
    probes[event].is_free = client != nullptr;
    routes[event] = {};
  }
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
    if (probe.returns && probe.returns->mode == plan::ReturnMode::stub && !planned.wants_stubs())
      return about({.code = Code::refused, .text = "return stubs can be added only to a session that started with one"},
                   probe);
  return ok();
}

Result<Changes> Session::State::define_one(const Definition& definition) {
  if (!recording || is_leaving) return ended();
  auto more = mail->alone([&]() -> Result<std::vector<Probe>> {
    RETURN_IF_ERROR(definer->read(definition));
    return definer->make_new();
  });
  if (!more) return more.error();
  Changes changes;
  std::vector<std::uint16_t> gone;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    if (!probes[i].live || probes[i].owner != 0 || definer->has(probes[i].id)) continue;
    gone.push_back(static_cast<std::uint16_t>(i));
    changes.removed.push_back(name_of(probes[i]));
  }
  leave(gone);
  if (more->empty()) return changes;
  std::vector<spec::DefinitionSet::Id> ids;
  for (const Probe& probe : *more) {
    ids.push_back(probe.id);
    changes.added.push_back(name_of(probe));
  }
  Status joined = may_join(*more, options.tier);
  if (joined) joined = mail->alone([&] { return number_objects(*more, planned); });
  if (joined) {
    const auto events = join(*more, nullptr);
    joined = events ? ok() : Status(events.error());
  }
  if (joined) return changes;
  for (const auto id : ids) definer->forget(id);
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
  for (const Probe& probe : probes)
    if (probe.live && probe.owner == 0) groups.insert(probe.spec.group);
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
  const std::lock_guard reads(reading);
  std::size_t switched = 0;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    if (!probes[i].live || probes[i].owner != 0 || !is_called(probes[i].spec, name)) continue;
    probes[i].on = on;
    area->set_event(static_cast<std::uint32_t>(i), on);
    ++switched;
  }
  if (switched == 0 && !name.empty()) return Error{.code = Code::not_found, .text = "no such event", .where = name};
  return switched;
}

std::vector<ProbeState> Session::State::list() const {
  const std::lock_guard changes(changing);
  const std::lock_guard reads(reading);
  std::vector<ProbeState> all;
  for (std::size_t i = 0; recording && i < probes.size(); ++i) {
    const Probe& probe = probes[i];
    if (!probe.live) continue;
    const EventCounts counts = counts_of(i);
    ProbeState state{
        .definition = spec::listing(probe.spec, probe.site.offset), .name = name_of(probe), .on = probe.on};
    if (i < routes.size() && routes[i].client) state.owner = routes[i].client->known_as;
    state.lost = counts.lost_full + counts.lost_too_big + counts.lost_busy;
    state.hits = counts.recorded + counts.filtered + state.lost;
    state.missed = counts.missed;
    all.push_back(std::move(state));
  }
  return all;
}

Result<Changes> Session::define(const Definition& definition) { return state_->define(definition); }
Result<Changes> Session::remove(const std::string& name) { return state_->remove(name); }
Result<std::size_t> Session::switch_events(const std::string& name, bool on) { return state_->switch_events(name, on); }
std::vector<ProbeState> Session::probes() const { return state_->list(); }

}  // namespace uprobe
