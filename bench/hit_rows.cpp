// SPDX-License-Identifier: MIT
#include "bench/hit_rows.h"

#include <algorithm>

namespace uprobe::bench {
namespace {

constexpr char kThreeArguments[] = "%di %si %dx", kString[] = "+0(%di):string";
constexpr std::uint64_t kJumpBurst = 20'000;  // a ring of 4 MiB holds three
constexpr double kWorthARatio = 0.003;
constexpr std::uint64_t kPairBurst = 9'990;  // of entry and return; also where each call makes 30
constexpr double kTrapAim = 1.15, kUnprobedAim = 1.10, kThreadsAim = 1.10, kCrowdAim = 2.5, kOffAim = 6,
                 kFilteredAim = 8, kKernelAim = 1.0 / 80, kKernelPairAim = 1.0 / 50, kDeepAim = 1.25, kSumAim = 60;

constexpr char kCall[] = "unprobed call";
constexpr char kWalk[] = "unprobed call of 20,000 functions in turn";
constexpr char kDeep[] = "unprobed call, 30 deep";
constexpr char kTrap[] = "int3, a SIGTRAP handler that only returns";
constexpr char kKernelPeer[] = "kernel uprobe on push %rbp (emulated), ";
constexpr char kKernelPair[] = "kernel uprobe and uretprobe";
constexpr struct {
  const char *name, *kernel, *ours;
} kSiteTitles[] = {{"push", "push %rbp (emulated)", "push %rbp"},
                   {"move", "mov (single-stepped)", "mov"},
                   {"nop", "5-byte nop", "5-byte nop"}};
// The record of a probe, and the end of the name of a subject with such probes.
constexpr struct {
  const char *suffix, *arguments, *title;
} kKinds[] = {{"0", "", "no argument"}, {"3", kThreeArguments, kThreeArguments}, {"s", kString, "string of 16 bytes"}};

// Strings are measured at one place only: the others would give the same.
bool is_measured(std::size_t kind, std::size_t site) { return kind < 2 || site == 0; }

}  // namespace

Status HitRows::add_subject(const std::string& name, const Tracing& tracing) {
  auto subject = Subject::start(workshop_, kernel_, name, tracing);
  if (!subject) return subject.error();
  subjects_.emplace(name, subject.take());
  return ok();
}

HitRows::Timed& HitRows::add_site(const std::string& what, const std::string& subject, const std::string& site,
                                  std::uint64_t count, unsigned threads) {
  timed_.push_back({.what = what, .count = count, .nanoseconds = [this, subject, site, threads](std::uint64_t calls) {
                      return subjects_.at(subject).nanoseconds(site, calls, threads);
                    }});
  return timed_.back();
}

Status HitRows::add_hit_function(const std::string& title, const std::string& arguments) {
  auto made = HitFunction::make(arguments);
  if (!made) return made.error();
  hit_functions_.push_back(std::make_unique<HitFunction>(made.take()));
  HitFunction* function = hit_functions_.back().get();
  timed_.push_back(
      {.what = "hit function by hand, " + title,
       .count = options_.hand_hits,
       .nanoseconds = [function](std::uint64_t count) -> Result<double> { return function->nanoseconds(count); }});
  return ok();
}

Status HitRows::add_plain() {
  if (Status s = add_subject("plain", {.tracer = Tracer::none}); !s) return s;
  add_site(kCall, "plain", "push", options_.calls);
  add_site(kWalk, "plain", "crowd", options_.calls);
  add_site(kDeep, "plain", "deep", options_.calls);
  add_site(kTrap, "plain", "trap", options_.traps).base = kCall;
  return ok();
}

void HitRows::add_tier_sites(Tier tier) {
  const std::string who = name_of(tier);
  const std::uint64_t count = tier == Tier::jump ? kJumpBurst : options_.traps;
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind)
    for (std::size_t site = 0; site < std::size(kSiteTitles); ++site) {
      if (!is_measured(kind, site)) continue;
      const std::string what = who + " probe on " + kSiteTitles[site].ours + ", " + kKinds[kind].title;
      Timed& timed = add_site(what, who + kKinds[kind].suffix, kSiteTitles[site].name, count);
      timed.base = kCall;
      if (tier == Tier::int3 && kind == 1) timed.aim = {.peer = kTrap, .most = kTrapAim, .label = "trap"};
      if (tier == Tier::jump && site == 0)
        timed.aim = {.peer = std::string(kKernelPeer) + kKinds[kind].title,
                     .most = kind == 0 ? kKernelAim : 0,
                     .label = "kernel"};
    }
}

