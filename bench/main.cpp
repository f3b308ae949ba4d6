// SPDX-License-Identifier: MIT
// uprobe-bench: the cost of a hit, of its parts, and of the kernel's hit; one table from one run.
//
//   uprobe-bench [--quick] [--seconds=N] [--repetitions=N]
//
// Rows that are compared with each other are measured in turn, in random order, many times; the table has the medians.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/hit_function.h"
#include "bench/hit_rows.h"
#include "bench/kernel_events.h"
#include "bench/launches.h"
#include "bench/table.h"
#include "bench/workshop.h"

namespace uprobe::bench {
namespace {

constexpr std::uint64_t kHitsPerSecond = 1'000'000, kWholeRunHits = 1'000'000;
constexpr double kArmAim = 0.075, kMemoryAim = 300, kWholeRunAim = 5.0, kLinesAim = 1e6;

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

class Benchmark {
 public:
  Benchmark(const Options& options, Workshop workshop, KernelEvents kernel, const std::string& no_kernel)
      : options_(options),
        workshop_(std::move(workshop)),
        kernel_(std::move(kernel)),
        hits_(options_, workshop_, kernel_, no_kernel) {}
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  Status run();
  const std::vector<Row>& rows() const { return rows_; }

 private:
  Status measure_hits();
  Status measure_launches_of(Tier tier);
  Status measure_whole_run_of(Tier tier);
  Status measure_throughput();
  void say(const char* what) const { std::fprintf(stderr, "uprobe-bench: %s\n", what); }

  Options options_;
  Workshop workshop_;
  KernelEvents kernel_;
  HitRows hits_;
  std::vector<Tier> tiers_;
  std::vector<Row> rows_;
};

Status Benchmark::measure_hits() {
  say("starting the targets");
  if (Status s = hits_.prepare(tiers_); !s) return s;
  say("measuring calls and hits, in turn");
  if (Status s = hits_.measure(); !s) return s;
  rows_ = hits_.rows();
  return ok();
}

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 1) + " ms"; }

Status Benchmark::measure_launches_of(Tier tier) {
  const auto launches = measure_launches(workshop_, tier, options_.launches);
  if (!launches) return launches.error();
  const auto disarming = measure_disarming(workshop_, tier, options_.launches);
  if (!disarming) return disarming.error();
  const double arming = launches->exec_crowd - launches->exec_one_probe;
  const std::string probes = std::string("20,000 ") + name_of(tier) + " probes";
  if (tier == Tier::int3)
    rows_.push_back({.what = "start to main(), untraced", .value = milliseconds(launches->untraced)});
  rows_.push_back({.what = std::string("start to main(), one ") + name_of(tier) + " probe",
                   .value = milliseconds(launches->one_probe)});
  rows_.push_back({.what = "start to main(), " + probes + ", less one probe",
                   .value = milliseconds(launches->crowd - launches->one_probe)});
  rows_.push_back({.what = "  of it arming them (execve to main())",
                   .value = milliseconds(arming),
                   .aim = "<= 75 ms",
                   .met = arming <= kArmAim});
  rows_.push_back({.what = "  taking them out again", .value = milliseconds(*disarming)});
  rows_.push_back({.what = "  memory of the target, each probe",
                   .value = fixed(launches->resident, 0) + " B",
                   .aim = "<= 300 B",
                   .met = launches->resident <= kMemoryAim});
  rows_.push_back({.what = "  address space of the target, each probe", .value = fixed(launches->mapped, 0) + " B"});
  return ok();
}

Status Benchmark::measure_whole_run_of(Tier tier) {
  const auto whole = measure_whole_run(workshop_, tier, kWholeRunHits, options_.whole_runs);
  if (!whole) return whole.error();
  rows_.push_back({.what = std::string("program with 1,000,000 ") + name_of(tier) + " hits, start to end",
                   .value = fixed(whole->seconds, 2) + " s",
                   .aim = "<= 5 s",
                   .met = whole->seconds <= kWholeRunAim});
  rows_.push_back({.what = "  lost", .value = fixed(100 * whole->lost, 1) + "%"});
  return ok();
}

Status Benchmark::measure_throughput() {
  say("a million hits a second, by hand");
  auto function = HitFunction::make("%di %si %dx");
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
  auto tiers = tool_tiers();
  if (!tiers) return tiers.error();
  tiers_ = tiers.take();
  if (Status s = measure_hits(); !s) return s;
  say("launching programs");
  for (const Tier tier : tiers_)
    if (Status s = measure_launches_of(tier); !s) return s;
  for (const Tier tier : tiers_)
    if (Status s = measure_whole_run_of(tier); !s) return s;
  return measure_throughput();
}

std::string cpu_model() {
  const auto text = read_file("/proc/cpuinfo");
  const std::size_t at = text ? text->find("model name\t: ") : std::string::npos;
  if (at == std::string::npos) return "unknown CPU";
  return text->substr(at + 13, text->find('\n', at) - at - 13);
}

// Other programs' load falsifies rows that depend on a timely reader: the table shows how much load there was.
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
  if (Status s = benchmark.run(); !s) return tell(s.error());
  std::fputs(render(title(options, load), benchmark.rows()).c_str(), stdout);
  return 0;
}

// Removes the kernel's events and the folder, however the measuring process ends and whatever signal comes.
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
