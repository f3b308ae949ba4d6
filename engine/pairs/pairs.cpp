// SPDX-License-Identifier: MIT
#include "engine/pairs/pairs.h"

#include <optional>

#include "engine/pairs/pair_report.h"

namespace uprobe::format {
namespace {

std::string_view name_of(const program::EventLayout& layout) {
  return std::string_view(layout.place).substr(0, layout.place.find('@'));
}

bool is_execve(const program::EventLayout& layout) {
  return name_of(layout) == "execve" || name_of(layout) == "__execve";
}

const program::Field* field_called(const program::EventLayout& layout, std::string_view name) {
  for (const program::Field& field : layout.fields)
    if (field.name == name && field.count == 0) return &field;
  return nullptr;
}

bool is_number(const Value& value) {
  return value.kind == Value::Kind::unsigned_decimal || value.kind == Value::Kind::signed_decimal ||
         value.kind == Value::Kind::hex;
}

std::optional<Value> number_in(const program::Field* field, Values& values) {
  if (field == nullptr) return std::nullopt;
  const Value value = values.at(*field);
  return is_number(value) ? std::optional(value) : std::nullopt;
}

// No function gives out -1. A number with a sign is a descriptor or the like, of which 0 is one.
bool is_nothing(const Value& key) {
  if (key.kind == Value::Kind::signed_decimal) return static_cast<std::int64_t>(key.number) < 0;
  return key.number == 0 || key.number == ~std::uint64_t{0};
}

}  // namespace

std::uint32_t PairsFormatter::number_of(const program::EventLayout& layout) {
  const std::string name = layout.function.empty() ? layout.group + "/" + layout.event : layout.function;
  return functions_.try_emplace(name, static_cast<std::uint32_t>(functions_.size() + 1)).first->second;
}

PairRole PairsFormatter::role_of(const Event& event) const {
  const program::EventLayout& layout = event.known.layout;
  if (is_execve(layout) && event.key == nullptr) return layout.is_return ? PairRole::exec_back : PairRole::exec;
  if (layout.is_return) return event.key != nullptr ? PairRole::opening : PairRole::none;
  if (event.key == nullptr && name_of(layout) == "__cxa_allocate_exception") return PairRole::throwing;
  if (event.key == nullptr) return PairRole::beginning;
  return event.key->name == "moved" ? PairRole::moving : PairRole::closing;
}

void PairsFormatter::add(const program::EventLayout& layout) {
  auto event = std::make_unique<Event>(Event{.known = KnownEvent(layout)});
  const program::EventLayout& kept = event->known.layout;
  event->key = field_called(kept, "key");
  if (event->key == nullptr && !kept.is_return) event->key = field_called(kept, "moved");
  event->size = field_called(kept, "size"), event->count = field_called(kept, "count");
  event->failed = field_called(kept, "failed");
  event->function = number_of(kept);
  event->group = &groups_[kept.group];
  event->group->has_sizes = event->group->has_sizes || event->size != nullptr;
  event->role = role_of(*event);
  if (!taken_.emplace(event->group, event->function, event->role).second) event->role = PairRole::none;
  event->group->is_pair = event->group->is_pair || event->role == PairRole::opening;
  events_.push_back(std::move(event));
}

bool PairsFormatter::read_step(const Event& event, const trace::EventRecord& record, PairStep& step) {
  step = {.role = event.role, .function = event.function, .pid = record.pid, .tid = record.tid, .ns = record.ns};
  if (event.key == nullptr) return true;
  Values values(event.known, record, options_, padded_);
  const std::optional<Value> failed = number_in(event.failed, values);
  step.has_failed = failed && failed->number != 0;
  if (step.has_failed) return true;
  const std::optional<Value> key = number_in(event.key, values);
  if (!key) return false;
  step.key = key->number;
  step.has_failed = event.role == PairRole::opening && is_nothing(*key);
  const std::optional<Value> size = number_in(event.size, values), count = number_in(event.count, values);
  step.size = (size ? size->number : 0) * (count ? count->number : 1);
  return true;
}

void PairsFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type >= events_.size()) return;
  const Event& event = *events_[record.type];
  if (event.role == PairRole::none) return;
  PairGroup& group = *event.group;
  PairStep step;
  if (!read_step(event, record, step)) return void(++group.unread);
  if (group.table == nullptr) group.table = std::make_unique<PairTable>(!group.has_sizes);
  group.table->take(step, comm, [&](std::uint32_t program) {
    return stacks_.number_of(record, record.pid != 0 ? record.pid : record.tid, program);
  });
}

void PairsFormatter::end(std::span<const Total> totals, Buffer& out) {
  for (const Total& total : totals)
    if (const auto group = groups_.find(total.name.substr(0, total.name.find('/'))); group != groups_.end())
      group->second.lost += total.lost, group->second.unfollowed += total.missed;
  for (auto& [name, group] : groups_)
    if (group.table != nullptr) group.table->finish();
  report(out);
}

void PairsFormatter::report(Buffer& out) const { add_report(groups_, stacks_, out); }
void PairsJsonFormatter::report(Buffer& out) const { add_json_report(groups_, stacks(), out); }

}  // namespace uprobe::format
