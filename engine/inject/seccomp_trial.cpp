// SPDX-License-Identifier: MIT
// A filter can refuse a call with any errno; the usual ones count as its refusal. Where it takes another one, attaching meets that
// errno and gives up: no process is harmed.
#include "engine/inject/seccomp_trial.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

#include "engine/inject/agents_calls.h"

namespace uprobe::control {
namespace {

// As an address it is the kernel's, and of no page; as a length too large; as a number or a descriptor negative.
constexpr long kNonsense = -4095;

// The frame that it takes is made by a signal.
void return_from_a_handler() {
  ::signal(SIGUSR1, [](int) {});
  ::raise(SIGUSR1);
}

bool is_refused(const FilteredCall& call) {
  const auto argument = [&call](std::size_t i) {
    return call.arguments[i] ? static_cast<long>(*call.arguments[i]) : kNonsense;
  };
  const long result =
      ::syscall(call.number, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5));
  return result == -1 && (errno == EPERM || errno == ENOSYS || errno == EACCES);
}

[[noreturn]] void make_calls(std::span<TrialResult> results, std::size_t first) {
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (std::size_t i = first; i < results.size(); ++i) {
    const FilteredCall& call = agents_calls()[i].call;
    bool refused = false;
    if (call.number == SYS_rt_sigreturn)
      return_from_a_handler();
    else
      refused = is_refused(call);
    results[i] = refused ? TrialResult::refused : TrialResult::made;
  }
  ::_exit(0);
}

// Each child begins after the call that killed the one before.
void try_all(std::span<TrialResult> results) {
  for (std::size_t first = 0; first < results.size();) {
    const pid_t child = ::fork();
    if (child == 0) make_calls(results, first);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || WIFEXITED(status)) return;
    first = static_cast<std::size_t>(std::ranges::find(results, TrialResult::not_made) - results.begin());
    if (first < results.size()) results[first++] = TrialResult::killed;
  }
}

std::vector<TrialResult> all_results() {
  std::vector<TrialResult> all(agents_calls().size(), TrialResult::not_made);
  void* const shared = ::mmap(nullptr, all.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return all;
  const std::span results(static_cast<TrialResult*>(shared), all.size());
  try_all(results);
  all.assign(results.begin(), results.end());
  ::munmap(shared, all.size());
  return all;
}

}  // namespace

std::span<const TrialResult> own_filters_results() {
  static const std::vector<TrialResult> results = all_results();
  return results;
}

}  // namespace uprobe::control