Status HitRows::add_tier(Tier tier) {
  const std::string who = name_of(tier), one = who + " probe on push %rbp, no argument";
  const std::uint64_t count = tier == Tier::jump ? kJumpBurst : options_.traps;
  for (const auto& kind : kKinds)
    if (Status s = add_subject(who + kind.suffix, {Tracer::tool, tier, kind.arguments}); !s) return s;
  if (Status s = add_subject(who + "-off", {Tracer::tool_off, tier}); !s) return s;
  if (Status s = add_subject(who + "-crowd", {Tracer::tool_crowd, tier}); !s) return s;
  add_site("unprobed call, 20,000 " + who + " probes elsewhere in the file", who + "-crowd", "push", options_.calls)
      .aim = {.peer = kCall, .most = kUnprobedAim, .label = "call"};
  add_tier_sites(tier);
  Timed& threads = add_site(one + ", two threads at once", who + "0", "push", count, 2);
  // Two threads of a process wait for each other while the kernel sends each its SIGTRAP: no aim for breakpoints.
  threads.base = kCall,
  threads.aim = {.peer = one, .most = tier == Tier::jump ? kThreadsAim : 0, .label = "one thread"};
  Timed& crowd = add_site(who + " probes, 20,000 hit in turn, no argument", who + "-crowd", "crowd", kCrowd);
  crowd.base = kWalk, crowd.aim = {.peer = one, .most = kCrowdAim, .label = "one probe"};
  Timed& off = add_site(one + ", recording off", who + "-off", "push", count);
  off.base = kCall;
  if (tier == Tier::jump) off.aim = {.most = kOffAim, .label = "ns"};
  if (Status s = add_subject(who + "-filter", {Tracer::tool_filter, tier}); !s) return s;
  Timed& filtered = add_site(who + " probe on push %rbp, filtered out by a register", who + "-filter", "push", count);
  filtered.base = kCall;
  if (tier == Tier::jump) filtered.aim = {.most = kFilteredAim, .label = "ns"};
  return ok();
}

// Entry and return, by the exits and by a stub.
Status HitRows::add_pairs() {
  for (const std::string way : {"exits", "stub"}) {
    const std::string subject = "pairs-" + way, one = "entry and return by jumps, " + way;
    const Tracing tracing{.tracer = Tracer::tool_pairs, .tier = Tier::jump, .option = "--return=" + way};
    if (Status s = add_subject(subject, tracing); !s) return s;
    Timed& flat = add_site(one, subject, "pair", kPairBurst);
    flat.base = kCall, flat.aim = {.peer = kKernelPair, .most = kKernelPairAim, .label = "kernel"};
    Timed& threads = add_site(one + ", two threads at once", subject, "pair", kPairBurst, 2);
    threads.base = kCall, threads.aim = {.peer = one, .most = kThreadsAim, .label = "one thread"};
    Timed& deep = add_site(one + ", 30 calls deep", subject, "deep", kPairBurst);
    deep.base = kDeep, deep.aim = {.peer = one, .most = kDeepAim, .label = "flat"};
  }
  return ok();
}

// Calls that are summed up, by the exits and by a stub.
Status HitRows::add_sums() {
  for (const std::string way : {"exits", "stub"}) {
    const std::string subject = "sums-" + way, one = "call summed up, jumps, " + way;
    const Tracing tracing{.tracer = Tracer::tool_sums, .tier = Tier::jump, .option = "--return=" + way};
    if (Status s = add_subject(subject, tracing); !s) return s;
    Timed& flat = add_site(one, subject, "pair", kPairBurst);
    flat.base = kCall, flat.aim = {.most = way == "exits" ? kSumAim : 0, .label = "ns"};
    Timed& threads = add_site(one + ", two threads at once", subject, "pair", kPairBurst, 2);
    threads.base = kCall, threads.aim = {.peer = one, .most = kThreadsAim, .label = "one thread"};
    Timed& deep = add_site(one + ", 30 calls deep", subject, "deep", kPairBurst);
    deep.base = kDeep, deep.aim = {.peer = one, .most = kDeepAim, .label = "flat"};
  }
  return ok();
}

void HitRows::add_kernel_site(const std::string& what, const std::string& subject, const std::string& site,
                              std::uint64_t count) {
  if (no_kernel_.empty())
    add_site(what, subject, site, count).base = site == "deep" ? kDeep : kCall;
  else
    timed_.push_back({.what = what, .absent = no_kernel_});
}

