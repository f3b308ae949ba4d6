// SPDX-License-Identifier: MIT
// Printing definitions, also in the kernel's words.
#include "engine/spec/listing.h"

#include <cinttypes>
#include <cstdio>

#include "engine/base/text.h"
#include "engine/lex/registers.h"
#include "engine/spec/parse.h"

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

bool is_kernels(const ProbeSpec& spec, const Argument& argument) {
  const std::string line =
      std::string(spec.is_return ? "r" : "p") + ":g/e /f:0x1 " + argument.name + "=" + argument.body;
  return static_cast<bool>(parse_definition(line, {.strict = true, .file_check = {}}));
}

std::string dereferenced(std::uint64_t distance, const std::string& inner) {
  const bool is_back = static_cast<std::int64_t>(distance) < 0;
  return (is_back ? "-" : "+") + std::to_string(is_back ? 0 - distance : distance) + "(" + inner + ")";
}

// A fetch step by step. An address that is known by its number is read by '@'; until it is read, a distance waits to be added.
struct Form {
  std::string text;
  bool is_address = false;  // `distance` is an address, or with `is_of_file` a file offset
  bool is_of_file = false;
  std::uint64_t distance = 0;

  bool begin(const Step& source);
  bool add(const Step& step);
  void read(std::uint64_t offset);
};

bool Form::begin(const Step& source) {
  is_of_file = source.kind == StepKind::file_offset;
  is_address = is_of_file || source.kind == StepKind::constant;
  distance = is_address ? source.value : 0;
  if (source.kind == StepKind::reg) text = "%" + std::string(register_name(source.reg));
  return is_address || source.kind == StepKind::reg;
}

void Form::read(std::uint64_t offset) {
  text = is_address ? std::string(is_of_file ? "@+" : "@") + hex(distance + offset)
                    : dereferenced(distance + offset, text);
  is_address = false;
  distance = 0;
}

bool Form::add(const Step& step) {
  if (step.kind == StepKind::dereference) read(step.value);
  if (step.kind == StepKind::add) distance += step.value;
  return step.kind == StepKind::dereference || step.kind == StepKind::add;
}

std::optional<std::string> fetch_of(const Argument& argument) {
  Form form;
  if (argument.upper || argument.steps.empty() || !form.begin(argument.steps.front())) return {};
  for (std::size_t i = 1; i < argument.steps.size(); ++i)
    if (!form.add(argument.steps[i])) return {};
  if (argument.sink == Sink::memory)
    form.read(argument.memory_offset);
  else if (argument.sink != Sink::value || form.is_address || form.distance != 0)
    return {};
  return form.text;
}

std::optional<std::string> type_of(const Argument& argument) {
  if (argument.source_bytes != 0) return {};
  const std::string bits = std::to_string(argument.size * 8), count = std::to_string(argument.count);
  std::string type;
  switch (argument.kind) {
    case Kind::unsigned_decimal:
      type = "u" + bits;
      break;
    case Kind::signed_decimal:
      type = "s" + bits;
      break;
    case Kind::hex:
      type = "x" + bits;
      break;
    case Kind::character:
      type = "char";
      break;
    case Kind::string:
      type = argument.is_user_string ? "ustring" : "string";
      break;
    case Kind::symbol:
    case Kind::floating:
      return {};
  }
  if (argument.is_bitfield)
    type = "b" + std::to_string(argument.bit_width) + "@" + std::to_string(argument.bit_offset) + "/" + bits;
  return argument.count == 0 ? type : type + "[" + count + "]";
}

}  // namespace

std::string place_listing(const Place& place, std::optional<std::uint64_t> resolved) {
  std::string text = place.path + ":";
  if (place.is_generated) return text + place.symbol;
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

ProbeSpec kernel_form(ProbeSpec spec, std::string& unknown) {
  if (spec.style == Style::function) return spec;
  for (Argument& argument : spec.arguments) {
    if (is_kernels(spec, argument)) continue;
    const auto fetch = fetch_of(argument), type = type_of(argument);
    Argument other = argument;
    if (fetch && type) other.body = *fetch + ":" + *type;
    if (fetch && type && is_kernels(spec, other))
      argument.body = other.body;
    else
      unknown += (unknown.empty() ? "" : ", ") + argument.name + "=" + argument.body;
  }
  return spec;
}

}  // namespace uprobe::spec
