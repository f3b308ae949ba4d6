// SPDX-License-Identifier: MIT
#include "engine/session/event_table.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/spec/listing.h"

namespace uprobe {
namespace {

template <class T>
requires std::has_unique_object_representations_v<T>
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

Status EventTable::prepare(const std::vector<Definition>& definitions) {
  for (const Definition& definition : definitions) RETURN_IF_ERROR(definer_.read(definition));
  auto probes = definer_.make_new();
  if (!probes) return probes.error();
  if (probes->empty()) return Error{.code = Code::usage, .text = "no probe is defined"};
  probes_ = probes.take();
  RETURN_IF_ERROR(number_objects(probes_, planned_));
  auto switches = definer_.plan_switches(probes_, planned_);
  if (!switches) return switches.error();
  switches_ = switches.take();
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    probes_[i].changes_program = changes_program(switches_, i);
    add_points(probes_[i], static_cast<std::uint16_t>(i), planned_);
  }
  return ok();
}

Result<std::vector<Probe>> EventTable::read(const Definition& definition) {
  RETURN_IF_ERROR(definer_.read(definition));
  return definer_.make_new();
}

Status EventTable::check_fields(const Probe& probe) const {
  for (const program::Field& field : probe.program.layout.fields) {
    const auto has_it = [&](const Probe& other) {
      const auto& fields = other.program.layout.fields;
      return other.owner == 0 && std::any_of(fields.begin(), fields.end(),
                                             [&](const program::Field& one) { return one.name == field.name; });
    };
    if (!std::any_of(probes_.begin(), probes_.end(), has_it))
      return Error{.code = Code::refused,
                   .text = "the session's output has a fixed set of columns, and none is named '" + field.name + "'",
                   .help = "a field can have the name of a column"};
  }
  return ok();
}

const Client* EventTable::client_of(std::size_t number) const {
  const Route* const route = route_of(number);
  return route != nullptr ? route->client.get() : nullptr;
}

bool EventTable::is_just_counted(std::size_t number) const {
  const auto& all = switches_.histograms;
  return number < switches_.switches.size() && switches_.switches[number].is_off &&
         (probes_[number].spec.sums_calls ||
          std::any_of(all.begin(), all.end(), [&](const auto& histogram) { return histogram.event == number; }));
}

std::string EventTable::name_of_switch(std::uint32_t number) const {
  for (std::size_t i = 0; i < switches_.switches.size(); ++i)
    if (switches_.switches[i].number == number) return probes_[i].spec.group + "/" + probes_[i].spec.event;
  return {};
}

std::vector<std::uint16_t> EventTable::live_events_of(std::uint32_t owner) const {
  std::vector<std::uint16_t> events;
  for (std::size_t i = 0; i < probes_.size(); ++i)
    if (probes_[i].live && probes_[i].owner == owner) events.push_back(static_cast<std::uint16_t>(i));
  return events;
}

std::optional<std::uint16_t> EventTable::former(const Probe& probe) const {
  const auto same = std::find_if(probes_.begin(), probes_.end(), [&](const Probe& p) {
    return !p.live && (p.is_free || p.owner == probe.owner) && is_same(p, probe);
  });
  if (same == probes_.end()) return std::nullopt;
  return static_cast<std::uint16_t>(same - probes_.begin());
}

bool EventTable::leads_to_clients() const {
  return std::ranges::any_of(routes_, [](const Route& route) { return route.client != nullptr; });
}

void EventTable::flush_clients() const {
  for (const Route& route : routes_)
    if (route.client && route.index == 0) route.client->flush();
}

std::uint16_t EventTable::put(Probe probe, std::optional<std::uint16_t> former) {
  if (former) {
    probes_[*former] = std::move(probe);
    return *former;
  }
  probes_.push_back(std::move(probe));
  return static_cast<std::uint16_t>(probes_.size() - 1);
}

void EventTable::lead(std::uint16_t number, Route route) {
  routes_.resize(probes_.size());
  routes_[number] = std::move(route);
}

void EventTable::withdraw(std::uint16_t number, bool was_recorded, bool is_free) {
  probes_[number].was_refused = !was_recorded;
  probes_[number].is_free = is_free;
  routes_[number] = {};
}

void EventTable::free_events_of(std::uint32_t owner) {
  const std::lock_guard reads(reading_);
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (probes_[i].owner != owner) continue;
    probes_[i].is_free = true;
    if (i < routes_.size() && owner != 0) routes_[i] = {};
  }
}

std::vector<std::string> describe(const std::vector<Probe>& probes) {
  std::vector<std::string> all;
  for (const Probe& probe : probes) {
    const elf::Identity file = probe.site.file->identity();
    all.push_back(spec::listing(probe.spec, probe.site.offset) + " in " + std::to_string(file.device) + ":" +
                  std::to_string(file.inode));
  }
  return all;
}

}  // namespace uprobe
