// SPDX-License-Identifier: MIT
// uprobe-bench-hitpath: the cost of a hit by jump and the least possible cost of such a hit, in one process.
//
// Each row is a function of its own, patched before any other thread exists; the rows are measured in turn, many times, and the
// table has medians of the additional time of a call, compared with the function without a probe.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arch/code/trampoline.h"
#include "engine/program/compile.h"
#include "engine/program/filter.h"
#include "engine/shared/trampoline.h"
#include "engine/spec/parse.h"
#include "engine/trace/area.h"
#include "preload/ring.h"

extern "C" {
__attribute__((visibility("hidden"))) void uprobe_jump_entry();
long hp_call(long, const char*, long), hp_disabled(long, const char*, long);
long hp_fast0(long, const char*, long), hp_fast3(long, const char*, long), hp_fast_text(long, const char*, long);
long hp_agent0(long, const char*, long), hp_agent3(long, const char*, long), hp_agent_text(long, const char*, long);
long hp_filtered(long, const char*, long), hp_filtered_late(long, const char*, long);
long hp_filtered_text(long, const char*, long);
long hp_limit0(long, const char*, long), hp_limit3(long, const char*, long), hp_limit_text(long, const char*, long);
long hp_correct0(long, const char*, long), hp_correct3(long, const char*, long);
long hp_correct_text(long, const char*, long);
long hp_limit_pair(long, const char*, long);
long hp_fast_pair(long, const char*, long), hp_agent_pair(long, const char*, long);
void at_return_hp_fast_pair(), at_return_hp_agent_pair();
extern std::uint64_t hp_rings, hp_data;
extern std::int64_t hp_rseq, hp_tid;
}

