// SPDX-License-Identifier: MIT
// Changes to a session while its programs run: events come, go, are switched off and on. engine/arm/live_changes.h says how a
// process is changed.
//
// Threads: any. Three locks, always taken in this order: the one of alone() (one change at a time), then either the mail
// service's (armer, planned points, flows) or the one of EventTable::alone() (the list of events and what the reader knows of
// them), never both.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/event_table.h"
#include "engine/session/recording.h"
#include "engine/session/targets.h"

namespace uprobe {

class EventChanges {
 public:
  // All must outlive it.
  EventChanges(const SessionOptions& options, EventTable& table, Recording& recording, Targets& targets)
      : options_(options), table_(table), recording_(recording), targets_(targets) {}
  EventChanges(const EventChanges&) = delete;
  EventChanges& operator=(const EventChanges&) = delete;

  // See Session.
  Result<Changes> define(const Definition& definition);
  Result<Changes> remove(const std::string& name);
  Result<std::size_t> switch_events(const std::string& name, bool on);
  // The counts begin at 0 again; records that wait are printed all the same, and nothing in a process changes.
  Result<std::size_t> reset_counts(const std::string& name);
  // By name as for remove(); empty: all.
  std::vector<ProbeState> list(const std::string& name = {}) const;
  // Hits of all events and tools that could not be recorded, by CPU, since all counts were reset.
  std::vector<std::uint64_t> lost_by_cpu() const;
  // How the places of each event are probed now: a line for each, "GROUP/EVENT jump".
  std::string list_tiers() const;
  std::optional<std::vector<EventProgress>> progress() const;

  // Runs `work` as one change.
  template <class Work>
  auto alone(const Work& work) {
    const std::lock_guard lock(changing_);
    return work();
  }
  // In alone(). Whether the probes can be added to a program that runs.
  Status may_join(const std::vector<Probe>& more, plan::Tier tier) const;
  // In alone(). `client`: the owner of the probes; null: the session itself.
  Result<std::vector<std::uint16_t>> join(const std::vector<Probe>& more, const std::shared_ptr<Client>& client);
  // In alone(). Removes the owner's events.
  void leave(std::uint32_t owner) { remove_events(table_.live_events_of(owner)); }

  // The session's own user leaves: removes its events and takes no further commands.
  void retire();
  // The session ends: no change follows. Returns whether it was recording.
  bool end();

 private:
  // The numbers of probes that are being added, and their points.
  struct Entered {
    std::vector<std::uint16_t> events;
    control::ProbeSet points;
  };

  std::vector<std::uint16_t> events_called(const std::string& name) const;
  bool is_closed() const { return !recording_.is_on() || is_leaving_; }
  Result<Changes> define_one(const Definition& definition);
  std::vector<std::uint16_t> undefined_events() const;
  Status add(std::vector<Probe>& more);
  Result<Changes> remove_all();
  void switch_semaphores(const std::vector<std::uint16_t>& events, bool on);
  ProbeState state_of(std::uint16_t event) const;
  Status has_room(const std::vector<Probe>& more) const;
  Result<std::uint16_t> number_for(Probe probe);
  Status enter(const std::vector<Probe>& more, const std::shared_ptr<Client>& client, Entered& entered);
  void remove_events(const std::vector<std::uint16_t>& events);

  const SessionOptions& options_;
  EventTable& table_;
  Recording& recording_;
  Targets& targets_;
  mutable std::mutex changing_;
  bool is_leaving_ = false;                 // guarded by it, as what follows
  std::vector<std::uint64_t> lost_before_;  // by CPU, at the last reset of all
};

}  // namespace uprobe
