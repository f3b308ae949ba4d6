// SPDX-License-Identifier: MIT
#include "cli/inheritance.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <initializer_list>

#include "engine/base/limits.h"

namespace uprobe::cli {
namespace {

volatile sig_atomic_t ask_to_end = 0;
void on_end_signal(int) { ask_to_end = 1; }

}  // namespace

void shed_inheritance() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  for (const int number : {SIGPIPE, SIGINT, SIGQUIT, SIGTTOU}) ::signal(number, SIG_IGN);
  for (const int number : {SIGTERM, SIGHUP}) ::signal(number, on_end_signal);
  const sched_param normal{};
  ::sched_setscheduler(0, SCHED_OTHER, &normal);
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  ::sched_setaffinity(0, sizeof all, &all);
  raise_own_limits();
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

bool is_asked_to_end() { return ask_to_end != 0; }

}  // namespace uprobe::cli
