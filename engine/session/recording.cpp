// SPDX-License-Identifier: MIT
#include "engine/session/recording.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "engine/inject/ring_size.h"
#include "engine/trace/histogram_copy.h"

namespace uprobe {
namespace {

constexpr std::uint32_t kMoreEvents = 1024;  // can be added while the session runs

// One ring per CPU, and some that threads without rseq claim: a thread that is preempted in the middle of a record keeps its
// ring that long.
void set_rings(trace::AreaSpec& spec) {
  const auto cpus = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)));
  const std::uint32_t claimed = std::min(shared::kMaxRings / 2, std::max(4u, cpus / 2));
  spec.cpu_ring_count = std::min(shared::kMaxRings - claimed, cpus);
  spec.ring_count = spec.cpu_ring_count + claimed;
}

// Room for events that are added while the session runs.
std::uint32_t room_for_events(std::size_t present) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(kMoreEvents, shared::kMaxEvents - std::min<std::size_t>(present, shared::kMaxEvents)));
}

// It refers to the programs of the table.
trace::AreaSpec spec_of(const EventTable& table, const SessionOptions& options, pid_t pid) {
  const std::vector<Probe>& probes = table.probes();
  const bool has_tests = probes.size() <= kMoreEvents || options.unseen_thread != 0;
  trace::AreaSpec spec{.events = {},
                       .string_limit = recorded_characters(options),
                       .more_events = room_for_events(probes.size()),
                       .more_insns = 8 * kMoreEvents,
                       .more_tests = has_tests ? 8 * kMoreEvents : 0,
                       .more_text = 16 * kMoreEvents};
  spec.sums_by_process = options.sums_by_process;
  set_rings(spec);
  spec.ring_bytes = options.ring_bytes ? *options.ring_bytes : control::usual_ring_bytes(pid, spec.ring_count);
  for (const Probe& probe : probes) spec.events.push_back(&probe.program);
  const SwitchPlan& plan = table.switches();
  spec.switches = plan.switches, spec.triggers = plan.triggers, spec.histograms = plan.histograms;
  for (std::size_t i = 0; i < spec.switches.size(); ++i) spec.switches[i].at_entry = is_function_entry(probes[i]);
  return spec;
}

}  // namespace

std::uint32_t recorded_characters(const SessionOptions& options) {
  return options.strict ? 0 : std::max(options.string_limit, shared::kUsualString);
}

std::uint32_t shown_characters(const SessionOptions& options) {
  return options.strict ? shared::kMostString : options.string_limit;
}

// A ring may be so small that a string of the usual size is cut, but not one for which the user has asked.
Status check_strings(const SessionOptions& options) {
  constexpr std::uint32_t kOtherValues = 1024;  // of a record, besides the string
  if (options.strict || options.string_limit <= shared::kUsualString) return ok();
  if (options.string_limit > shared::kMostString)
    return Error{.code = Code::limit, .text = "strings have at most 65535 bytes"};
  if (!options.ring_bytes) return ok();
  std::uint64_t wanted = *options.ring_bytes;
  while (shared::payload_limit(wanted) < options.string_limit + kOtherValues) wanted *= 2;
  if (wanted == *options.ring_bytes) return ok();
  return Error{.code = Code::limit,
               .text = "strings of " + std::to_string(options.string_limit) + " bytes need larger rings than " +
                       std::to_string(*options.ring_bytes / 1024) + "K: a record takes half a ring at most",
               .help = "a buffer size of " + std::to_string(wanted / 1024) + "K is enough"};
}

Status Recording::make_area(std::uint32_t mode, pid_t pid) {
  auto made = trace::Area::create_private(spec_of(table_, options_, pid));
  if (!made) return made.error();
  area_.emplace(made.take());
  area_->keep_from_children();
  area_->header().mode = mode;
  area_->header().first_process = static_cast<std::uint32_t>(options_.waiting ? options_.waiting->pid : 0);
  area_->header().known_as = static_cast<std::uint32_t>(options_.known_as);
  const auto& probes = table_.probes();
  if (std::any_of(probes.begin(), probes.end(), shows_symbols) || shows_addresses(table_.switches())) make_symbols();
  return ok();
}

