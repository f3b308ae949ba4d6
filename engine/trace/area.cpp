// Lays a session area out, fills it and maps it. What is needed later (sizes, counts, places) is kept in private
// memory: from here on the shared header belongs to the target as much as to us.
#include "engine/trace/area.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

namespace uprobe::trace {

namespace {

using shared::Insn;
using shared::Test;

constexpr std::uint64_t kPage = 4096;
using shared::kMaxEvents;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Where each table of the fixed part starts; ring data starts at `data`.
struct Plan {
  std::uint64_t events = 0, insns = 0, tests = 0, triggers = 0, switches = 0, text = 0, mail = 0, rings = 0,
                dropped = 0, histograms = 0, scratch = 0, data = 0;
  std::uint64_t event_room = 0, insn_room = 0, test_room = 0, text_room = 0;
  std::uint64_t dropped_rows = 0, dropped_stride = 0;
  struct Map {
    std::uint64_t slots, entries;
  };
  std::vector<Map> maps = {};  // of histograms
};

std::uint32_t value_count(const program::HistogramPlan& plan) {
  return static_cast<std::uint32_t>(std::ranges::count(plan.values, false, &program::HistogramWord::is_hitcount));
}

// Behind the table the slots and entries of each, then the scratch payloads.
void lay_out_histograms(const AreaSpec& spec, Plan& plan) {
  plan.data = plan.histograms + spec.histograms.size() * sizeof(shared::Histogram);
  for (const EventHistogram& histogram : spec.histograms) {
    const std::uint64_t entries = std::uint64_t{1} << histogram.plan.bits;
    const auto entry = shared::histogram_entry_bytes(histogram.plan.key_bytes, value_count(histogram.plan));
    plan.maps.push_back({.slots = plan.data, .entries = plan.data + 2 * entries * sizeof(shared::HistogramSlot)});
    plan.data = round_up(plan.maps.back().entries + entries * entry, alignof(shared::Histogram));
  }
  if (spec.histograms.empty()) return;
  plan.scratch = plan.data;
  plan.data += std::uint64_t{spec.ring_count} * shared::kScratchBytes;
}

Plan lay_out(const AreaSpec& spec) {
  Plan plan;
  plan.event_room = spec.events.size() + spec.more_events;
  plan.insn_room = spec.more_insns;
  plan.test_room = spec.more_tests;
  plan.text_room = spec.more_text;
  for (const program::EventProgram* event : spec.events) {
    plan.insn_room += event->insns.size() + event->note.size();
    plan.test_room += event->filter.size();
    plan.text_room += event->text.size();
  }
  for (const program::TriggerProgram& trigger : spec.triggers) {
    plan.test_room += trigger.condition.tests.size();
    plan.text_room += trigger.condition.text.size();
  }
  plan.events = round_up(sizeof(shared::AreaHeader), alignof(shared::Event));
  plan.insns = plan.events + plan.event_room * sizeof(shared::Event);
  plan.tests = plan.insns + plan.insn_room * sizeof(Insn);
  plan.triggers = round_up(plan.tests + plan.test_room * sizeof(Test), alignof(shared::Trigger));
  plan.switches = plan.triggers + spec.triggers.size() * sizeof(shared::Trigger);
  plan.text = plan.switches + spec.switches.size() * sizeof(std::uint32_t);
  plan.mail = round_up(plan.text + plan.text_room, alignof(shared::MailSlot));
  plan.rings = plan.mail + shared::kMailSlots * sizeof(shared::MailSlot);
  plan.dropped = plan.rings + spec.ring_count * sizeof(shared::Ring);
  if (plan.test_room != 0) {
    plan.dropped_rows = std::max(1u, spec.cpu_ring_count);
    plan.dropped_stride = round_up(plan.event_room * sizeof(std::uint64_t), alignof(shared::Ring));
  }
  plan.histograms = round_up(plan.dropped + 2 * plan.dropped_rows * plan.dropped_stride, alignof(shared::Histogram));
  lay_out_histograms(spec, plan);
  plan.data = round_up(plan.data, kPage);
  return plan;
}

Error limit_error(std::string text) { return Error{.code = Code::limit, .text = std::move(text)}; }

Status check_size(const program::EventProgram& event) {
  const std::uint32_t bytes = event.layout.fixed_bytes;
  if (bytes >= sizeof(shared::PayloadHead) && bytes <= shared::kMaxPayload) return ok();
  return limit_error("event " + event.layout.event + " is too big");
}

Status check(const AreaSpec& spec) {
  if (!std::has_single_bit(spec.ring_bytes) || spec.ring_bytes < shared::kMinRingBytes ||
      spec.ring_bytes > shared::kMaxRingBytes)
    return limit_error("a ring of " + std::to_string(spec.ring_bytes) + " bytes is not a power of two from " +
                       std::to_string(shared::kMinRingBytes) + " to " + std::to_string(shared::kMaxRingBytes));
  if (spec.ring_count == 0 || spec.ring_count > shared::kMaxRings)
    return limit_error(std::to_string(spec.ring_count) + " rings: 1 to " + std::to_string(shared::kMaxRings) +
                       " are possible");
  if (spec.cpu_ring_count > spec.ring_count) return limit_error("more rings of CPUs than rings");
  if (spec.events.size() + spec.more_events > kMaxEvents)
    return limit_error("more than " + std::to_string(kMaxEvents) + " events");
  for (const program::EventProgram* event : spec.events)
    if (Status size = check_size(*event); !size) return size;
  if (lay_out(spec).data > std::numeric_limits<std::uint32_t>::max())
    return limit_error("the programs of all events together are too big");
  return ok();
}

// Sizes the file and takes all its pages at once.
Status size_file(int fd, std::uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return system_error("size the session area", errno);
  int failed = 0;
  do {
    failed = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 ? errno : 0;
  } while (failed == EINTR);
  if (failed != 0 && failed != EOPNOTSUPP) return system_error("allocate the session area", failed);
  // A descriptor that cannot be sealed is used as it is: only a target that attacks its own tracer could shrink it.
  static_cast<void>(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
  return ok();
}

// Address space with nothing in it yet; unmaps itself.
class Reservation {
 public:
  Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }

  Status reserve(std::uint64_t bytes) {
    void* base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return system_error("reserve address space for the session area", errno);
    base_ = static_cast<std::uint8_t*>(base);
    bytes_ = bytes;
    return ok();
  }
  Status map(int fd, const MapStep& step) {
    void* at = ::mmap(base_ + step.offset, step.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                      static_cast<off_t>(step.file_offset));
    if (at == MAP_FAILED) return system_error("map the session area", errno);
    return ok();
  }
  std::uint8_t* base() const { return base_; }
  void keep_from_children() const { static_cast<void>(::madvise(base_, bytes_, MADV_DONTFORK)); }

 private:
  std::uint8_t* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// What the tool remembers of an event without looking into the shared tables.
struct EventNote {
  std::uint32_t fixed_bytes = 0;
  std::vector<std::uint32_t> comm_locators;
  std::vector<Insn> program;
  std::vector<Test> filter;
  std::string text;
  bool on = true;
};

EventNote note_of(const program::EventProgram& event) {
  EventNote note{.fixed_bytes = event.layout.fixed_bytes,
                 .comm_locators = {},
                 .program = event.insns,
                 .filter = event.filter,
                 .text = event.filter.empty() ? std::string() : event.text};
  for (const Insn& insn : event.insns)
    if (insn.op == shared::Op::store_comm) note.comm_locators.push_back(insn.offset);
  return note;
}

}  // namespace

struct Area::Data {
  Fd fd;
  Reservation memory;
  Plan plan;
  std::uint64_t ring_bytes = 0;
  std::uint32_t ring_count = 0, cpu_ring_count = 0;
  std::vector<EventNote> events;  // with room for all that may come: none ever moves
  std::uint32_t insns_used = 0, tests_used = 0, text_used = 0;
  std::size_t trigger_count = 0, switch_count = 0;
  std::vector<HistogramMemory> histograms;
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
};

void Area::Data::write_header() const {
  auto* header = table<shared::AreaHeader>(0);
  *header = {};
  header->abi_version = shared::kAbiVersion;
  header->header_bytes = sizeof(shared::AreaHeader);
  header->data_offset = plan.data;
  header->ring_bytes = ring_bytes;
  header->ring_count = ring_count;
  header->cpu_ring_count = cpu_ring_count;
  header->ring_offset = static_cast<std::uint32_t>(plan.rings);
  header->event_count = static_cast<std::uint32_t>(events.size());
  header->event_offset = static_cast<std::uint32_t>(plan.events);
  header->insn_count = insns_used;
  header->insn_offset = static_cast<std::uint32_t>(plan.insns);
  header->test_count = tests_used;
  header->test_offset = static_cast<std::uint32_t>(plan.tests);
  header->dropped_rows = static_cast<std::uint32_t>(plan.dropped_rows);
  header->dropped_offset = static_cast<std::uint32_t>(plan.dropped);
  header->dropped_stride = static_cast<std::uint32_t>(plan.dropped_stride);
  header->trigger_count = static_cast<std::uint32_t>(trigger_count);
  header->trigger_offset = static_cast<std::uint32_t>(plan.triggers);
  header->switch_count = static_cast<std::uint32_t>(switch_count);
  header->switch_offset = static_cast<std::uint32_t>(plan.switches);
  header->histogram_count = static_cast<std::uint32_t>(histograms.size());
  header->histogram_offset = static_cast<std::uint32_t>(plan.histograms);
  header->scratch_offset = static_cast<std::uint32_t>(plan.scratch);
  header->text_bytes = text_used;
  header->text_offset = static_cast<std::uint32_t>(plan.text);
  header->mail_count = shared::kMailSlots;
  header->mail_offset = static_cast<std::uint32_t>(plan.mail);
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

std::uint16_t flags_of(const program::EventProgram& event) {
  const unsigned returns = event.layout.is_return ? shared::kEventReturns : 0u;
  const unsigned notes = event.note.empty() ? 0u : shared::kEventNotes;
  const unsigned asks = asks_entry(event) ? shared::kEventAsksEntry : 0u;
  return static_cast<std::uint16_t>(returns | notes | asks);
}

// The next one. A program's constant strings move into the session's one pool, so what names them moves along.
void Area::Data::write_event(const program::EventProgram& source) {
  const std::size_t index = events.size();
  shared::Event event{};
  event.fixed_bytes = source.layout.fixed_bytes;
  event.type = static_cast<std::uint16_t>(index);
  event.flags = flags_of(source);
  event.switch_number = shared::kNoSwitch;
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
}

void Area::Data::set_event(std::size_t index) const {
  const auto state = recording && events[index].on ? shared::SessionState::recording : shared::SessionState::off;
  std::atomic_ref(table<shared::Event>(plan.events)[index].state)
      .store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

// A name is fetched outside of sections alone.
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

bool looks_first(const AreaSpec& spec, const EventSwitch& of) {
  const auto begin = spec.triggers.begin() + of.first_trigger;
  const bool is_looked_at =
      has_kind(spec, of, shared::TriggerKind::histogram) || has_kind(spec, of, shared::TriggerKind::stack);
  return std::any_of(begin, begin + of.trigger_count, [&](const program::TriggerProgram& trigger) {
    if (asks_name(spec, trigger)) return true;
    if (trigger.kind == shared::TriggerKind::stack) return trigger.count != shared::kUnlimited;
    return shared::turns_switch(trigger.kind) &&
           (is_looked_at || shared::acts_behind(trigger.kind) || !trigger.condition.tests.empty());
  });
}

// Tests and texts of triggers stand behind those of all events.
void Area::Data::write_switches(const AreaSpec& spec) {
  auto* event = table<shared::Event>(plan.events);
  auto* state = table<std::uint32_t>(plan.switches);
  for (std::size_t i = 0; i < spec.switches.size(); ++i) {
    const EventSwitch& of = spec.switches[i];
    event[i].first_trigger = of.first_trigger, event[i].trigger_count = of.trigger_count;
    event[i].switch_number = of.number;
    if (looks_first(spec, of)) event[i].flags |= shared::kEventLooksFirst;
    if (has_kind(spec, of, shared::TriggerKind::histogram)) event[i].flags |= shared::kEventCounts;
    if (has_kind(spec, of, shared::TriggerKind::stack)) event[i].flags |= shared::kEventShowsStack;
    if (of.at_entry) event[i].flags |= shared::kEventAtEntry;
    state[of.number] = of.is_off ? shared::kSwitchOff : shared::kSwitchOn;
  }
  auto* made = table<shared::Trigger>(plan.triggers);
  for (const program::TriggerProgram& trigger : spec.triggers) {
    const auto& [tests, text] = trigger.condition;
    *made++ = {.kind = static_cast<std::uint32_t>(trigger.kind),
               .target = trigger.target,
               .first_test = tests_used,
               .test_count = static_cast<std::uint32_t>(tests.size()),
               .left = trigger.count,
               .reserved = 0};
    for (Test copy : tests) {
      if (shared::is_text_test(copy.op) || shared::is_set_test(copy.op)) copy.value += text_used;
      table<Test>(plan.tests)[tests_used++] = copy;
    }
    std::memcpy(table<char>(plan.text) + text_used, text.data(), text.size());
    text_used += static_cast<std::uint32_t>(text.size());
  }
}

shared::Histogram histogram_of(const program::HistogramPlan& plan, const Plan::Map& map) {
  shared::Histogram made{};
  for (const program::HistogramWord& key : plan.keys) made.keys[made.key_count++] = key.field;
  for (const program::HistogramWord& value : plan.values)
    if (!value.is_hitcount) made.values[made.value_count++] = value.field;
  made.key_bytes = plan.key_bytes;
  made.entry_count = 1U << plan.bits;
  made.slot_count = 2 * made.entry_count;
  made.flags = plan.wants_entry ? shared::kHistogramWantsEntry : 0;
  made.slot_offset = static_cast<std::uint32_t>(map.slots);
  made.entry_offset = static_cast<std::uint32_t>(map.entries);
  return made;
}

// Slots are zero, which is their empty state.
void Area::Data::write_histograms(const AreaSpec& spec) {
  auto* table_of = table<shared::Histogram>(plan.histograms);
  for (std::size_t i = 0; i < spec.histograms.size(); ++i) {
    const shared::Histogram made = histogram_of(spec.histograms[i].plan, plan.maps[i]);
    table_of[i] = made;
    histograms.push_back({.slots = table<shared::HistogramSlot>(made.slot_offset),
                          .entries = table<std::uint8_t>(made.entry_offset),
                          .dropped = &table_of[i].dropped,
                          .next_entry = &table_of[i].next_entry,
                          .slot_count = made.slot_count,
                          .entry_count = made.entry_count,
                          .key_bytes = made.key_bytes,
                          .sum_count = shared::histogram_sums(made.value_count)});
  }
}

Area::Area(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Area::Area(Area&&) noexcept = default;
Area& Area::operator=(Area&&) noexcept = default;
Area::~Area() = default;

// The file is fresh, so rings and mail slots are zero, which is their empty state.
Result<Area> Area::create(Fd memfd, const AreaSpec& spec) {
  if (Status checked = check(spec); !checked) return checked.error();
  auto data = std::make_unique<Data>();
  data->fd = std::move(memfd);
  data->plan = lay_out(spec);
  data->ring_bytes = spec.ring_bytes;
  data->ring_count = spec.ring_count;
  data->cpu_ring_count = spec.cpu_ring_count;
  data->trigger_count = spec.triggers.size(), data->switch_count = spec.switches.size();
  data->events.reserve(data->plan.event_room);

  Area area(std::move(data));
  if (Status sized = size_file(area.fd(), area.file_bytes()); !sized) return sized.error();
  if (Status reserved = area.data_->memory.reserve(area.span_bytes()); !reserved) return reserved.error();
  for (const MapStep& step : area.map_steps())
    if (Status mapped = area.data_->memory.map(area.fd(), step); !mapped) return mapped.error();
  for (const program::EventProgram* event : spec.events) area.data_->write_event(*event);
  area.data_->write_switches(spec);
  area.data_->write_histograms(spec);
  area.data_->write_header();
  if (::getrandom(&area.header().name, sizeof area.header().name, 0) != sizeof area.header().name)
    return system_error("getrandom", errno);
  return area;
}

Result<Area> Area::create_private(const AreaSpec& spec) {
  Fd memfd(::memfd_create("uprobe-session", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return system_error("memfd_create", errno);
  return create(std::move(memfd), spec);
}

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
  const Plan& plan = data_->plan;
  return programs.size() <= plan.event_room - data_->events.size() && insns <= plan.insn_room - data_->insns_used &&
         tests <= plan.test_room - data_->tests_used && text <= plan.text_room - data_->text_used;
}

// The counts last: the agent takes nothing beyond them.
Status Area::add_event(const program::EventProgram& program) {
  Data& data = *data_;
  if (Status size = check_size(program); !size) return size;
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
void Area::keep_from_children() const { data_->memory.keep_from_children(); }
std::uint64_t Area::file_bytes() const { return data_->plan.data + data_->ring_bytes * data_->ring_count; }
std::uint64_t Area::span_bytes() const { return data_->plan.data + 2 * data_->ring_bytes * data_->ring_count; }

// The second copy of a ring and the first of the next one follow each other in the file as well.
std::vector<MapStep> Area::map_steps() const {
  const std::uint64_t start = data_->plan.data, bytes = data_->ring_bytes;
  std::vector<MapStep> steps{{.offset = 0, .length = start + bytes, .file_offset = 0}};
  for (std::uint64_t ring = 0; ring < data_->ring_count; ++ring) {
    const bool is_last = ring + 1 == data_->ring_count;
    steps.push_back({start + (2 * ring + 1) * bytes, is_last ? bytes : 2 * bytes, start + ring * bytes});
  }
  return steps;
}

shared::AreaHeader& Area::header() { return *data_->table<shared::AreaHeader>(0); }
shared::Event& Area::event(std::uint32_t index) { return data_->table<shared::Event>(data_->plan.events)[index]; }
shared::Ring& Area::ring(std::uint32_t index) { return data_->table<shared::Ring>(data_->plan.rings)[index]; }
shared::MailSlot& Area::mail(std::uint32_t index) { return data_->table<shared::MailSlot>(data_->plan.mail)[index]; }
std::uint8_t* Area::data(std::uint32_t ring) {
  return data_->memory.base() + data_->plan.data + 2 * data_->ring_bytes * ring;
}
void* Area::base() { return data_->memory.base(); }

std::uint32_t Area::event_count() const { return static_cast<std::uint32_t>(data_->events.size()); }
std::uint32_t Area::ring_count() const { return data_->ring_count; }
bool Area::has_switches() const { return data_->switch_count != 0; }
bool Area::is_cpu_ring(std::uint32_t index) const { return index < data_->cpu_ring_count; }

bool Area::is_being_written(std::uint32_t index) {
  shared::Ring& words = ring(index);
  if (!is_cpu_ring(index)) return std::atomic_ref(words.owner).load(std::memory_order_acquire) != 0;
  const std::uint32_t begun = std::atomic_ref(words.begun).load(std::memory_order_acquire);
  return begun != static_cast<std::uint32_t>(std::atomic_ref(words.commit).load(std::memory_order_acquire));
}
std::uint64_t Area::ring_bytes() const { return data_->ring_bytes; }
std::uint32_t Area::fixed_bytes(std::uint32_t event) const { return data_->events[event].fixed_bytes; }
Area::Places Area::places() const {
  const Plan& plan = data_->plan;
  return {plan.data,
          static_cast<std::uint32_t>(plan.events),
          static_cast<std::uint32_t>(plan.rings),
          data_->cpu_ring_count,
          static_cast<std::uint32_t>(plan.dropped),
          static_cast<std::uint32_t>(plan.dropped_stride)};
}
std::span<const Test> Area::filter(std::uint32_t event) const { return data_->events[event].filter; }

shared::Verdict Area::judge(std::uint32_t event, const shared::FilterInput& input) const {
  const EventNote& note = data_->events[event];
  return shared::run_filter({.tests = note.filter.data(),
                             .count = static_cast<std::uint32_t>(note.filter.size()),
                             .texts = reinterpret_cast<const std::uint8_t*>(note.text.data()),
                             .text_bytes = static_cast<std::uint32_t>(note.text.size())},
                            input);
}

std::uint64_t Area::dropped(std::uint32_t event) {
  std::uint64_t sum = 0;
  for (std::uint64_t row = 0; row < 2 * data_->plan.dropped_rows; ++row) {
    auto* counts = data_->table<std::uint64_t>(data_->plan.dropped + row * data_->plan.dropped_stride);
    sum += std::atomic_ref(counts[event]).load(std::memory_order_relaxed);
  }
  return sum;
}
std::size_t Area::histogram_count() const { return data_->histograms.size(); }
HistogramMemory Area::histogram(std::size_t number) { return data_->histograms[number]; }
std::span<const shared::Insn> Area::program(std::uint32_t event) const { return data_->events[event].program; }
std::span<const std::uint32_t> Area::comm_locators(std::uint32_t event) const {
  return data_->events[event].comm_locators;
}

}  // namespace uprobe::trace