Status HitRows::add_kernel() {
  for (std::size_t kind = 0; kind < std::size(kKinds); ++kind) {
    const std::string subject = std::string("kernel") + kKinds[kind].suffix;
    if (no_kernel_.empty())
      if (Status s = add_subject(subject, {.tracer = Tracer::kernel, .arguments = kKinds[kind].arguments}); !s)
        return s;
    for (std::size_t site = 0; site < std::size(kSiteTitles); ++site)
      if (is_measured(kind, site))
        add_kernel_site(std::string("kernel uprobe on ") + kSiteTitles[site].kernel + ", " + kKinds[kind].title,
                        subject, kSiteTitles[site].name, options_.traps);
  }
  if (no_kernel_.empty())
    if (Status s = add_subject("kernelr", {.tracer = Tracer::kernel_pairs}); !s) return s;
  add_kernel_site(kKernelPair, "kernelr", "pair", kPairBurst);
  add_kernel_site(std::string(kKernelPair) + ", 30 calls deep", "kernelr", "deep", kPairBurst);
  return ok();
}

Status HitRows::prepare(const std::vector<Tier>& tiers) {
  if (Status s = add_plain(); !s) return s;
  for (const Tier tier : tiers)
    if (Status s = add_tier(tier); !s) return s;
  if (std::find(tiers.begin(), tiers.end(), Tier::jump) != tiers.end())
    for (const Status& s : {add_pairs(), add_sums()})
      if (!s) return s;
  if (Status s = add_kernel(); !s) return s;
  if (std::find(tiers.begin(), tiers.end(), Tier::jump) == tiers.end())
    timed_.push_back({.what = "jump probes", .absent = "not in this uprobe-run"});
  for (const auto& kind : kKinds)
    if (Status s = add_hit_function(kind.title, kind.arguments); !s) return s;
  return ok();
}

Status HitRows::run(Collector& collector) {
  for (const Timed& timed : timed_) {
    if (!timed.nanoseconds) continue;
    const auto function = [&timed](benchmark::State& state) {
      while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(timed.count))) {
        const auto measured = timed.nanoseconds(timed.count);
        if (!measured) return state.SkipWithError(measured.error().text.c_str());
        state.SetIterationTime(*measured * 1e-9 * static_cast<double>(timed.count));
      }
    };
    benchmark::RegisterBenchmark(timed.what.c_str(), function)
        ->UseManualTime()
        ->Iterations(static_cast<benchmark::IterationCount>(timed.count));
  }
  std::string words[] = {"uprobe-bench", "--benchmark_enable_random_interleaving=true",
                         "--benchmark_report_aggregates_only=true",
                         "--benchmark_repetitions=" + std::to_string(options_.repetitions)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  auto argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  benchmark::RunSpecifiedBenchmarks(&collector);
  if (!collector.failure().empty()) return Error{.code = Code::system, .text = collector.failure()};
  return ok();
}

Status HitRows::measure() {
  Collector collector;
  if (Status s = run(collector); !s) return s;
  add_rows(collector);
  for (auto& [name, subject] : subjects_)
    if (Status s = subject.finish(); !s) return s;
  return ok();
}

const HitRows::Timed* HitRows::find(const std::string& what) const {
  const auto found = std::find_if(timed_.begin(), timed_.end(), [&](const Timed& timed) { return timed.what == what; });
  return found == timed_.end() || !found->nanoseconds ? nullptr : &*found;
}

double HitRows::cost(const Collector& collector, const Timed& timed) const {
  const double base = timed.base.empty() ? 0 : collector.find(timed.base)->median;
  return collector.find(timed.what)->median - base;
}

void HitRows::judge(const Collector& collector, const Timed& timed, Row& row) const {
  const Timed* peer = find(timed.aim.peer);
  if (peer != nullptr) row.to_peer = cost(collector, timed) / cost(collector, *peer);
  if (timed.aim.most == 0 || (peer == nullptr && !timed.aim.peer.empty())) return;
  row.met = (peer != nullptr ? *row.to_peer : cost(collector, timed)) <= timed.aim.most;
  row.aim = "<= " + fixed(timed.aim.most, timed.aim.most < 0.1 ? 4 : 2) + " " + timed.aim.label;
}

void HitRows::add_rows(const Collector& collector) {
  const double trap = collector.find(kTrap)->median;
  for (const Timed& timed : timed_) {
    Row row{.what = timed.what, .value = "n/a (" + timed.absent + ")"};
    if (const Collector::Measured* measured = collector.find(timed.what)) {
      row.value = fixed(measured->median, 1) + " ns";
      row.spread = fixed(100 * measured->deviation / measured->median, 0) + "%";
      if (!timed.base.empty()) row.over = fixed(cost(collector, timed), 1);
      if (measured->median > kWorthARatio * trap) row.to_trap = measured->median / trap;
      judge(collector, timed, row);
    }
    rows_.push_back(std::move(row));
  }
}

}  // namespace uprobe::bench
