// uprobe-bench: what a hit costs, beside what it is made of and beside the kernel's; one table from one run.
//
//   uprobe-bench [--quick] [--seconds=N] [--repetitions=N]
//
// The rows that are compared with each other are measured in turn, in random order, many times over; the table has the
// medians. The targets live during all of it, so that each repetition finds them as they were.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "bench/hit_function.h"
#include "bench/kernel_events.h"
#include "bench/launches.h"
#include "bench/subject.h"
#include "bench/table.h"
#include "bench/workshop.h"

namespace uprobe::bench {
namespace {

constexpr char kThreeArguments[] = "%di %si %dx";
constexpr std::uint64_t kHitsPerSecond = 1'000'000, kWholeRunHits = 1'000'000;
constexpr double kTrapAim = 1.15, kUnprobedAim = 1.10, kArmAim = 1.0, kWholeRunAim = 5.0, kLinesAim = 1e6;

struct Options {
  int repetitions = 15, launches = 7, whole_runs = 3;
  std::uint64_t traps = 20'000;  // calls of a repetition: of what traps, of what does not
  std::uint64_t calls = 2'000'000, hand_hits = 200'000;
  int seconds = 10;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick")
      options = {.repetitions = 7, .launches = 3, .whole_runs = 1, .traps = 4'000, .seconds = 2};
    else if (word.starts_with("--seconds=") && std::atoi(argv[i] + 10) > 0)
      options.seconds = std::atoi(argv[i] + 10);
    else if (word.starts_with("--repetitions=") && std::atoi(argv[i] + 14) >= 3)
      options.repetitions = std::atoi(argv[i] + 14);
    else
      return false;
  }
  return true;
}

// One row that Google Benchmark repeats: nanoseconds of one call of `count`.
struct Timed {
  std::string what;
  std::uint64_t count = 0;
  std::function<Result<double>(std::uint64_t count)> nanoseconds;  // empty: `absent` says why
  std::string absent = {};
  bool has_aim = false;
};

constexpr char kCall[] = "unprobed call";
constexpr char kCrowdCall[] = "unprobed call, 10,000 probes elsewhere in the file";
constexpr char kTrap[] = "int3, a SIGTRAP handler that only returns";
constexpr struct {
  const char *name, *kernel, *ours;
} kSiteTitles[] = {{"push", "push %rbp (emulated)", "push %rbp"},
                   {"move", "mov (single-stepped)", "mov"},
                   {"nop", "5-byte nop", "5-byte nop"}};

class Benchmark {
 public:
  Benchmark(Options options, Workshop workshop, KernelEvents kernel, std::string no_kernel)
      : options_(options),
        workshop_(std::move(workshop)),
        kernel_(std::move(kernel)),
        no_kernel_(std::move(no_kernel)) {}

  Status prepare();
  Status run();
  const std::vector<Row>& rows() const { return rows_; }

 private:
  Status add_subject(const std::string& name, Tracer tracer, const std::string& arguments);
  Status add_hit_function(const std::string& title, const std::string& arguments);
  void add_site(const std::string& what, const std::string& subject, const std::string& site, std::uint64_t count);
  void add_sites(const char* who, const std::string& subject, const char* arguments, bool kernel);
  Status measure_timed();
  void add_timed_rows(const Collector& collector);
  Status measure_programs();
  Status measure_throughput();
  void say(const char* what) const { std::fprintf(stderr, "uprobe-bench: %s\n", what); }

