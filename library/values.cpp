// SPDX-License-Identifier: MIT
#include "library/values.h"

#include <cstring>
#include <span>
#include <utility>

#include "engine/shared/string_data.h"

namespace libuprobe {
namespace {

using Payload = std::span<const std::uint8_t>;

template <class T>
T load(Payload payload, std::size_t at) {
  T value{};
  if (at + sizeof value <= payload.size()) std::memcpy(&value, payload.data() + at, sizeof value);
  return value;
}

Value string_at(Payload payload, std::uint32_t fixed_bytes, std::size_t at) {
  const auto locator = load<std::uint32_t>(payload, at);
  const uprobe::shared::StringData data =
      uprobe::shared::string_in(payload.data(), static_cast<std::uint32_t>(payload.size()), fixed_bytes, locator);
  if (data.at == nullptr) return {};
  const std::string text(reinterpret_cast<const char*>(data.at), data.size);
  return {.kind = Value::Kind::text, .text = text, .is_cut = data.is_cut};
}

Value number_at(Payload payload, std::size_t at, std::uint32_t size, bool is_signed) {
  auto number = load<std::uint64_t>(payload, at);
  if (at + sizeof number > payload.size() && at + size <= payload.size()) {
    number = 0;
    std::memcpy(&number, payload.data() + at, size);
  }
  const unsigned unused = 64 - 8 * size;
  number = is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(number << unused) >> unused)
                     : number << unused >> unused;
  return {.kind = is_signed ? Value::Kind::signed_number : Value::Kind::unsigned_number, .number = number};
}

Value scalar_at(Payload payload, const uprobe::program::EventLayout& layout, const uprobe::program::Field& field,
                std::size_t at) {
  if (field.kind == uprobe::spec::Kind::string) return string_at(payload, layout.fixed_bytes, at);
  if (field.kind != uprobe::spec::Kind::character)
    return number_at(payload, at, field.size, field.kind == uprobe::spec::Kind::signed_decimal);
  return {.kind = Value::Kind::text, .text = std::string(1, static_cast<char>(load<std::uint8_t>(payload, at)))};
}

Value value_of(Payload payload, const uprobe::program::EventLayout& layout, const uprobe::program::Field& field) {
  if (field.count == 0) return scalar_at(payload, layout, field, field.offset);
  Value array{.kind = Value::Kind::array};
  for (std::uint32_t i = 0; i < field.count; ++i)
    array.elements.push_back(scalar_at(payload, layout, field, field.offset + i * field.size));
  return array;
}

}  // namespace

Event event_of(const uprobe::trace::EventRecord& record, const uprobe::program::EventLayout& layout,
               std::string_view task) {
  Event event{.group = layout.group, .name = layout.event, .task = std::string(task), .pid = record.tid};
  event.cpu = record.cpu;
  event.nanoseconds = record.ns;
  event.address = load<std::uint64_t>(record.payload, offsetof(uprobe::shared::PayloadHead, ip));
  if (layout.is_return)
    event.return_address = load<std::uint64_t>(record.payload, offsetof(uprobe::shared::ReturnHead, return_ip));
  for (const uprobe::program::Field& field : layout.fields)
    event.fields.push_back({field.name, value_of(record.payload, layout, field)});
  return event;
}

Error error_of(const uprobe::Error& error) {
  return {.text = error.text, .definition = error.where, .column = error.column, .help = error.help};
}

std::vector<EventInfo> infos_of(std::vector<uprobe::EventInfo> events) {
  std::vector<EventInfo> infos;
  infos.reserve(events.size());
  for (uprobe::EventInfo& one : events)
    infos.push_back({.name = std::move(one.name),
                     .on = one.on,
                     .places = one.places,
                     .hits = one.hits,
                     .lost = one.lost,
                     .missed = one.missed,
                     .format = std::move(one.print_format)});
  return infos;
}

Counts counts_of(const uprobe::ProbeSummary& probe) {
  return {.name = probe.name,
          .hits = probe.hits,
          .lost = probe.lost_full + probe.lost_too_big + probe.lost_busy + probe.lost_to_reader_lag,
          .missed = probe.missed,
          .not_called = probe.not_changed};
}

std::string Error::message() const {
  std::string message = text;
  if (column < 0 && !definition.empty()) message = definition + ": " + text;
  if (column >= 0) message += "\n  " + definition + "\n  " + std::string(static_cast<std::size_t>(column), ' ') + "^";
  return help.empty() ? message : message + "\n  " + help;
}

const Value* Event::find(std::string_view field) const {
  for (const Field& one : fields)
    if (one.name == field) return &one.value;
  return nullptr;
}

std::optional<std::int64_t> Event::number(std::string_view field) const {
  const Value* value = find(field);
  const bool is_number =
      value != nullptr && (value->kind == Value::Kind::unsigned_number || value->kind == Value::Kind::signed_number);
  return is_number ? std::optional(static_cast<std::int64_t>(value->number)) : std::nullopt;
}

std::optional<std::string> Event::text(std::string_view field) const {
  const Value* value = find(field);
  return value != nullptr && value->kind == Value::Kind::text ? std::optional(value->text) : std::nullopt;
}

}  // namespace libuprobe
