// SPDX-License-Identifier: MIT
// Fuzzes the agent against the shared memory of a hostile process: the live file has any contents, which change at any moment
// of a hit. The agent is the real one, in this process, with a traced process's view: the plan for reading, the live file for
// writing, and nothing for a terabyte on both sides. A store to a wrong place faults, an endless loop is counted out, and the
// program's registers are the same before and after a hit.
//
// Input: the session, the way of the hit, then pokes of 14 bytes: after how many instructions of the agent, which table (or a
// ring that moves), the place in it, and the stored value. Pokes at 0 come before the first hit.
// moves), where in it, and what is stored there. Those at 0 come before the first hit.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/program/compile.h"
#include "engine/program/trigger.h"
#include "engine/spec/parse.h"
#include "preload/actions.h"
#include "tests/agent/hit_state.h"
#include "tests/agent/jump_probe.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;
using namespace uprobe::test;

namespace {

constexpr u64 kRoom = u64{1} << 40, kRingBytes = 8192, kTrapFlag = 0x100;
constexpr u32 kClaimed = 2, kMostSteps = 3'000'000, kMostPokes = 64, kMostHits = 12;
constexpr unsigned kMostSeconds = 60;
constexpr u8 kMoves = 7;  // of tables: another position of a ring

void require(bool condition) {
  if (!condition) std::abort();
}

const char* const kDefinition =
    "p:g/e /b/x:0x10 n=%ax:u64 s=+0(%di):string c=$comm a=+0(%si):u8[8] d=+8(+0(%si)):u64 w=+0(%si):string[3]";

struct Choice {
  const char* filter;
  std::vector<const char*> triggers;
};
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {"", {}},
      {"n > 3 && s ~ \"*e[a-f]x*\" && comm != \"x\"", {}},
      {"", {"hist:keys=n:size=128", "hist:keys=s,common_stacktrace:vals=n:size=128", "stacktrace:3"}},
      {"s == \"text\" || n & 7",
       {"traceoff:2 if n > 5", "traceon:2", "hist:keys=n.log2,common_cpu:size=128 if s != \"a\""}},
      {"", {"return=9 if s == \"some text\"", "set %bx=7:3 if n & 1", "delay=1us if n == 1"}}};
  return all;
}

// ax alone, which the body itself records.
const char* const kSimple = "p:g/e /b/x:0x10 n=%ax:u64";

// A session in the tool's view, and in that of a traced process.
class View {
 public:
  explicit View(const Choice& choice, const char* definition) {
    program_ = program::compile(*spec::parse_definition(definition, {.file_check = nullptr})).take();
    if (*choice.filter != '\0') require(bool(program::set_filter(program_, choice.filter, {.id = 1, .cpus = cpus()})));
    trace::AreaSpec spec{
        .events = {&program_}, .ring_bytes = kRingBytes, .ring_count = cpus() + kClaimed, .cpu_ring_count = cpus()};
    for (const char* text : choice.triggers) add_trigger(spec, text);
    if (!spec.triggers.empty())
      spec.switches = {{.at_entry = true, .trigger_count = static_cast<u32>(spec.triggers.size())}};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->set_state(shared::SessionState::recording);
    map();
    take_tables(spec);
  }

  static u32 cpus() { return static_cast<u32>(::sysconf(_SC_NPROCESSORS_CONF)); }
  trace::Area& area() { return *area_; }
  agent::AreaHeader* header() { return header_; }
  shared::Event& event() { return area_->event(0); }
  bool has_switches() const { return area_->has_switches(); }

  // Puts the session back into its first state.
  void begin_anew() {
    for (const auto& [at, bytes] : tables_) std::memset(at, 0, bytes);
    area_->live(0).begin();
    std::memset(mailbox(), 0, shared::kMailboxBytes);
  }
  void poke(u8 table, u32 place, u64 value) {
    if (table % 8 == kMoves) return move_ring(area_->ring(place % area_->ring_count()), place >> 8, value);
    const auto& [at, bytes] = tables_[table / 8 % tables_.size()];
    const u64 offset = place % bytes, size = std::min<u64>(sizeof value, bytes - offset);
    std::memcpy(at + offset, &value, size);
  }

