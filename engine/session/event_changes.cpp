// SPDX-License-Identifier: MIT
#include "engine/session/event_changes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/spec/listing.h"

namespace uprobe {
namespace {

Error ended() { return Error{.code = Code::refused, .text = "the session has ended"}; }

// "GROUP/EVENT", "EVENT", "GROUP/"; empty: all.
bool is_called(const spec::ProbeSpec& spec, const std::string& name) {
  if (name.empty() || name == spec.event || name == spec.group + "/") return true;
  return name == spec.group + "/" + spec.event;
}

Error no_such_event(const std::string& name) {
  return Error{.code = Code::not_found, .text = "no such event", .where = name};
}

std::string name_of(const Probe& probe) { return probe.spec.group + "/" + probe.spec.event; }

Error about(Error error, const Probe& probe) {
  if (!error.where.empty()) error.text = error.where + ": " + error.text;
  error.definition = probe.definition;
  return spec::at_column(probe.spec, probe.spec.place.place_column, std::move(error));
}

Error refused(std::string text, const Probe& probe) {
  return about({.code = Code::refused, .text = std::move(text)}, probe);
}

}  // namespace

Status EventChanges::has_room(const std::vector<Probe>& more) const {
  std::vector<const program::EventProgram*> programs;
  for (const Probe& probe : more)
    if (!table_.former(probe)) programs.push_back(&probe.program);
  if (recording_.area().has_room(programs)) return ok();
  return Error{.code = Code::limit, .text = "the session has no room for further events"};
}

Result<std::uint16_t> EventChanges::number_for(Probe probe) {
  const auto former = table_.former(probe);
  if (!former) {
    RETURN_IF_ERROR(recording_.area().add_event(probe.program));
    return table_.put(std::move(probe), former);
  }
  const Probe& before = table_.probes()[*former];
  probe.before = before.owner == probe.owner ? before.before : recording_.all_counts_of(*former);
  table_.put(std::move(probe), former);
  recording_.area().set_event(*former, true);
  return *former;
}

// Switches the events off first, which every process sees at once.
void EventChanges::remove_events(const std::vector<std::uint16_t>& events) {
  if (events.empty()) return;
  table_.alone([&] {
    for (const std::uint16_t event : events) {
      recording_.area().set_event(event, false);
      table_.set_live(event, false);
    }
  });
  const auto is_live = [this](std::uint16_t event) {
    return event < table_.probes().size() && table_.probes()[event].live;
  };
  control::MailService& mail = targets_.mail();
  mail.alone([&] { mail.changes().remove(events, is_live); });
}

// Enters the probes in the table, in its alone(), until one fails.
Status EventChanges::enter(const std::vector<Probe>& more, const std::shared_ptr<Client>& client, Entered& entered) {
  const std::uint64_t since = client ? recording_.now_ns() : 0;
  for (const Probe& probe : more) {
    const auto number = number_for(probe);
    if (!number) return number.error();
    const auto index = static_cast<std::uint32_t>(entered.events.size());
    table_.lead(*number, {.client = client, .index = index, .since = since});
    entered.events.push_back(*number);
    add_points(probe, *number, entered.points);
  }
  return ok();
}

// The reader learns the events first: no process may record an event that the reader does not know.
Result<std::vector<std::uint16_t>> EventChanges::join(const std::vector<Probe>& more,
                                                      const std::shared_ptr<Client>& client) {
  Entered entered;
  const auto& events = entered.events;
  Status room = ok();
  Status joined = table_.alone([&]() -> Status {
    if (room = has_room(more); !room) return room;
    Status all = enter(more, client, entered);
    recording_.know_events();
    return all;
  });
  if (!room) return about(room.error(), more.front());
  control::MailService& mail = targets_.mail();
  if (joined)
    joined = mail.alone([&]() -> Status {
      RETURN_IF_ERROR(mail.changes().add(entered.points));
      mail.look_at_generated_code();
      return ok();
    });
  if (joined) return events;
  const Error error = about(joined.error(), events.empty() ? more.front() : table_.probes()[events.front()]);
  remove_events(events);
  table_.alone([&] {
    for (const std::uint16_t event : events)
      table_.withdraw(event, recording_.read_counts().recorded[event] != 0, client != nullptr);
  });
  return error;
}

Status EventChanges::may_join(const std::vector<Probe>& more, plan::Tier tier) const {
  if (tier == plan::Tier::jump) return refused("needs a breakpoint, because the program is running", more.front());
  for (const Probe& probe : more)
    if (probe.owner != 0 && probe.spec.place.is_generated)
      return refused("generated code is probed by the session that traces the process, not by one that joins it",
                     probe);
  for (const Probe& probe : more)
    if (shows_symbols(probe))
      return refused("an event that shows symbol names cannot be added to a running session", probe);
  for (const Probe& probe : more)
    if (probe.returns && probe.returns->mode == plan::ReturnMode::stub && !table_.planned().wants_stubs())
      return refused("return stubs can be added only to a session that started with one", probe);
  return ok();
}

// The session's own events that a line has deleted.
std::vector<std::uint16_t> EventChanges::undefined_events() const {
  std::vector<std::uint16_t> events = table_.live_events_of(0);
  std::erase_if(events, [&](std::uint16_t event) { return table_.is_defined(table_.probes()[event]); });
  return events;
}

Status EventChanges::add(std::vector<Probe>& more) {
  for (const Probe& probe : more)
    if (options_.has_fixed_fields) RETURN_IF_ERROR(table_.check_fields(probe));
  RETURN_IF_ERROR(may_join(more, options_.tier));
  RETURN_IF_ERROR(targets_.mail().alone([&] { return number_objects(more, table_.planned()); }));
  const auto events = join(more, nullptr);
  return events ? ok() : Status(events.error());
}

Result<Changes> EventChanges::define_one(const Definition& definition) {
  if (is_closed()) return ended();
  auto more = targets_.mail().alone([&] { return table_.read(definition); });
  if (!more) return more.error();
  Changes changes;
  const std::vector<std::uint16_t> gone = undefined_events();
  for (const std::uint16_t event : gone) changes.removed.push_back(name_of(table_.probes()[event]));
  remove_events(gone);
  if (more->empty()) return changes;
  for (const Probe& probe : *more) changes.added.push_back(name_of(probe));
  const Status added = add(*more);
  if (added) return changes;
  for (const Probe& probe : *more) table_.forget(probe.id);
  return added.error();
}

Result<Changes> EventChanges::define(const Definition& definition) {
  return alone([&] { return define_one(definition); });
}

Result<Changes> EventChanges::remove_all() {
  if (is_closed()) return ended();
  Changes all;
  std::set<std::string> groups;
  for (const std::uint16_t event : table_.live_events_of(0)) groups.insert(table_.probes()[event].spec.group);
  for (const std::string& group : groups) {
    const auto changes = define_one({.text = "-:" + group + "/", .default_object = {}});
    if (!changes) return changes.error();
    all.removed.insert(all.removed.end(), changes->removed.begin(), changes->removed.end());
  }
  return all;
}

Result<Changes> EventChanges::remove(const std::string& name) {
  return alone([&] { return name.empty() ? remove_all() : define_one({.text = "-:" + name, .default_object = {}}); });
}

void EventChanges::switch_semaphores(const std::vector<std::uint16_t>& events, bool on) {
  std::vector<control::LiveChanges::SemaphoreOf> semaphores;
  for (const std::uint16_t event : events) {
    const Probe& probe = table_.probes()[event];
    if (const auto counter = probe.spec.place.reference_counter)
      semaphores.push_back({probe.site.file, *counter, event});
  }
  if (semaphores.empty()) return;
  control::MailService& mail = targets_.mail();
  mail.alone([&] { mail.changes().switch_semaphores(semaphores, on); });
}

// The session's own.
std::vector<std::uint16_t> EventChanges::events_called(const std::string& name) const {
  std::vector<std::uint16_t> events = table_.live_events_of(0);
  std::erase_if(events, [&](std::uint16_t event) { return !is_called(table_.probes()[event].spec, name); });
  return events;
}

Result<std::size_t> EventChanges::reset_counts(const std::string& name) {
  const std::lock_guard lock(changing_);
  if (is_closed()) return ended();
  const std::vector<std::uint16_t> events = events_called(name);
  if (events.empty() && !name.empty()) return no_such_event(name);
  table_.alone([&] {
    for (const std::uint16_t event : events) {
      table_.set_before(event, recording_.all_counts_of(event));
      recording_.reset_sums(event);
    }
  });
  if (name.empty()) lost_before_ = recording_.area().lost_by_cpu();
  return events.size();
}

// The semaphores of markers are up at least as long as the events are on.
Result<std::size_t> EventChanges::switch_events(const std::string& name, bool on) {
  const std::lock_guard lock(changing_);
  if (is_closed()) return ended();
  const std::vector<std::uint16_t> events = events_called(name);
  if (on) switch_semaphores(events, on);
  table_.alone([&] {
    for (const std::uint16_t event : events) {
      table_.set_on(event, on);
      recording_.area().set_event(event, on);
    }
  });
  if (!on) switch_semaphores(events, on);
  if (events.empty() && !name.empty()) return no_such_event(name);
  return events.size();
}

std::vector<std::uint64_t> EventChanges::lost_by_cpu() const {
  const std::lock_guard lock(changing_);
  if (!recording_.is_on()) return {};
  std::vector<std::uint64_t> lost = recording_.area().lost_by_cpu();
  for (std::size_t i = 0; i < lost.size() && i < lost_before_.size(); ++i)
    lost[i] -= std::min(lost[i], lost_before_[i]);
  return lost;
}

ProbeState EventChanges::state_of(std::uint16_t event) const {
  const Probe& probe = table_.probes()[event];
  const EventCounts counts = recording_.counts_of(event);
  ProbeState state{.definition = spec::listing(probe.spec, probe.site.offset), .name = name_of(probe), .on = probe.on};
  if (const Client* const client = table_.client_of(event)) state.owner = client->known_as;
  state.lost = lost_hits(counts);
  state.hits = hits_while_on(counts);
  state.missed = counts.missed;
  state.print_format = probe.spec.print_format;
  return state;
}

std::vector<ProbeState> EventChanges::list(const std::string& name) const {
  const std::lock_guard lock(changing_);
  std::vector<ProbeState> all;
  if (!recording_.is_on()) return all;
  table_.alone([&] {
    for (std::size_t i = 0; i < table_.probes().size(); ++i)
      if (table_.probes()[i].live && is_called(table_.probes()[i].spec, name))
        all.push_back(state_of(static_cast<std::uint16_t>(i)));
  });
  return all;
}

std::string EventChanges::list_tiers() const {
  const std::lock_guard lock(changing_);
  if (!recording_.is_on() || !targets_.has_mail()) return {};
  control::MailService& mail = targets_.mail();
  const auto seen = mail.alone([&] { return std::pair(mail.changes().tiers(), targets_.armer().report().against); });
  const auto& counts = seen.first;
  const auto& against = seen.second;
  std::string text;
  table_.alone([&] {
    const auto events = static_cast<std::uint16_t>(table_.probes().size());
    for (std::uint16_t event = 0; event < events; ++event) {
      if (!table_.probes()[event].live) continue;
      const auto count = counts.find(event);
      const auto why = against.find(event);
      const Client* const client = table_.client_of(event);
      text += name_of(table_.probes()[event]) +
              (client != nullptr ? ", of process " + std::to_string(client->known_as) : "") + " " +
              control::describe(count != counts.end() ? count->second : control::TierCount{},
                                why != against.end() ? why->second : "") +
              "\n";
    }
  });
  return text;
}

std::optional<std::vector<EventProgress>> EventChanges::progress() const {
  const std::unique_lock lock(changing_, std::try_to_lock);
  if (!lock || !recording_.is_on()) return std::nullopt;
  std::vector<EventProgress> all;
  table_.alone([&] {
    all.reserve(table_.probes().size());
    for (std::size_t i = 0; i < table_.probes().size(); ++i) {
      if (table_.probes()[i].owner != 0 || table_.probes()[i].was_refused) continue;
      const EventCounts counts = recording_.counts_of(i);
      all.push_back({.name = name_of(table_.probes()[i]),
                     .hits = hits_while_on(counts) + (table_.is_just_counted(i) ? counts.disabled : 0),
                     .lost = lost_hits(counts),
                     .missed = counts.missed});
    }
  });
  return all;
}

void EventChanges::retire() {
  const std::lock_guard lock(changing_);
  is_leaving_ = true;
  leave(0);
}

bool EventChanges::end() {
  const std::lock_guard lock(changing_);  // a thread that adds probes has finished
  if (targets_.has_mail()) targets_.mail().stop();
  return recording_.end();
}

}  // namespace uprobe
