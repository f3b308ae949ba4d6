// SPDX-License-Identifier: MIT
// uprobe-run: runs a program and prints its hits. run.cpp does the work; only this file and signals.cpp end the process.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "cli/daemonize.h"
#include "cli/helper.h"
#include "cli/launcher.h"
#include "cli/run.h"
#include "cli/self_attach_tracer.h"
#include "cli/session_engine.h"

namespace {

// If the caller has closed a standard stream, the engine's next descriptor would get its number, and messages would go there
// (it may be the program's memory). Closed again by exec: the program finds the stream as the caller left it.
void fill_closed_streams() {
  int fd = -1;
  do fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

// Only memory and threads can run out in a way that no code handles. By this point the destructors have ended what was begun:
// the program runs on untraced, or has not been started.
template <class Work>
int without_exceptions(Work work) {
  try {
    return work();
  } catch (const std::exception& e) {
    dprintf(STDERR_FILENO, "uprobe-run: memory or threads have run out (%s)\n", e.what());
    return uprobe::cli::kExitFailure;
  }
}

// Keeps memory that planning has freed, so that it need not be mapped again while programs are stopped.
void keep_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// The limits are those for the program: eight threads with 8 MB each would not fit into a data limit of 64 MB.
void keep_stacks_small() {
  constexpr std::size_t kBytes = 2 << 20;  // glibc's default where stacks have no limit
  pthread_attr_t threads;
  if (::pthread_attr_init(&threads) != 0) return;
  if (::pthread_attr_setstacksize(&threads, kBytes) == 0) ::pthread_setattr_default_np(&threads);
  ::pthread_attr_destroy(&threads);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace uprobe::cli;
  fill_closed_streams();
  keep_memory();
  keep_stacks_small();
  if (is_helper_call(argc, argv)) return without_exceptions([&] { return run_helper(argv); });
  if (is_self_attach_tracer_call(argc, argv)) return without_exceptions([&] { return run_self_attach_tracer(argv); });
  return without_exceptions([&]() -> int {
    SessionEngine engine;
    const Streams streams;
    const std::vector<std::string> arguments(argv, argv + argc);
    if (const auto ended = run_daemonized(arguments, streams)) end_as(*ended);
    if (const auto ended = run_as_launcher(arguments, argv, engine, streams)) end_as(*ended);
    const Outcome outcome = run_cli(arguments, engine, streams);
    dismiss_waiting(outcome);
    end_as(outcome);
  });
}