void Recording::make_symbols() {
  std::vector<plan::Site> sites;
  for (const Probe& probe : table_.probes()) sites.push_back(probe.site);
  code_maps_ = std::make_unique<control::CodeMaps>();
  symbols_ = std::make_unique<SessionSymbols>(*code_maps_, std::move(sites));
}

namespace {

// `rate` as AreaHeader::tick_rate.
std::uint64_t ticks_of(std::chrono::nanoseconds time, std::uint64_t rate) {
  __extension__ using Wide = unsigned __int128;
  return rate == 0 ? 0 : static_cast<std::uint64_t>((static_cast<Wide>(time.count()) << 32) / rate);
}

}  // namespace

Status Recording::make_reader() {
  clock_.emplace(trace::Clock::start(clock_begin_));
  area_->header().tick_rate = clock_->rate();
  area_->header().patience = ticks_of(options_.patience, clock_->rate());
  const auto file = inode();
  if (!file) return file.error();
  const auto tasks = std::make_shared<control::TracedTasks>(*file);
  names_ = trace::TaskNames("/proc",
                            [tasks](std::uint32_t tid, bool is_elsewhere) { return tasks->has(tid, is_elsewhere); });
  reader_.emplace(*area_, *clock_, names_, trace::ReaderOptions{.pending_bytes = control::usual_pending_bytes()});
  return ok();
}

void Recording::forget() {
  sums_before_.clear();
  reader_.reset();
  clock_.reset();
  symbols_.reset();
  code_maps_.reset();
  area_.reset();
}

Result<ino_t> Recording::inode() const {
  struct stat file {};
  if (::fstat(area_->fd(), &file) != 0) return system_error("fstat of the session area", errno);
  return file.st_ino;
}

void Recording::begin() {
  began_ns_ = trace::TaskNames::now_ns();
  area_->set_state(shared::SessionState::recording);
  is_on_ = true;
}

void Recording::stop() {
  area_->set_state(shared::SessionState::off);
  await_writers();
}

void Recording::end_requests() { __atomic_store_n(&area_->header().tool_gone, 1, __ATOMIC_RELAXED); }

