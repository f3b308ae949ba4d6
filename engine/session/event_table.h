// SPDX-License-Identifier: MIT
// The session's events, by number: the probe of each event, the client tool to which its records go, and the points that all of
// them want armed.
//
// An event number is never given to a different event. A definition that comes back, perhaps from another owner, gets the old
// number, so that a thread that was still on its way to the probe records the right event.
//
// Threads: entries are added and changed by the thread that makes a live change, of which there is one at a time, and in
// alone(). So the list may be read in a live change or in alone(). planned(), flows() and read() belong to the mail service while
// it runs: use them in MailService::alone().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/arm/probe_set.h"
#include "engine/flow/flow_cache.h"
#include "engine/ipc/peer_server.h"
#include "engine/resolve/event_enable_plan.h"
#include "engine/resolve/probe_builder.h"

namespace uprobe {

class EventTable {
 public:
  struct Route {
    std::shared_ptr<Client> client;  // null: the session's own
    std::uint32_t index = 0;         // among the client's probes
    std::uint64_t since = 0;         // earlier records belong to another owner of this number
  };

  // `options` must outlive it.
  explicit EventTable(const SessionOptions& options) : definer_(options, flows_) {}
  EventTable(const EventTable&) = delete;
  EventTable& operator=(const EventTable&) = delete;

  // Makes the events with which the session begins. Call once, before all others.
  Status prepare(const std::vector<Definition>& definitions);
  // Notes for the user about the definitions.
  const std::vector<std::string>& notes() const { return definer_.notes(); }

  // Runs `work` while no other thread reads records or changes the list.
  template <class Work>
  auto alone(const Work& work) const {
    const std::lock_guard lock(reading_);
    return work();
  }

  const std::vector<Probe>& probes() const { return probes_; }
  const SwitchPlan& switches() const { return switches_; }
  control::ProbeSet& planned() { return planned_; }
  const control::ProbeSet& planned() const { return planned_; }
  plan::FlowCache& flows() { return flows_; }
  // Whether event `number` belongs to a client; null: it does not.
  const Client* client_of(std::size_t number) const;
  // Whether a histogram or a summary counts the event, which is off from the start: it records nothing.
  bool is_just_counted(std::size_t number) const;
  std::string name_of_switch(std::uint32_t number) const;
  std::vector<std::uint16_t> live_events_of(std::uint32_t owner) const;
  // The removed event that is defined again by this probe.
  std::optional<std::uint16_t> former(const Probe& probe) const;

  // A further line of the session's own user: the probes that it makes.
  Result<std::vector<Probe>> read(const Definition& definition);
  // Whether a probe of the session itself was not deleted by such a line.
  bool is_defined(const Probe& probe) const { return definer_.has(probe.id); }
  void forget(spec::DefinitionSet::Id id) { definer_.forget(id); }

  // In alone(). route_of: null where an event has none.
  const Route* route_of(std::size_t number) const { return number < routes_.size() ? &routes_[number] : nullptr; }
  bool leads_to_clients() const;
  void flush_clients() const;

  // In a live change and in alone(). put() adds an event, or gives `former` a new owner.
  std::uint16_t put(Probe probe, std::optional<std::uint16_t> former);
  void lead(std::uint16_t number, Route route);
  void set_live(std::uint16_t number, bool live) { probes_[number].live = live; }
  void set_on(std::uint16_t number, bool on) { probes_[number].on = on; }
  void set_before(std::uint16_t number, const EventCounts& counts) { probes_[number].before = counts; }
  // The program has refused a probe of put(); `was_recorded`: not before it had hits.
  void withdraw(std::uint16_t number, bool was_recorded, bool is_free);

  // Whether the session's own events have a field of each name that the probe has; else an error for the user.
  Status check_fields(const Probe& probe) const;

  // In a live change. Frees the event numbers of an owner that has left and needs its counts no more.
  void free_events_of(std::uint32_t owner);

 private:
  std::vector<Probe> probes_;
  control::ProbeSet planned_;
  SwitchPlan switches_;
  plan::FlowCache flows_;
  ProbeBuilder definer_;
  std::vector<Route> routes_;   // by event
  mutable std::mutex reading_;  // locked last, except for the locks of clients
};

// The facts of each probe on which an owner tool and its client tool must agree: the definition as it was parsed, and the file.
std::vector<std::string> describe(const std::vector<Probe>& probes);

}  // namespace uprobe