namespace uprobe::bench {
namespace {

using namespace shared;
using Site = long (*)(long, const char*, long);

constexpr std::size_t kPage = 4096, kIsland = 16 * kPage;
constexpr std::uint64_t kCalls = 20'000, kHitsBetweenReads = 256;
constexpr char kText[] __attribute__((aligned(64))) = "fifteen letters";
// The events; the first four filter nothing out, the others let no hit pass: by a register, by memory, by a string.
struct Probed {
  const char *definition, *filter;
};
constexpr Probed kEvents[] = {{"p:hit /none:0x1000", ""},
                              {"p:hit /none:0x1000 %di %si %dx", ""},
                              {"p:hit /none:0x1000 %di %si %dx +0(%si):string", ""},
                              {"r:back /none:0x1000 $retval", ""},
                              {"p:hit /none:0x1000 %di %si %dx", "arg1 > 0x7fffffff"},
                              {"p:hit /none:0x1000 %di %si %dx first=+0(%si):u8", "first == 0"},
                              {"p:hit /none:0x1000 %di %si %dx +0(%si):string", "arg4 ~ \"sixteen*\""}};
constexpr u32 kReturn = 3, kPlain = 4, kPoints = 16;

struct Block {
  ProcessBlock head;
  Point points[kPoints];
  Consumer consumers[kPoints];
};
Block g_block;
trace::Area* g_area = nullptr;

template <class T>
std::uint64_t word_of(T pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "uprobe-bench-hitpath: %s\n", what);
  std::exit(1);
}

// Branches whose addresses are equal in their low bits push each other out of the branch predictor: the island's pages are
// not at a power of two from the functions that are measured (seen: 16 MiB, 16 ns).
std::uint8_t* island_near(std::uint64_t near) {
  for (std::uint64_t distance = (1 << 24) + 53 * kPage; distance < 1 << 30; distance += 1 << 20) {
    void* wanted = reinterpret_cast<void*>((near & ~(kPage - 1)) + distance);
    void* at = ::mmap(wanted, kIsland, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == wanted) return static_cast<std::uint8_t*>(at);
  }
  die("no room for an island");
}

arch::FastRecord fast_record(trace::Area& area, std::uint32_t event) {
  const AreaHeader& header = area.header();
  arch::FastRecord fast;
  fast.area = Addr{word_of(&header)};
  fast.data_offset = header.data_offset, fast.ring_bytes = header.ring_bytes;
  fast.ring_offset = header.ring_offset, fast.cpu_ring_count = header.cpu_ring_count;
  fast.events_offset = header.event_offset, fast.counts_offset = header.counts_offset,
  fast.fixed_bytes = area.event(event).fixed_bytes;
  fast.filter = area.filter(event);
  fast.dropped_offset = header.dropped_offset, fast.dropped_stride = header.dropped_stride;
  fast.program = {agent::at_offset<Insn>(&header, header.insn_offset) + area.event(event).first_insn,
                  area.event(event).insn_count};
  return fast;
}

void put_jump(std::uint8_t* at, std::uint64_t to) {
  const auto distance = static_cast<std::uint32_t>(to - (word_of(at) + 5));
  *at = 0xe9;
  std::memcpy(at + 1, &distance, 4);
}

void patch(std::uint64_t site, std::uint64_t to) {
  void* const page = reinterpret_cast<void*>(site & ~(kPage - 1));
  if (::mprotect(page, 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) die("mprotect");
  put_jump(reinterpret_cast<std::uint8_t*>(site), to);
  ::mprotect(page, 2 * kPage, PROT_READ | PROT_EXEC);
}

// Arms a probe of one event at a site; the copy is a jump to the place after the nop. `function`: its return is at the site.
void arm(std::uint32_t index, std::uint64_t site, trace::Area& area, u8 session, std::uint32_t event, bool fast,
         std::uint64_t function = 0) {
  static std::uint8_t* const island = island_near(site);
  std::uint8_t* const at = island + index * kPage;
  const bool is_return = function != 0;
  g_block.points[index].address = site;
  g_block.points[index].consumer = index + 1;
  g_block.consumers[index] = {.session = session,
                              .kind = static_cast<u8>(is_return ? ConsumerKind::exit : ConsumerKind::entry),
                              .event = static_cast<std::uint16_t>(event),
                              .next = 0,
                              .distance = is_return ? static_cast<i32>(site - function) : 0,
                              .pops = 8};
  arch::BodySpec spec{.at = Addr{word_of(at)}, .block = Addr{word_of(&g_block)}};
  spec.jump_entry = Addr{word_of(&uprobe_jump_entry)};
  if (fast) spec.fast = fast_record(area, event), spec.fast->is_return = is_return;
  const arch::Body body = arch::make_body(spec);
  if (body.records != fast) die("no body");
  std::memcpy(at, body.bytes.data(), body.bytes.size());
  const std::uint64_t slot = word_of(at) + kPage / 2, thunk = slot + kThunkInSlot;
  std::vector<std::uint8_t> code;
  if (!arch::append_thunk(code, Addr{thunk}, spec.at + arch::kBodyEntry)) die("no thunk");
  const ExitHead exit{.lead = 0, .moves = 8, .function = function};
  const SlotHead head{site, index, fast ? event : kAskAgent};
  std::memcpy(at + kPage / 2 - sizeof exit, &exit, sizeof exit);
  std::memcpy(at + kPage / 2, &head, sizeof head);
  std::memcpy(at + kPage / 2 + kThunkInSlot, code.data(), code.size());
  put_jump(at + kPage / 2 + kCopyAfterThunk, site + 5);
  patch(site, thunk);
}

trace::Area make_area(const std::vector<program::EventProgram>& programs) {
  const auto cpus = static_cast<std::uint32_t>(::sysconf(_SC_NPROCESSORS_CONF));
  trace::AreaSpec spec{.events = {}, .ring_count = cpus + 4, .cpu_ring_count = cpus};
  for (const auto& program : programs) spec.events.push_back(&program);
  auto area = trace::Area::create_private(spec);
  if (!area) die("no session area");
  return area.take();
}

void arm_all(trace::Area& area, trace::Area& off) {
  ProcessBlock& head = g_block.head;
  head.pid = static_cast<std::uint32_t>(::getpid());
  head.point_offset = offsetof(Block, points), head.point_count = kPoints;
  head.consumer_offset = offsetof(Block, consumers), head.consumer_count = kPoints;
  head.sessions[0].area = word_of(&area.header()), head.sessions[1].area = word_of(&off.header());
  agent::uprobe_block = &head;
  agent::learn_rseq(head);
  static_cast<void>(agent::thread_id(head, true));
  if (head.rseq_offset == 0) die("libc registers no rseq here");
  area.set_state(SessionState::recording);
  const Site fast[] = {hp_fast0, hp_fast3, hp_fast_text}, slow[] = {hp_agent0, hp_agent3, hp_agent_text};
  for (std::uint32_t i = 0; i < 3; ++i) {
    arm(i, word_of(fast[i]), area, 0, i, true);
    arm(3 + i, word_of(slow[i]), area, 0, i, false);
  }
  arm(6, word_of(hp_disabled), off, 1, 0, true);
  arm(7, word_of(hp_fast_pair), area, 0, 0, true);
  arm(8, word_of(at_return_hp_fast_pair), area, 0, kReturn, true, word_of(hp_fast_pair));
  arm(9, word_of(hp_agent_pair), area, 0, 0, false);
  arm(10, word_of(at_return_hp_agent_pair), area, 0, kReturn, false, word_of(hp_agent_pair));
  arm(11, word_of(hp_filtered), area, 0, kPlain, true);
  arm(12, word_of(hp_filtered_late), area, 0, kPlain + 1, true);
  arm(13, word_of(hp_filtered_text), area, 0, kPlain + 2, false);
}

// For the hits by hand.
void tell_sites(trace::Area& area) {
  static_assert(sizeof(Ring) == 256 && offsetof(Ring, commit) == 0 && offsetof(Ring, tail) == 128);
  const AreaHeader& header = area.header();
  if (header.ring_bytes != 4 << 20) die("hit_path_sites.S knows rings of 4 MiB");
  hp_rings = word_of(&header) + header.ring_offset;
  hp_data = word_of(&header) + header.data_offset;
  hp_rseq = g_block.head.rseq_offset, hp_tid = g_block.head.tid_offset;
}

void declare_read() {
  for (std::uint32_t i = 0; i < g_area->ring_count(); ++i) {
    Ring& ring = g_area->ring(i);
    const auto end = static_cast<std::uint32_t>(__atomic_load_n(&ring.commit, __ATOMIC_RELAXED) >> 32);
    if (__atomic_load_n(&ring.tail, __ATOMIC_RELAXED) != end) __atomic_store_n(&ring.tail, end, __ATOMIC_RELEASE);
  }
}

double nanoseconds(Site site) {
  timespec before{}, after{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    site(static_cast<long>(i), kText, 3);
    if (i % kHitsBetweenReads == kHitsBetweenReads - 1) declare_read();
  }
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return (static_cast<double>(after.tv_sec - before.tv_sec) * 1e9 +
          static_cast<double>(after.tv_nsec - before.tv_nsec)) /
         kCalls;
}

struct Row {
  const char* what;
  Site site;
  const char* compared = nullptr;  // with this row: the ratio
  double aim = 0;                  // of the ratio; of a row without one, nanoseconds
  const char* by_hand = nullptr;   // with this row: another ratio
  bool crowded = false;            // another thread hits the same site at the same time
  std::vector<double> measured = {};

  double median() {
    std::sort(measured.begin(), measured.end());
    return measured[measured.size() / 2];
  }
};

void stay_on(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void measure(Row& row, unsigned last_cpu) {
  if (!row.crowded) {
    nanoseconds(row.site);
    row.measured.push_back(nanoseconds(row.site));
    return;
  }
  std::atomic<bool> stop{false}, started{false};
  std::thread other([&] {
    stay_on(0);
    while (!stop) {
      for (int i = 0; i < 100; ++i) row.site(i, kText, 3);
      started = true;
    }
  });
  while (!started) ::sched_yield();
  stay_on(last_cpu);
  row.measured.push_back(nanoseconds(row.site));
  stop = true;
  other.join();
}

void print(std::vector<Row>& rows) {
  const double call = rows[0].median();
  const auto cost = [&](const char* what) {
    for (Row& row : rows)
      if (std::strcmp(row.what, what) == 0) return row.median() - call;
    return 0.0;
  };
  std::printf("%-52s %9s %9s %9s %8s %8s\n", "ns over an unprobed call, medians", "ns", "+- 50%", "x by hand",
              "x limit", "aim");
  for (Row& row : rows) {
    const double own = row.median() - (&row == &rows[0] ? 0 : call);
    const double spread = row.measured[row.measured.size() * 3 / 4] - row.measured[row.measured.size() / 4];
    std::printf("%-52s %9.1f %9.1f", row.what, own, spread);
    if (row.by_hand != nullptr)
      std::printf(" %9.2f", own / cost(row.by_hand));
    else
      std::printf(" %9s", "");
    if (row.compared != nullptr) {
      const double ratio = own / cost(row.compared);
      std::printf(" %8.2f", ratio);
      if (row.aim != 0) std::printf(" <= %5.2f  %s", row.aim, ratio <= row.aim ? "PASS" : "miss");
    } else if (row.aim != 0) {
      std::printf(" %8s <= %2.0f ns  %s", "", row.aim, own <= row.aim ? "PASS" : "miss");
    }
    std::printf("\n");
  }
}

constexpr const char* kLimits[] = {"least possible: clock", "least possible: clock, 3 words",
                                   "least possible: clock, 3 words, string of 16 bytes"};
constexpr char kLimitPair[] = "least possible: entry, return with value and address";
constexpr const char* kByHand[] = {"by hand, in a ring: no argument", "by hand, in a ring: 3 registers",
                                   "by hand, in a ring: 3 registers, string of 16 bytes"};

int run(int repetitions) {
  std::vector<program::EventProgram> programs;
  for (const Probed& event : kEvents) {
    auto spec = spec::parse_definition(event.definition, {.file_check = nullptr});
    if (!spec) die("definition");
    auto program = program::compile(*spec);
    if (!program) die("program");
    if (*event.filter != '\0' && !program::set_filter(*program, event.filter, {})) die("filter");
    programs.push_back(program.take());
  }
  trace::Area area = make_area(programs), off = make_area(programs);
  g_area = &area;
  arm_all(area, off);
  tell_sites(area);
  std::vector<Row> rows = {
      {"unprobed call", hp_call},
      {kLimits[0], hp_limit0},
      {kLimits[1], hp_limit3},
      {kLimits[2], hp_limit_text},
      {kLimitPair, hp_limit_pair},
      {kByHand[0], hp_correct0},
      {kByHand[1], hp_correct3},
      {kByHand[2], hp_correct_text},
      {"disabled probe", hp_disabled, nullptr, 6},
      {"filtered out by a register", hp_filtered, nullptr, 8},
      {"filtered out by a byte in memory", hp_filtered_late},
      {"filtered out by the agent, by a string", hp_filtered_text},
      {"no argument", hp_fast0, kLimits[0], 1.25, kByHand[0]},
      {"3 registers", hp_fast3, kLimits[1], 1.4, kByHand[1]},
      {"3 registers, string of 16 bytes", hp_fast_text, kLimits[2], 1.5, kByHand[2]},
      {"3 registers, another thread hitting too", hp_fast3, "3 registers", 1.15, nullptr, true},
      {"entry and return with its value", hp_fast_pair, kLimitPair, 1.4},
      {"the same, another thread hitting too", hp_fast_pair, "entry and return with its value", 1.15, nullptr, true},
      {"by the agent: no argument", hp_agent0, kLimits[0], 0, kByHand[0]},
      {"by the agent: 3 registers", hp_agent3, kLimits[1], 0, kByHand[1]},
      {"by the agent: 3 registers, string", hp_agent_text, kLimits[2], 0, kByHand[2]},
      {"by the agent: entry and return with its value", hp_agent_pair, kLimitPair},
  };
  const auto last_cpu = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN) - 1);
  stay_on(last_cpu);
  for (int i = 0; i < repetitions; ++i)
    for (Row& row : rows) measure(row, last_cpu);
  print(rows);
  const std::uint64_t lost = area.counts(0).lost_full + area.counts(1).lost_full + area.counts(2).lost_full;
  std::uint64_t recorded = 0;
  for (std::uint32_t i = 0; i < area.ring_count(); ++i) recorded += area.ring(i).commit & 0xffffffff;
  std::printf("%llu records, %llu lost\n", static_cast<unsigned long long>(recorded),
              static_cast<unsigned long long>(lost));
  return 0;
}

}  // namespace
}  // namespace uprobe::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  return uprobe::bench::run(quick ? 51 : 301);
}