// Hits that were in progress when recording was switched off still commit: within microseconds, unless their thread is stopped
// or dead.
void Recording::await_writers() {
  for (int tries = 0; tries < 20; ++tries) {
    bool busy = false;
    for (std::uint32_t i = 0; i < area_->ring_count(); ++i) busy = busy || area_->is_being_written(i);
    if (!busy) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Recording::learn(const std::vector<control::SeenTask>& tasks) {
  for (const control::SeenTask& seen : tasks) {
    names_.learn_number(seen.task, seen.number);
    names_.learn_process(seen.task, seen.process);
    names_.learn(seen.task, seen.name, seen.ns);
  }
}

void Recording::learn_last_names() {
  learn_counted_tasks();
  names_.refresh_all();
}

std::uint32_t Recording::entries_of(std::size_t histogram) const {
  std::uint32_t entries = 0;
  for (std::size_t part = 0; part < area_->live_count(); ++part)
    entries += __atomic_load_n(area_->histogram(histogram, part).next_entry, __ATOMIC_RELAXED);
  return entries;
}

void Recording::learn_tasks_of(std::size_t histogram) {
  for (const program::HistogramWord& key : table_.switches().histograms[histogram].plan.keys) {
    if (!trace::is_task(key.field)) continue;
    const bool has_name = key.modifier == program::HistogramModifier::task;
    for (const trace::HistogramEntry& entry : trace::copy_histogram(*area_, histogram).entries) {
      const shared::TaskNumber task = shared::task_of_key(entry.key[key.field.key_offset / 8]);
      if (has_name || task.is_elsewhere()) names_.see(task);
    }
  }
}

void Recording::learn_counted_tasks() {
  counted_tasks_.resize(area_->histogram_count());
  for (std::size_t i = 0; i < counted_tasks_.size(); ++i) {
    const std::uint32_t entries = entries_of(i);
    if (entries != counted_tasks_[i]) learn_tasks_of(i);
    counted_tasks_[i] = entries;
  }
}

void Recording::poll() {
  table_.alone([this] {
    own_.learn_events();
    reader_->poll([this](const trace::EventRecord& record) { hand_on(record); }, run_sink());
    learn_counted_tasks();
    summed_.learn(*area_, names_);
    table_.flush_clients();
    own_.tell();
  });
}

void Recording::read_all() {
  table_.alone([this] {
    own_.learn_events();
    reader_->finish([this](const trace::EventRecord& record) { hand_on(record); }, run_sink());
    summed_.learn(*area_, names_);
  });
}

void Recording::hand_on(const trace::EventRecord& record) {
  const std::string_view task = names_.name(record.task, record.ns);
  const EventTable::Route* const route = table_.route_of(record.type);
  if (route == nullptr || !route->client) {
    // A client that has left takes no more, and what it left in the rings is not the session's own.
    if (table_.probes()[record.type].owner == 0) own_.take(record.type, record, task);
    return;
  }
  if (record.ns >= route->since) route->client->records.take({route->index, record, task});
}

trace::RunSink Recording::run_sink() {
  if (!own_.takes_runs() || table_.leads_to_clients()) return nullptr;
  return [this](const trace::RecordRun& run) { own_.take_run(run); };
}

bool Recording::is_older_pending(std::uint32_t ring, std::uint64_t now) const {
  for (std::size_t part = 0; part < area_->live_count(); ++part) {
    const trace::LiveArea& live = area_->live(part);
    if (live.is_being_written(ring) && __atomic_load_n(&live.ring(ring).stamp, __ATOMIC_RELAXED) < now) return true;
  }
  return false;
}

// The reader keeps records back as long as threads in the middle of a hit may still publish older ones: for microseconds, unless
// such a thread is stopped.
void Recording::poll_settled() {
  const std::uint64_t now = trace::Clock::now();
  for (int tries = 0; tries < 20; ++tries) {
    bool waiting = false;
    for (std::uint32_t i = 0; i < area_->ring_count(); ++i) waiting = waiting || is_older_pending(i, now);
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // more than the difference of the CPUs' clocks
    if (waiting) continue;
    // Where hits come faster than they can be handed on there is always more.
    do poll();
    while (reader_->next_poll().count() == 0 && !reader_->has_handed_on_ticks(now));
    return;
  }
  read_all();
}

// Calls that are summed up, and seen by no trigger, are hits of an event that is off.
summary::CallSums Recording::sums_of(std::size_t event) const {
  summary::CallSums sums;
  summary::add_call_sums(*area_, static_cast<std::uint32_t>(event), sums);
  return sums;
}

summary::CallSums Recording::sums_since_reset(std::size_t event) const {
  summary::CallSums sums = sums_of(event);
  if (const auto before = sums_before_.find(event); before != sums_before_.end()) sums.take_off(before->second);
  return sums;
}

EventCounts Recording::all_counts_of(std::size_t event) const {
  const auto number = static_cast<std::uint32_t>(event);
  const summary::CallSums sums = sums_of(event);
  const auto& switches = table_.switches().switches;
  const bool is_seen = event < switches.size() && switches[event].trigger_count != 0;
  const shared::EventCounts seen = area_->counts(number);
  const trace::ReaderCounts& read = reader_->counts();
  const bool is_known = event < read.recorded.size();
  const bool just_unseen = table_.probes()[event].just_unseen;
  return {.recorded = is_known ? read.recorded[event] : 0,
          .filtered = just_unseen ? 0 : area_->dropped(number) + (is_known ? read.dropped[event] : 0),
          .disabled = seen.disabled + (is_seen ? 0 : sums.timed() + seen.untimed),
          .lost_full = seen.lost_full,
          .lost_too_big = seen.lost_too_big,
          .lost_busy = seen.lost_busy,
          .missed = seen.missed,
          .unavailable = seen.unavailable,
          .entries = seen.entries + sums.began,
          .self_unknown = seen.self_unknown,
          .overridden = seen.overridden,
          .changed = seen.changed,
          .delayed = seen.delayed,
          .signalled = seen.signalled,
          .not_changed = seen.not_changed,
          .unsampled = seen.unsampled,
          .over_rate = seen.over_rate,
          .too_short = seen.too_short,
          .untimed = seen.untimed};
}

EventCounts Recording::counts_of(std::size_t event) const {
  return all_counts_of(event) - table_.probes()[event].before;
}

}  // namespace uprobe