 private:
  void add_trigger(trace::AreaSpec& spec, const std::string& text) {
    const auto parsed = program::parse_trigger(text);
    program::TriggerProgram made{.kind = parsed->kind, .count = parsed->count, .value = parsed->action.value};
    if (parsed->kind == shared::TriggerKind::set_register) made.target = static_cast<u32>(parsed->action.target);
    made.condition = program::compile_condition(*parsed, text, program_.layout, {.id = 1, .cpus = cpus()}).take();
    if (parsed->kind == shared::TriggerKind::histogram) {
      made.target = static_cast<u32>(spec.histograms.size());
      auto plan = program::parse_histogram(text, parsed->attributes_at, parsed->attributes_end, program_.layout);
      spec.histograms.push_back({.plan = plan.take()});
    }
    spec.triggers.push_back(std::move(made));
  }
  void map() {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const room = ::mmap(nullptr, 2 * kRoom + area_->span_bytes(), PROT_NONE, kFlags, -1, 0);
    require(room != MAP_FAILED);
    u8* const base = static_cast<u8*>(room) + kRoom;
    for (const trace::MapStep& step : area_->map_steps()) {
      const int protection = step.writable ? PROT_READ | PROT_WRITE : PROT_READ;
      void* const at = ::mmap(base + step.offset, step.length, protection, MAP_SHARED | MAP_FIXED, step.fd,
                              static_cast<off_t>(step.file_offset));
      require(at != MAP_FAILED);
    }
    header_ = reinterpret_cast<agent::AreaHeader*>(base);
    require(::mprotect(mailbox(), shared::kMailboxBytes, PROT_READ | PROT_WRITE) == 0);
  }
  // The process's own mailbox.
  void* mailbox() const { return agent::mailbox_of(header_); }
  template <class T>
  void add_table(const T* at, u64 count) {
    if (count != 0) tables_.emplace_back(reinterpret_cast<u8*>(const_cast<T*>(at)), count * sizeof(T));
  }
  // To a position with room after it.
  static void move_ring(shared::Ring& ring, u32 used, u64 value) {
    ring.commit = value, ring.tail = static_cast<u32>(value >> 32) - used % (kRingBytes / 8);
  }
  // The tool's mapping of them: a poke is another process's store. The whole fixed part comes first, and last.
  void take_tables(const trace::AreaSpec& spec) {
    const trace::LiveArea& live = area_->live(0);
    auto* const begin = reinterpret_cast<u8*>(&live.header());
    const u64 fixed = area_->places().data - area_->header().live_offset;
    add_table(begin, fixed);
    add_table(&live.header(), 1);
    add_table(&live.counts(0), 1);
    add_table(&live.ring(0), area_->ring_count());
    add_table(&live.ring(View::cpus()), kClaimed);
    for (u32 i = 0; i < area_->ring_count(); ++i) add_table(area_->data(i), kRingBytes);
    if (has_switches()) add_table(live.switches(), 1), add_table(live.left(), spec.triggers.size());
    for (std::size_t i = 0; i < area_->histogram_count(); ++i) {
      const trace::HistogramMemory memory = live.histogram(i);
      add_table(&live.histogram_counts(i), 1);
      add_table(memory.slots, memory.slot_count);
      add_table(memory.entries, u64{memory.entry_count} * (8 * memory.sum_count + memory.key_bytes));
    }
  }

  program::EventProgram program_;
  std::optional<trace::Area> area_;
  agent::AreaHeader* header_ = nullptr;
  std::vector<std::pair<u8*, u64>> tables_;
};

struct Poke {
  u32 after;
  u8 table;
  u32 place;
  u64 value;
};
constexpr std::size_t kPokeBytes = 14;
struct Input {
  u8 choice = 0, way = 0;
  std::vector<Poke> pokes;

  Input(const u8* data, std::size_t size) {
    choice = data[0], way = data[1];
    for (data += 2, size -= 2; size != 0 && pokes.size() < kMostPokes; data += kPokeBytes, size -= kPokeBytes) {
      Poke poke{};
      std::memcpy(&poke.after, data, 2), poke.table = data[2];
      std::memcpy(&poke.place, data + 3, 3), std::memcpy(&poke.value, data + 6, 8);
      pokes.push_back(poke);
    }
    std::ranges::stable_sort(pokes, {}, &Poke::after);
  }
};

// ---- one step after the other: each change comes between two given instructions

struct Stepping {
  View* view = nullptr;
  const Poke* next = nullptr;
  const Poke* end = nullptr;
  u32 steps = 0, gone_at = 0;
} stepping;

void on_step(int, siginfo_t*, void*) {
  if (++stepping.steps > kMostSteps) std::abort();
  for (; stepping.next != stepping.end && stepping.next->after <= stepping.steps; ++stepping.next)
    stepping.view->poke(stepping.next->table, stepping.next->place, stepping.next->value);
  if (stepping.steps == stepping.gone_at) stepping.view->area().header().tool_gone = 1;
}

