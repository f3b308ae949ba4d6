// SPDX-License-Identifier: MIT
#include "engine/ipc/event_info.h"

#include "engine/ipc/message.h"

namespace uprobe {
namespace {

EventInfo take_event(Parser& from) {
  EventInfo event{.name = from.text()};
  event.owner = static_cast<int>(from.number());
  event.on = from.number() != 0;
  event.places = from.number();
  event.hits = from.long_number(), event.lost = from.long_number(), event.missed = from.long_number();
  event.print_format = from.text();
  return event;
}

}  // namespace

std::vector<EventInfo> events_of(const std::vector<ProbeState>& probes) {
  std::vector<EventInfo> events;
  for (const ProbeState& probe : probes) {
    if (events.empty() || events.back().name != probe.name || events.back().owner != probe.owner)
      events.push_back({.name = probe.name, .owner = probe.owner, .print_format = probe.print_format});
    EventInfo& event = events.back();
    event.on = event.on || probe.on;
    ++event.places;
    event.hits += probe.hits, event.lost += probe.lost, event.missed += probe.missed;
  }
  return events;
}

std::string encode(const std::vector<EventInfo>& events) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(events.size()));
  for (const EventInfo& event : events) {
    put(bytes, std::string_view(event.name));
    for (const std::uint32_t number : {static_cast<std::uint32_t>(event.owner), event.on ? 1U : 0U, event.places})
      put(bytes, number);
    for (const std::uint64_t number : {event.hits, event.lost, event.missed}) put_long(bytes, number);
    put(bytes, std::string_view(event.print_format));
  }
  return bytes;
}

std::optional<std::vector<EventInfo>> decode_events(std::string_view bytes) {
  Parser parser(bytes);
  std::vector<EventInfo> events;
  for (std::uint32_t left = parser.number(); left != 0 && parser.good(); --left) events.push_back(take_event(parser));
  if (!parser.is_done()) return std::nullopt;
  return events;
}

}  // namespace uprobe