  Options options_;
  Workshop workshop_;
  KernelEvents kernel_;
  std::string no_kernel_;
  std::map<std::string, Subject> subjects_;
  std::vector<std::unique_ptr<HitFunction>> hit_functions_;
  std::vector<Timed> timed_;
  std::vector<Row> rows_;
};

Status Benchmark::add_subject(const std::string& name, Tracer tracer, const std::string& arguments) {
  auto subject = Subject::start(workshop_, kernel_, name, tracer, arguments);
  if (!subject) return subject.error();
  subjects_.emplace(name, subject.take());
  return ok();
}

void Benchmark::add_site(const std::string& what, const std::string& subject, const std::string& site,
                         std::uint64_t count) {
  timed_.push_back({.what = what, .count = count, .nanoseconds = [this, subject, site](std::uint64_t calls) {
                      return subjects_.at(subject).nanoseconds(site, calls);
                    }});
}

void Benchmark::add_sites(const char* who, const std::string& subject, const char* arguments, bool kernel) {
  for (const auto& site : kSiteTitles) {
    const std::string what = std::string(who) + (kernel ? site.kernel : site.ours) + ", " + arguments;
    if (kernel && !no_kernel_.empty()) {
      timed_.push_back({.what = what, .absent = no_kernel_});
      continue;
    }
    add_site(what, subject, site.name, options_.traps);
    timed_.back().has_aim = !kernel && std::strcmp(arguments, kThreeArguments) == 0;
  }
}

Status Benchmark::add_hit_function(const std::string& title, const std::string& arguments) {
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

Status Benchmark::prepare() {
  say("starting the targets");
  if (Status s = add_subject("plain", Tracer::none, ""); !s) return s;
  if (Status s = add_subject("crowd", Tracer::tool_crowd, ""); !s) return s;
  if (Status s = add_subject("ours0", Tracer::tool, ""); !s) return s;
  if (Status s = add_subject("ours3", Tracer::tool, kThreeArguments); !s) return s;
  if (no_kernel_.empty()) {
    if (Status s = add_subject("kernel0", Tracer::kernel, ""); !s) return s;
    if (Status s = add_subject("kernel3", Tracer::kernel, kThreeArguments); !s) return s;
  }
  add_site(kCall, "plain", "push", options_.calls);
  add_site(kCrowdCall, "crowd", "push", options_.calls);
  add_site(kTrap, "plain", "trap", options_.traps);
  add_sites("int3 probe on ", "ours0", "no argument", false);
  add_sites("int3 probe on ", "ours3", kThreeArguments, false);
  add_sites("kernel uprobe on ", "kernel0", "no argument", true);
  add_sites("kernel uprobe on ", "kernel3", kThreeArguments, true);
  if (Status s = add_hit_function("no argument", ""); !s) return s;
  if (Status s = add_hit_function(kThreeArguments, kThreeArguments); !s) return s;
  return add_hit_function("string of 16 bytes", "+0(%di):string");
}

Status Benchmark::measure_timed() {
  say("measuring calls and hits, in turn");
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
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  if (!collector.failure().empty()) return Error{.code = Code::system, .text = collector.failure()};
  add_timed_rows(collector);
  for (auto& [name, subject] : subjects_)
    if (Status s = subject.finish(); !s) return s;
  return ok();
}

void Benchmark::add_timed_rows(const Collector& collector) {
  const double call = collector.find(kCall)->median, trap = collector.find(kTrap)->median;
  for (const Timed& timed : timed_) {
    Row row{.what = timed.what, .value = "n/a (" + timed.absent + ")"};
    if (const Collector::Measured* measured = collector.find(timed.what)) {
      row.value = fixed(measured->median, 1) + " ns";
      row.spread = fixed(100 * measured->deviation / measured->median, 0) + "%";
      row.to_call = measured->median / call;
      row.to_trap = measured->median / trap;
    }
    if (timed.has_aim) row.aim = "<= 1.15 trap", row.met = *row.to_trap <= kTrapAim;
    if (timed.what == kCrowdCall) row.aim = "<= 1.10 call", row.met = *row.to_call <= kUnprobedAim;
    rows_.push_back(std::move(row));
  }
}

Status Benchmark::measure_programs() {
  say("launching programs");
  const auto launches = measure_launches(workshop_, options_.launches);
  if (!launches) return launches.error();
  const double armed = launches->crowd - launches->untraced;
  rows_.push_back({.what = "start to main(), untraced", .value = fixed(launches->untraced * 1e3, 1) + " ms"});
  rows_.push_back({.what = "start to main(), one probe", .value = fixed(launches->one_probe * 1e3, 1) + " ms"});
  rows_.push_back({.what = "start to main(), 10,000 probes, less untraced",
                   .value = fixed(armed * 1e3, 1) + " ms",
                   .aim = "< 1 s",
                   .met = armed < kArmAim});
  const auto whole = measure_whole_run(workshop_, kWholeRunHits, options_.whole_runs);
  if (!whole) return whole.error();
  rows_.push_back({.what = "program with 1,000,000 int3 hits, start to end",
                   .value = fixed(*whole, 2) + " s",
                   .aim = "<= 5 s",
                   .met = *whole <= kWholeRunAim});
  return ok();
}

Status Benchmark::measure_throughput() {
  say("a million hits a second, by hand");
  auto function = HitFunction::make(kThreeArguments);
  if (!function) return function.error();
  const auto run = function->run(kHitsPerSecond, std::chrono::seconds(options_.seconds), workshop_.path("hits.trace"));
  if (!run) return run.error();
  const double rate = static_cast<double>(run->hits) / run->seconds;
  const double lines = static_cast<double>(run->lines) / run->reader_cpu_seconds;
  const bool all = run->recorded == run->hits && run->lines == run->hits && run->damaged == 0;
  rows_.push_back({.what = "hits by hand for " + fixed(run->seconds, 1) + " s, rings of 4 MiB: rate",
                   .value = grouped(rate) + "/s",
                   .aim = ">= 0.99 M/s",
                   .met = rate >= 0.99 * kHitsPerSecond});
  rows_.push_back({.what = "  of " + grouped(static_cast<double>(run->hits)) + " hits recorded and printed",
                   .value = grouped(static_cast<double>(run->lines)),
                   .aim = "all",
                   .met = all});
  rows_.push_back(
      {.what = "  lost", .value = grouped(static_cast<double>(run->lost)), .aim = "0", .met = run->lost == 0});
  rows_.push_back({.what = "  lines printed per second of the reader's CPU time",
                   .value = grouped(lines) + "/s",
                   .aim = ">= 1 M/s",
                   .met = lines >= kLinesAim});
  return ok();
}

Status Benchmark::run() {
  if (Status s = measure_timed(); !s) return s;
  if (Status s = measure_programs(); !s) return s;
  return measure_throughput();
}

std::string cpu_model() {
  const auto text = read_file("/proc/cpuinfo");
  const std::size_t at = text ? text->find("model name\t: ") : std::string::npos;
  if (at == std::string::npos) return "unknown CPU";
  return text->substr(at + 13, text->find('\n', at) - at - 13);
}

// Other programs' load falsifies what depends on the reader being scheduled in time: the table says how much there was.
std::string title(const Options& options, double load) {
  utsname system{};
  ::uname(&system);
  return cpu_model() + ", " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + " CPUs, Linux " + system.release +
         ", load " + fixed(load, 1) + " at the start\nthread CPU time, medians of " +
         std::to_string(options.repetitions) + " interleaved repetitions";
}

int tell(const Error& error) {
  std::fprintf(stderr, "uprobe-bench: %s%s%s\n", error.text.c_str(), error.help.empty() ? "" : "\n",
               error.help.c_str());
  return 1;
}

// The measuring process. `owner` waits for it and cleans up.
int measure(const Options& options, pid_t owner) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  double load = 0;
  ::getloadavg(&load, 1);
  ::signal(SIGPIPE, SIG_IGN);  // a target that died is an error like others
  Workshop::remove_leftovers();
  auto workshop = Workshop::open(owner);
  if (!workshop) return tell(workshop.error());
  const std::string no_kernel = KernelEvents::why_not();
  if (no_kernel.empty()) KernelEvents::remove_leftovers();
  Benchmark benchmark(options, workshop.take(), KernelEvents(owner), no_kernel);
  if (Status s = benchmark.prepare(); !s) return tell(s.error());
  if (Status s = benchmark.run(); !s) return tell(s.error());
  std::fputs(render(title(options, load), benchmark.rows()).c_str(), stdout);
  return 0;
}

// Whatever ends the measuring process, and whatever signal comes here, the kernel's events and the folder go.
int measure_and_clean_up(const Options& options) {
  const pid_t owner = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = measure(options, owner);
    std::fflush(stdout);
    ::_exit(code);
  }
  if (child < 0) return tell(system_error("fork", errno));
  static pid_t told = 0;
  told = child;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, [](int number) { ::kill(told, number); });
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  KernelEvents::remove(owner);
  Workshop::remove(owner);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace uprobe::bench

int main(int argc, char** argv) {
  uprobe::bench::Options options;
  if (!uprobe::bench::parse(argc, argv, options)) {
    std::fprintf(stderr, "Usage: uprobe-bench [--quick] [--seconds=N] [--repetitions=N (at least 3)]\n");
    return 2;
  }
  return uprobe::bench::measure_and_clean_up(options);
}