void step_from_here() { asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); }
void step_no_more() { asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc"); }

// ---- the other process that writes at the same time

class Scribbler {
 public:
  Scribbler() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  void start(View& view, const std::vector<Poke>& pokes) {
    view_ = &view, pokes_ = &pokes;
    is_on_ = true;
  }
  void stop() {
    is_on_ = false;
    while (is_writing_) std::this_thread::yield();
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      is_writing_ = true;
      if (is_on_)
        for (const Poke& poke : *pokes_) view_->poke(poke.table, poke.place, poke.value + seed_++ % 3);
      is_writing_ = false;
      if (!is_on_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  View* view_ = nullptr;
  const std::vector<Poke>* pokes_ = nullptr;
  std::atomic<bool> is_on_{false}, is_writing_{false};
  u64 seed_ = 0;
  std::jthread thread_;
};

// ---- hits

// Strings with an end, without one before the memory ends, and pointers to them and to nowhere.
struct Words {
  HoleyMemory memory{1};
  const u64* table = nullptr;
  u64 unended = 0;

  Words() {
    const char text[] = "some text", open[] = {'o', 'p', 'e', 'n'};
    std::memcpy(memory.begin(), text, sizeof text);
    unended = memory.put_at_end(open, sizeof open);
    const u64 pointers[] = {word_of(memory.begin()), unended, 8, ~u64{0}};
    std::memcpy(memory.begin() + 64, pointers, sizeof pointers);
    table = reinterpret_cast<const u64*>(memory.begin() + 64);
  }
};

// What is changed is what the plan says, at the hits that it says; whether it is, other processes may spoil.
void check(const agent::Changes& changes, const shared::Registers& registers, u64 number, bool has_text) {
  constexpr u32 kBx = static_cast<u32>(shared::Reg::bx);
  require(changes.decided_count <= 1);
  require(!changes.overrides || (has_text && changes.result == 9 && changes.errno_address == 0));
  require(!changes.overrides || changes.return_to == *reinterpret_cast<const u64*>(registers[shared::Reg::sp]));
  require(changes.set_registers == 0 ||
          (number % 2 == 1 && changes.set_registers == 1u << kBx && changes.values[kBx] == 7));
  require(changes.delay == 0 || (number == 1 && changes.delay == 1000));
  require(changes.signal == 0);
}

void hit_once(View& view, u32 number) {
  static const Words words;
  u64 frames[8] = {word_of(&frames[2]), 0x4000, word_of(&frames[4]), 0x5000, 0, 0x6000, 0, 0};
  shared::Registers registers{};
  registers[shared::Reg::ax] = number;
  registers[shared::Reg::di] = number % 2 == 0 ? word_of(words.memory.begin()) : words.unended;
  registers[shared::Reg::si] = word_of(words.table);
  registers[shared::Reg::sp] = registers[shared::Reg::bp] = word_of(frames);
  registers[shared::Reg::ip] = 0x1000;
  const shared::Point point{};
  const u32 tid = static_cast<u32>(::getpid());
  agent::ChangingHit changing;
  changing.registers = registers;
  agent::Hit hit{agent::uprobe_block, &point, &changing.registers, tid, true, false, true};
  agent::Changes& changes = changing.changes;
  agent::decide_change(hit, view.header(), shared::Consumer{});
  check(changes, registers, number, number % 2 == 0);
  changes.is_of_record = changes.decided_count != 0;
  agent::record_event(hit, view.header(), 0);
}

void hit_by_steps(View& view, const Input& input, bool asks) {
  stepping = {.view = &view, .next = input.pokes.data(), .end = input.pokes.data() + input.pokes.size()};
  while (stepping.next != stepping.end && stepping.next->after == 0)
    view.poke(stepping.next->table, stepping.next->place, stepping.next->value), ++stepping.next;
  // The tool ends while the agent rings: the agent then does not wait for an answer.
  if (asks) stepping.gone_at = 200u + input.way;
  const agent::Request request{
      .kind = shared::MailKind::libraries_changed, .tid = 1 + input.way % 128u, .path = 0, .folder = 0};
  step_from_here();
  if (asks)
    agent::ask_tool(*agent::uprobe_block, view.header(), request);
  else
    hit_once(view, 4);
  step_no_more();
}

void poke_all(View& view, const Input& input) {
  for (const Poke& poke : input.pokes) view.poke(poke.table, poke.place, poke.value);
}

void hit_by_jumps(View& view, const Input& input, Scribbler* other) {
  poke_all(view, input);
  if (other != nullptr) other->start(view, input.pokes);
  for (u32 i = 0; i < kMostHits; ++i) {
    require(passes_unnoticed(i, kFlagSets[i % std::size(kFlagSets)] & ~kTrapFlag));
    hit_once(view, i);
    if (i < input.pokes.size() && other == nullptr)
      view.poke(input.pokes[i].table, input.pokes[i].place, input.pokes[i].value);
  }
  if (other != nullptr) other->stop();
}

// The sessions, and the probe by jump that belongs to one of them at a time.
class Sessions {
 public:
  Sessions() : probe_(hit_site) {
    for (const Choice& choice : choices()) views_.push_back(std::make_unique<View>(choice, kDefinition));
    views_.push_back(std::make_unique<View>(Choice{"", {}}, kSimple));
    views_.push_back(std::make_unique<View>(Choice{"n > 3", {}}, kSimple));
    install_agent_handlers();
    struct sigaction steps {};
    steps.sa_sigaction = on_step, steps.sa_flags = SA_SIGINFO;
    require(::sigaction(SIGTRAP, &steps, nullptr) == 0);
  }
  View& take(u8 choice) {
    const std::size_t number = choice % views_.size();
    View& view = *views_[number];
    view.begin_anew();
    if (armed_ != number) probe_.arm(view, true), armed_ = number;
    before_ = probe_.block();
    return view;
  }
  // Nothing in the block has changed but the agent's own fields.
  void check() {
    const PointBlock& now = probe_.block();
    require(std::memcmp(&now.point, &before_.point, sizeof now.point) == 0);
    require(std::memcmp(now.consumers, before_.consumers, sizeof now.consumers) == 0);
    require(std::memcmp(now.hash, before_.hash, sizeof now.hash) == 0);
  }

 private:
  JumpProbe probe_;
  std::vector<std::unique_ptr<View>> views_;
  std::size_t armed_ = ~std::size_t{0};
  PointBlock before_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Sessions sessions;
  static Scribbler other;
  if (size < 2 || (size - 2) % kPokeBytes != 0) return 0;  // an incomplete poke adds nothing
  ::alarm(kMostSeconds);
  const Input input(data, size);
  View& view = sessions.take(input.choice);
  switch (input.way % 8) {
    case 0:
    case 1:
    case 2:
      hit_by_jumps(view, input, nullptr);
      break;
    case 3:
    case 4:
    case 5:
      hit_by_jumps(view, input, &other);
      break;
    default:  // a step takes as long as a whole hit otherwise
      hit_by_steps(view, input, input.way % 64 == 7);
      break;
  }
  view.area().header().tool_gone = 0;
  agent::uprobe_block->tool_gone = 0;
  sessions.check();
  return 0;
}

namespace {

constexpr u8 table_at(u8 number) { return static_cast<u8>(8 * number); }

std::string poke(std::uint16_t after, u8 table, u32 place, u64 value) {
  std::string bytes(kPokeBytes, '\0');
  std::memcpy(bytes.data(), &after, 2), bytes[2] = static_cast<char>(table);
  std::memcpy(bytes.data() + 3, &place, 3), std::memcpy(bytes.data() + 6, &value, 8);
  return bytes;
}

}  // namespace

// Every session in every way: rings that are far away, full, and claimed; tables of histograms that are full or lead elsewhere;
// a record that changes while it is built.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (char choice = 0; choice < 6; ++choice)
    for (const char way : {char{0}, char{3}, char{6}}) {
      std::string seed{choice, way};
      const bool steps = way == 6;
      const auto at = [&](u32 step) { return static_cast<std::uint16_t>(steps ? step : 0); };
      for (u32 ring = 0; ring < 4; ++ring) seed += poke(0, kMoves, ring | 40 << 8, 0x7fff'fff0'0000'0007 << ring);
      seed += poke(at(90), table_at(1), 256, 77);
      for (u8 i = 0; i < 4; ++i)
        seed += poke(at(150 + 60 * i), table_at(static_cast<u8>(5 + 2 * i)), 24 + 8 * i, 0xffff'0010'ffff'0018 + i);
      seeds.push_back(seed + poke(at(500), table_at(3), 0, ~u64{0}));
    }
  seeds.push_back(std::string{0, 7} + poke(60, table_at(1), 256, ~u64{0}) + poke(120, table_at(1), 0, ~u64{0}));
  return seeds;
}
