// SPDX-License-Identifier: MIT
// Printing definitions.
#include "engine/spec/listing.h"

#include <cinttypes>
#include <cstdio>

namespace uprobe::spec {
namespace {

std::string in_hex(const char* format, std::uint64_t value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string listed_symbol(const Place& place) {
  const auto distance = static_cast<std::int64_t>(place.offset);
  if (distance == 0) return place.symbol;
  if (distance < 0) return place.symbol + in_hex("-0x%" PRIx64, 0 - place.offset);
  return place.symbol + in_hex("+0x%" PRIx64, place.offset);
}

// The prototype names the function, so it can be fed back.
std::string function_listing(const ProbeSpec& spec) {
  return spec.place.path + ":" + spec.place.symbol + spec.definition.substr(spec.definition.find('('));
}

}  // namespace

std::string place_listing(const Place& place, std::optional<std::uint64_t> resolved) {
  std::string text = place.path + ":";
  if (!resolved && place.found) resolved = place.found->offset;
  if (!resolved && !place.source.empty()) return text + place.source + ":" + std::to_string(place.line);
  if (!resolved && place.symbol.empty()) resolved = place.offset;
  if (resolved) {
    text += in_hex("0x%016" PRIx64, *resolved);
  } else {
    text += listed_symbol(place);
  }
  if (place.reference_counter) text += in_hex("(0x%" PRIx64 ")", *place.reference_counter);
  return text;
}

std::string listing_2009(const ProbeSpec& spec, const std::string& place) {
  if (spec.style == Style::function) return listing(spec);
  std::string text = spec.is_return ? "r" : "p";
  if (!spec.has_automatic_name) text += ":" + spec.group + "/" + spec.event;
  text += " " + place;
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    const Argument& argument = spec.arguments[i];
    const bool is_named = argument.name != "arg" + std::to_string(i + 1);
    text += " " + (is_named ? argument.name + "=" : "") + argument.body;
  }
  return text;
}

std::string listing(const ProbeSpec& spec, std::optional<std::uint64_t> resolved) {
  if (spec.style == Style::function) return function_listing(spec);
  std::string text = spec.is_return ? "r:" : "p:";
  text += spec.group + "/" + spec.event + " " + place_listing(spec.place, resolved);
  for (const Argument& argument : spec.arguments) text += " " + argument.name + "=" + argument.body;
  return text;
}

}  // namespace uprobe::spec
