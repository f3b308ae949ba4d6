// SPDX-License-Identifier: MIT
// uprobe-run: runs a program and prints its hits. Everything is in run.cpp; only this file and signals.cpp end the
// process.
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

// A standard stream that the caller closed would be the next descriptor of the engine's, and our messages would go
// there (it may be the program's memory). Closed again by exec: the program finds it as the caller left it.
void fill_closed_streams() {
  int fd = -1;
  do fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

// Only memory and threads can run out in a way that nobody has an answer to. What was begun is ended by the destructors on the
// way here: the program runs on without us, or has not begun.
template <class Work>
int without_exceptions(Work work) {
  try {
    return work();
  } catch (const std::exception& e) {
    dprintf(STDERR_FILENO, "uprobe-run: memory or threads have run out (%s)\n", e.what());
    return uprobe::cli::kExitFailure;
  }
}

// What planning has freed is there when programs are held, and has not to be mapped anew.
void keep_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// The limits are those that the program was to have: eight threads with 8 MB each would not fit into data of 64 MB.
void keep_stacks_small() {
  constexpr std::size_t kBytes = 2 << 20;  // what glibc takes where stacks have no limit
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
