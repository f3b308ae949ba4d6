// The traced program. It measures itself, in the CPU time of its thread, and does nothing else: what a hit costs is
// what a call of a probed function takes longer than one of a function without a probe.
//
//   started      it writes "ready NANOSECONDS" (CLOCK_MONOTONIC as main begins)
//   each line    "SITE WARM-UP CALLS" on standard input: it calls the site so often, and writes the nanoseconds that
//   the
//                calls after the warm-up took
//   end of input it ends
//
// With the argument "handler" it has a SIGTRAP handler that only returns: the least that a breakpoint can cost.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

extern "C" {
std::uint64_t site_push(std::uint64_t, std::uint64_t, std::uint64_t);
std::uint64_t site_move(std::uint64_t, std::uint64_t, std::uint64_t);
std::uint64_t site_nop(std::uint64_t, std::uint64_t, std::uint64_t);
std::uint64_t site_trap(std::uint64_t, std::uint64_t, std::uint64_t);
}

namespace {

using Site = std::uint64_t (*)(std::uint64_t, std::uint64_t, std::uint64_t);

std::uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

Site find_site(const char* name) {
  constexpr struct {
    const char* name;
    Site site;
  } sites[] = {{"push", site_push}, {"move", site_move}, {"nop", site_nop}, {"trap", site_trap}};
  for (const auto& entry : sites)
    if (std::strcmp(entry.name, name) == 0) return entry.site;
  return nullptr;
}

void call(Site site, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) site(i, 2, 3);
}

std::uint64_t measure(Site site, std::uint64_t warm_up, std::uint64_t count) {
  call(site, warm_up);
  const std::uint64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  call(site, count);
  return nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before;
}

// The last CPU is this program's, so that it neither moves nor, where there is another one, meets the reader.
void take_last_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN) - 1), &set);
  sched_setaffinity(0, sizeof set, &set);
}

void handle(int, siginfo_t*, void*) {}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("ready %llu\n", static_cast<unsigned long long>(nanoseconds(CLOCK_MONOTONIC)));
  std::fflush(stdout);
  take_last_cpu();
  if (argc > 1 && std::strcmp(argv[1], "handler") == 0) install_handler();

  char line[128], name[16];
  unsigned long long warm_up = 0, count = 0;
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    if (std::sscanf(line, "%15s %llu %llu", name, &warm_up, &count) != 3) return 2;
    const Site site = find_site(name);
    if (site == nullptr) return 2;
    std::printf("%llu\n", static_cast<unsigned long long>(measure(site, warm_up, count)));
    std::fflush(stdout);
  }
  return 0;
}
