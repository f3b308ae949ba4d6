// SPDX-License-Identifier: MIT
// The traced program. It measures itself, in the CPU time of its thread, and does nothing else: the cost of a hit is the
// additional time of a call of a probed function, compared with one without a probe.
//
//   started      it writes "ready NANOSECONDS" (CLOCK_MONOTONIC as main begins)
//   each line    "SITE WARM-UP CALLS THREADS" on standard input: it calls the site so often, and writes the nanoseconds that
//                the calls after the warm-up took; a second thread does the same at the same time
//                "exec": it writes "exec NANOSECONDS" and becomes a fresh one
//   end of input it ends
//
// With the argument "handler" it has a SIGTRAP handler that only returns: the least that a breakpoint can cost.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>

extern "C" {
std::uint64_t site_push(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_move(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_nop(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_pair(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_deep(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_trap(const char*, std::uint64_t, std::uint64_t);
std::uint64_t site_crowd(const char*, std::uint64_t, std::uint64_t);
}

namespace {

constexpr char kText[] __attribute__((aligned(64))) = "fifteen letters";

struct Site {
  const char* name;
  std::uint64_t (*function)(const char*, std::uint64_t, std::uint64_t);
  std::uint64_t calls;  // that one call of it makes
};
constexpr Site kSites[] = {
    {"push", site_push, 1},  {"move", site_move, 1}, {"nop", site_nop, 1},          {"pair", site_pair, 1},
    {"deep", site_deep, 30}, {"trap", site_trap, 1}, {"crowd", site_crowd, 20'000},
};

std::uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

const Site* find_site(const char* name) {
  for (const Site& site : kSites)
    if (std::strcmp(site.name, name) == 0) return &site;
  return nullptr;
}

void call(const Site& site, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; i += site.calls) site.function(kText, 2, 3);
}

void stay_on(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// The last CPU is this program's, so that it neither moves nor, where there is another one, meets the reader.
void take_last_cpu() { stay_on(static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN) - 1)); }

struct Order {
  const Site* site;
  unsigned long long warm_up, count;
  unsigned threads;
};

std::uint64_t measure(const Order& order, std::atomic<unsigned>& missing) {
  call(*order.site, order.warm_up);
  --missing;
  while (missing != 0) sched_yield();
  const std::uint64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  call(*order.site, order.count);
  return nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before;
}

std::uint64_t measure(const Order& order) {
  std::atomic<unsigned> missing{order.threads};
  std::thread other;
  if (order.threads > 1)
    other = std::thread([&] {
      stay_on(0);
      static_cast<void>(measure(order, missing));
    });
  const std::uint64_t taken = measure(order, missing);
  if (other.joinable()) other.join();
  return taken;
}

void tell(const char* what, std::uint64_t number) {
  std::printf("%s%llu\n", what, static_cast<unsigned long long>(number));
  std::fflush(stdout);
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
  tell("ready ", nanoseconds(CLOCK_MONOTONIC));
  take_last_cpu();
  if (argc > 1 && std::strcmp(argv[1], "handler") == 0) install_handler();

  char line[128], name[16];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    if (std::strcmp(line, "exec\n") == 0) {
      tell("exec ", nanoseconds(CLOCK_MONOTONIC));
      execv(argv[0], argv);
      return 2;
    }
    Order order{};
    if (std::sscanf(line, "%15s %llu %llu %u", name, &order.warm_up, &order.count, &order.threads) != 4) return 2;
    order.site = find_site(name);
    if (order.site == nullptr || order.threads < 1 || order.threads > 2) return 2;
    tell("", measure(order));
  }
  return 0;
}
