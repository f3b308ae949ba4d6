// SPDX-License-Identifier: MIT
// Fills and maps a session area. Sizes, counts and offsets that are needed later are kept in private memory.
#include "engine/trace/area.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace uprobe::trace {

namespace {

using shared::Insn;
using shared::Test;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

// After this, no mapping of the plan file can be writable except the tool's existing one. False: the kernel (before 5.1) cannot
// do that; then at least no process without a writable descriptor can get one, except root's.
bool seal_plan(int fd) {
  const bool sealed = ::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
  if (!sealed) ::fchmod(fd, 0);
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
  return sealed;
}

Result<Fd> for_reading(int fd) {
  Fd again(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  return again ? Result<Fd>(std::move(again)) : Result<Fd>(system_error("open of the session area", errno));
}

// What the tool remembers of an event, so that it need not read the shared tables.
struct EventNote {
  std::uint32_t fixed_bytes = 0;
  std::vector<std::uint32_t> comm_locators;
  std::vector<Insn> program;
  std::vector<Test> filter;
  std::string text;
  bool on = true;
  bool is_thinned = false;
  std::uint32_t sum = 0;  // shared::Event::sum
};

EventNote note_of(const program::EventProgram& event) {
  EventNote note{.fixed_bytes = event.layout.fixed_bytes,
                 .comm_locators = {},
                 .program = event.insns,
                 .filter = event.filter,
                 .text = event.filter.empty() ? std::string() : event.text,
                 .is_thinned = event.thinning.leaves_out()};
  for (const Insn& insn : event.insns)
    if (insn.op == shared::Op::store_comm) note.comm_locators.push_back(insn.offset);
  return note;
}

}  // namespace

struct Area::Data {
  explicit Data(const AreaSpec& spec) : plan(spec) {}

  const AreaLayout plan;
  Fd fd;
  bool sealed = false;
  Reservation memory;  // for the plan file and the first live part
  std::array<std::unique_ptr<LiveArea>, kMostParts> parts;
  std::atomic<std::size_t> part_count = 0;
  std::vector<EventNote> events;  // has capacity for all future events, so no element ever moves
  std::uint32_t insns_used = 0, tests_used = 0, text_used = 0, sums_used = 0;
  bool recording = false;

  template <class T>
  T* table(std::uint64_t offset) const {
    return reinterpret_cast<T*>(memory.base() + offset);
  }

  void write_header() const;
  void write_event(const program::EventProgram& source);
  void write_switches(const AreaSpec& spec);
  void write_histograms(const AreaSpec& spec);
  void set_event(std::size_t index) const;
  Status map_files();
};

void Area::Data::write_header() const {
  const auto word = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  auto* header = table<shared::AreaHeader>(0);
  *header = {};
  header->abi_version = shared::kAbiVersion;
  header->header_bytes = sizeof(shared::AreaHeader);
  header->live_offset = plan.live, header->data_offset = plan.data;
  header->ring_bytes = plan.ring_bytes, header->ring_count = plan.ring_count;
  header->string_limit = plan.string_limit;
  header->payload_limit = plan.payload_limit();
  header->cpu_ring_count = plan.cpu_ring_count, header->ring_offset = word(plan.rings);
  header->event_count = word(events.size()), header->event_offset = word(plan.events);
  header->counts_offset = word(plan.counts);
  header->insn_count = insns_used, header->insn_offset = word(plan.insns);
  header->test_count = tests_used, header->test_offset = word(plan.tests);
  header->text_bytes = text_used, header->text_offset = word(plan.text);
  header->dropped_rows = word(plan.dropped_rows), header->dropped_offset = word(plan.dropped);
  header->dropped_stride = word(plan.dropped_stride);
  header->trigger_count = word(plan.limits.size()), header->trigger_offset = word(plan.triggers);
  header->left_offset = word(plan.left);
  header->switch_count = word(plan.states.size()), header->switch_offset = word(plan.switches);
  header->histogram_count = word(plan.maps.size()), header->histogram_offset = word(plan.histograms);
  header->histogram_counts_offset = word(plan.histogram_counts), header->scratch_offset = word(plan.scratch);
  header->sum_count = plan.sum_count, header->sum_rows = plan.sum_rows, header->sum_offset = word(plan.sums);
  header->sum_chunks = plan.chunk_count, header->sum_chunk_offset = word(plan.sum_chunks);
  header->sum_banks = plan.bank_count, header->sum_bank_offset = word(plan.sum_banks);
  header->magic = shared::kAreaMagic;
}

bool asks_name(const std::vector<Test>& tests) {
  return std::ranges::any_of(
      tests, [](const Test& test) { return shared::is_text_test(test.op) && test.offset == shared::kTestName; });
}

bool asks_entry(const program::EventProgram& event) {
  const auto is_asked = [&](const program::Field& field) {
    return field.of_entry && std::ranges::any_of(event.filter, [&](const Test& test) {
             return !shared::is_set_test(test.op) && test.op > shared::TestOp::go_on && test.offset == field.offset;
           });
  };
  return std::ranges::any_of(event.layout.fields, is_asked);
}

bool has_self_time(const program::EventProgram& event) {
  return std::ranges::any_of(event.insns, [](const Insn& insn) { return insn.op == shared::Op::load_self; });
}

std::uint16_t flags_of(const program::EventProgram& event) {
  const unsigned returns = event.layout.is_return ? shared::kEventReturns : 0u;
  const unsigned notes = event.note.empty() ? 0u : shared::kEventNotes;
  const unsigned asks = asks_entry(event) ? shared::kEventAsksEntry : 0u;
  const unsigned self = has_self_time(event) ? shared::kEventSelf : 0u;
  const unsigned thins = event.thinning.leaves_out() ? shared::kEventThins : 0u;
  return static_cast<std::uint16_t>(returns | notes | asks | self | thins);
}

// Writes the next event. Its constant strings move into the session's pool, so offsets to them change.
void Area::Data::write_event(const program::EventProgram& source) {
  const std::size_t index = events.size();
  shared::Event event{};
  event.fixed_bytes = source.layout.fixed_bytes;
  event.type = static_cast<std::uint16_t>(index);
  event.flags = flags_of(source);
  event.one_in = source.thinning.one_in, event.per_second = source.thinning.per_second;
  event.min_latency = source.layout.is_return ? source.thinning.min_latency : 0;
  event.switch_number = shared::kNoSwitch;
  if (source.sums_calls && sums_used < plan.sum_count) event.sum = ++sums_used;
  event.first_insn = insns_used;
  event.insn_count = static_cast<std::uint32_t>(source.insns.size());
  for (Insn copy : source.insns) {
    if (copy.op == shared::Op::store_text) copy.immediate += text_used;
    table<Insn>(plan.insns)[insns_used++] = copy;
  }
  event.first_note = insns_used;
  event.note_count = static_cast<std::uint32_t>(source.note.size());
  event.note_bytes = source.noted.fixed_bytes;
  for (const Insn& noted : source.note) table<Insn>(plan.insns)[insns_used++] = noted;
  event.first_test = tests_used;
  event.test_count = static_cast<std::uint32_t>(source.filter.size());
  for (Test copy : source.filter) {
    if (shared::is_text_test(copy.op) || shared::is_set_test(copy.op)) copy.value += text_used;
    table<Test>(plan.tests)[tests_used++] = copy;
  }
  std::memcpy(table<char>(plan.text) + text_used, source.text.data(), source.text.size());
  text_used += static_cast<std::uint32_t>(source.text.size());
  table<shared::Event>(plan.events)[index] = event;
  events.push_back(note_of(source));
  events.back().sum = event.sum;
}

void Area::Data::set_event(std::size_t index) const {
  const auto state = recording && events[index].on ? shared::SessionState::recording : shared::SessionState::off;
  std::atomic_ref(table<shared::Event>(plan.events)[index].state)
      .store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

// Names are fetched outside of rseq sections only.
bool asks_name(const AreaSpec& spec, const program::TriggerProgram& trigger) {
  if (asks_name(trigger.condition.tests)) return true;
  if (trigger.kind != shared::TriggerKind::histogram || trigger.target >= spec.histograms.size()) return false;
  return std::ranges::any_of(spec.histograms[trigger.target].plan.keys, [](const program::HistogramWord& key) {
    return static_cast<shared::HistogramSource>(key.field.source) == shared::HistogramSource::task_name;
  });
}

bool has_kind(const AreaSpec& spec, const EventSwitch& of, shared::TriggerKind kind) {
  const auto begin = spec.triggers.begin() + of.first_trigger;
  return std::any_of(begin, begin + of.trigger_count,
                     [&](const program::TriggerProgram& trigger) { return trigger.kind == kind; });
}

bool has_change(const AreaSpec& spec, const EventSwitch& of) {
  const auto begin = spec.triggers.begin() + of.first_trigger;
  return std::any_of(begin, begin + of.trigger_count,
                     [](const program::TriggerProgram& trigger) { return shared::changes_program(trigger.kind); });
}

// What changes the program is decided before the record is built.
bool looks_first(const AreaSpec& spec, const EventSwitch& of) {
  const auto begin = spec.triggers.begin() + of.first_trigger;
  const bool is_looked_at =
      has_kind(spec, of, shared::TriggerKind::histogram) || has_kind(spec, of, shared::TriggerKind::stack);
  return std::any_of(begin, begin + of.trigger_count, [&](const program::TriggerProgram& trigger) {
    if (shared::changes_program(trigger.kind)) return false;
    if (asks_name(spec, trigger)) return true;
    if (trigger.kind == shared::TriggerKind::stack) return trigger.count != shared::kUnlimited;
    return shared::tells_others(trigger.kind) &&
           (is_looked_at || shared::acts_after(trigger.kind) || !trigger.condition.tests.empty());
  });
}

// The triggers' tests and texts follow those of all events.
void Area::Data::write_switches(const AreaSpec& spec) {
  auto* event = table<shared::Event>(plan.events);
  for (std::size_t i = 0; i < spec.switches.size(); ++i) {
    const EventSwitch& of = spec.switches[i];
    event[i].first_trigger = of.first_trigger, event[i].trigger_count = of.trigger_count;
    event[i].switch_number = of.number;
    if (looks_first(spec, of)) event[i].flags |= shared::kEventLooksFirst;
    if (has_kind(spec, of, shared::TriggerKind::histogram)) event[i].flags |= shared::kEventCounts;
    if (has_kind(spec, of, shared::TriggerKind::stack)) event[i].flags |= shared::kEventShowsStack;
    if (has_change(spec, of)) event[i].flags |= shared::kEventActs;
    if (of.at_entry) event[i].flags |= shared::kEventAtEntry;
  }
  auto* made = table<shared::Trigger>(plan.triggers);
  for (const program::TriggerProgram& trigger : spec.triggers) {
    const auto& [tests, text] = trigger.condition;
    *made++ = {.kind = static_cast<std::uint32_t>(trigger.kind),
               .target = trigger.target,
               .first_test = tests_used,
               .test_count = static_cast<std::uint32_t>(tests.size()),
               .value = trigger.value,
               .error_number = trigger.error_number,
               .errno_place = static_cast<std::uint32_t>(trigger.errno_place),
               .errno_at = trigger.errno_at,
               .libc = trigger.libc,
               .reserved = 0};
    for (Test copy : tests) {
      if (shared::is_text_test(copy.op) || shared::is_set_test(copy.op)) copy.value += text_used;
      table<Test>(plan.tests)[tests_used++] = copy;
    }
    std::memcpy(table<char>(plan.text) + text_used, text.data(), text.size());
    text_used += static_cast<std::uint32_t>(text.size());
  }
}

shared::Histogram histogram_of(const program::HistogramPlan& plan, const AreaLayout::Map& map) {
  shared::Histogram made{};
  for (const program::HistogramWord& key : plan.keys) made.keys[made.key_count++] = key.field;
  for (const program::HistogramWord& value : plan.values)
    if (!value.is_hitcount) made.values[made.value_count++] = value.field;
  made.key_bytes = map.key_bytes;
  made.entry_count = map.entry_count;
  made.slot_count = map.slot_count;
  made.flags = plan.wants_entry ? shared::kHistogramWantsEntry : 0;
  made.slot_offset = static_cast<std::uint32_t>(map.slots);
  made.entry_offset = static_cast<std::uint32_t>(map.entries);
  return made;
}

// Fresh slots are zero, which means empty.
void Area::Data::write_histograms(const AreaSpec& spec) {
  auto* table_of = table<shared::Histogram>(plan.histograms);
  for (std::size_t i = 0; i < spec.histograms.size(); ++i)
    table_of[i] = histogram_of(spec.histograms[i].plan, plan.maps[i]);
}

Status Area::Data::map_files() {
  auto file = make_file("uprobe-session", plan.live, plan.live);
  auto live = LiveArea::make(plan);
  if (!file || !live) return file ? live.error() : file.error();
  RETURN_IF_ERROR(memory.reserve(plan.span()));
  RETURN_IF_ERROR(memory.map({.offset = 0, .length = plan.live, .file_offset = 0, .fd = file->get()}));
  sealed = seal_plan(file->get());
  auto reading = for_reading(file->get());
  if (!reading) return reading.error();
  fd = reading.take();
  parts[0] = std::make_unique<LiveArea>(plan, live.take());
  RETURN_IF_ERROR(parts[0]->map_into(memory, plan.live));
  parts[0]->begin();
  part_count = 1;
  return ok();
}

Area::Area(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Area::Area(Area&&) noexcept = default;
Area& Area::operator=(Area&&) noexcept = default;
Area::~Area() = default;

// The files are fresh, so all rings are zero, which means empty.
Result<Area> Area::create_private(const AreaSpec& spec) {
  RETURN_IF_ERROR(check_spec(spec));
  Area area(std::make_unique<Data>(spec));
  Data& data = *area.data_;
  data.events.reserve(data.plan.event_room);
  RETURN_IF_ERROR(data.map_files());
  for (const program::EventProgram* event : spec.events) data.write_event(*event);
  data.write_switches(spec);
  data.write_histograms(spec);
  data.write_header();
  if (::getrandom(&area.header().name, sizeof area.header().name, 0) != sizeof area.header().name)
    return system_error("getrandom", errno);
  return area;
}

Result<std::size_t> Area::add_live() {
  Data& data = *data_;
  const std::size_t number = data.part_count;
  if (number == kMostParts) return limit_error("more than " + std::to_string(kMostParts) + " live parts");
  auto file = LiveArea::make(data.plan);
  if (!file) return file.error();
  auto part = std::make_unique<LiveArea>(data.plan, file.take());
  RETURN_IF_ERROR(part->map_alone());
  part->keep_from_children();
  part->begin();
  const LiveArea& first = *data.parts[0];
  for (std::size_t i = 0; i < data.plan.states.size(); ++i)
    part->switches()[i] = std::atomic_ref(first.switches()[i]).load(std::memory_order_relaxed);
  part->header().tracing = std::atomic_ref(first.header().tracing).load(std::memory_order_relaxed);
  data.parts[number] = std::move(part);
  data.part_count = number + 1;
  return number;
}

std::size_t Area::live_count() const { return data_->part_count; }
LiveArea& Area::live(std::size_t part) const { return *data_->parts[part]; }

void Area::set_state(shared::SessionState state) {
  data_->recording = state == shared::SessionState::recording;
  std::atomic_ref(header().state).store(static_cast<std::uint32_t>(state), std::memory_order_release);
  for (std::size_t i = 0; i < data_->events.size(); ++i) data_->set_event(i);
}

void Area::set_event(std::uint32_t index, bool on) {
  data_->events[index].on = on;
  data_->set_event(index);
}

bool Area::has_room(std::span<const program::EventProgram* const> programs) const {
  std::size_t insns = 0, tests = 0, text = 0;
  for (const program::EventProgram* program : programs) {
    insns += program->insns.size() + program->note.size();
    tests += program->filter.size(), text += program->text.size();
  }
  const AreaLayout& plan = data_->plan;
  return programs.size() <= plan.event_room - data_->events.size() && insns <= plan.insn_room - data_->insns_used &&
         tests <= plan.test_room - data_->tests_used && text <= plan.text_room - data_->text_used;
}

// Writes the counts last: the agent uses nothing beyond them.
Status Area::add_event(const program::EventProgram& program) {
  Data& data = *data_;
  RETURN_IF_ERROR(check_size(program));
  const program::EventProgram* const one = &program;
  if (!has_room({&one, 1})) return limit_error("the session has no room for further events");
  data.write_event(program);
  data.set_event(data.events.size() - 1);
  const auto publish = [](std::uint32_t& count, std::size_t now) {
    std::atomic_ref(count).store(static_cast<std::uint32_t>(now), std::memory_order_release);
  };
  publish(header().insn_count, data.insns_used);
  publish(header().test_count, data.tests_used);
  publish(header().text_bytes, data.text_used);
  publish(header().event_count, data.events.size());
  return ok();
}

int Area::fd() const { return data_->fd.get(); }
bool Area::is_sealed() const { return data_->sealed; }
void Area::keep_from_children() const { data_->memory.keep_from_children(); }
std::uint64_t Area::span_bytes() const { return data_->plan.span(); }

std::vector<MapStep> Area::map_steps(std::size_t part) const {
  std::vector<MapStep> steps{{.offset = 0, .length = data_->plan.live, .file_offset = 0, .fd = fd()}};
  for (const MapStep& step : live(part).map_steps()) steps.push_back(step);
  return steps;
}

shared::AreaHeader& Area::header() { return *data_->table<shared::AreaHeader>(0); }
shared::Event& Area::event(std::uint32_t index) { return data_->table<shared::Event>(data_->plan.events)[index]; }
shared::Ring& Area::ring(std::uint32_t index) { return live(0).ring(index); }
std::uint8_t* Area::data(std::uint32_t ring) { return live(0).data(ring); }
void* Area::base() { return data_->memory.base(); }

namespace {

void add(std::uint64_t& sum, std::uint64_t& word) { sum += std::atomic_ref(word).load(std::memory_order_relaxed); }

}  // namespace

shared::EventCounts Area::counts(std::uint32_t event) const {
  shared::EventCounts sum{};
  for (std::size_t part = 0; part < live_count(); ++part) {
    shared::EventCounts& counts = live(part).counts(event);
    add(sum.lost_full, counts.lost_full), add(sum.lost_too_big, counts.lost_too_big);
    add(sum.lost_busy, counts.lost_busy), add(sum.missed, counts.missed);
    add(sum.unavailable, counts.unavailable), add(sum.disabled, counts.disabled);
    add(sum.entries, counts.entries), add(sum.self_unknown, counts.self_unknown);
    add(sum.overridden, counts.overridden), add(sum.changed, counts.changed), add(sum.delayed, counts.delayed);
    add(sum.signalled, counts.signalled), add(sum.not_changed, counts.not_changed);
    add(sum.unsampled, counts.unsampled), add(sum.over_rate, counts.over_rate), add(sum.too_short, counts.too_short);
    add(sum.untimed, counts.untimed);
  }
  return sum;
}

std::vector<std::uint64_t> Area::lost_by_cpu() const {
  std::vector<std::uint64_t> lost(ring_count());
  for (std::size_t part = 0; part < live_count(); ++part)
    for (std::uint32_t i = 0; i < lost.size(); ++i) add(lost[i], live(part).ring(i).lost);
  return lost;
}

shared::LiveHeader Area::live_sums() const {
  shared::LiveHeader sum{};
  for (std::size_t part = 0; part < live_count(); ++part) {
    shared::LiveHeader& header = live(part).header();
    sum.mail_timeouts += std::atomic_ref(header.mail_timeouts).load(std::memory_order_relaxed);
    add(sum.filtered_execs, header.filtered_execs), add(sum.traced_execs, header.traced_execs);
    add(sum.unread_signals, header.unread_signals);
    sum.snapshots += std::atomic_ref(header.snapshots).load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint32_t Area::event_count() const { return static_cast<std::uint32_t>(data_->events.size()); }
std::uint32_t Area::ring_count() const { return data_->plan.ring_count; }
bool Area::has_switches() const { return !data_->plan.states.empty(); }
bool Area::is_cpu_ring(std::uint32_t index) const { return index < data_->plan.cpu_ring_count; }

bool Area::is_being_written(std::uint32_t index) const {
  bool found = false;
  for (std::size_t part = 0; part < live_count(); ++part) found = found || live(part).is_being_written(index);
  return found;
}
std::uint64_t Area::ring_bytes() const { return data_->plan.ring_bytes; }
std::uint32_t Area::fixed_bytes(std::uint32_t event) const { return data_->events[event].fixed_bytes; }
Area::Places Area::places() const {
  const AreaLayout& plan = data_->plan;
  return {plan.data,
          static_cast<std::uint32_t>(plan.events),
          static_cast<std::uint32_t>(plan.counts),
          static_cast<std::uint32_t>(plan.rings),
          plan.cpu_ring_count,
          static_cast<std::uint32_t>(plan.dropped),
          static_cast<std::uint32_t>(plan.dropped_stride),
          plan.live,
          plan.payload_limit()};
}
std::span<const Test> Area::filter(std::uint32_t event) const { return data_->events[event].filter; }
bool Area::is_thinned(std::uint32_t event) const { return data_->events[event].is_thinned; }

shared::Verdict Area::judge(std::uint32_t event, const shared::FilterInput& input) const {
  const EventNote& note = data_->events[event];
  return shared::run_filter({.tests = note.filter.data(),
                             .count = static_cast<std::uint32_t>(note.filter.size()),
                             .texts = reinterpret_cast<const std::uint8_t*>(note.text.data()),
                             .text_bytes = static_cast<std::uint32_t>(note.text.size())},
                            input);
}

std::uint64_t Area::dropped(std::uint32_t event) const {
  std::uint64_t sum = 0;
  for (std::size_t part = 0; part < live_count(); ++part) sum += live(part).dropped(event);
  return sum;
}
std::size_t Area::histogram_count() const { return data_->plan.maps.size(); }
bool Area::has_sums() const { return data_->plan.sum_count != 0; }
std::optional<std::uint32_t> Area::sum_of(std::uint32_t event) const {
  const std::uint32_t sum = data_->events[event].sum;
  return sum == 0 ? std::nullopt : std::optional(sum - 1);
}
HistogramMemory Area::histogram(std::size_t number, std::size_t part) const { return live(part).histogram(number); }
std::span<const shared::Insn> Area::program(std::uint32_t event) const { return data_->events[event].program; }
std::span<const std::uint32_t> Area::comm_locators(std::uint32_t event) const {
  return data_->events[event].comm_locators;
}

}  // namespace uprobe::trace
