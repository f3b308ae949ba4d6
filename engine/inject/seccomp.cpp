// SPDX-License-Identifier: MIT
// What a tool may read and suspend it can also attach to where the filters forbid the calls of attaching; what it cannot read has to
// allow these too, as the trial shows. Afterwards the process is alone with its filters in both cases.
#include "engine/inject/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "engine/base/procfs.h"
#include "engine/inject/agents_calls.h"
#include "engine/inject/seccomp_trial.h"
#include "engine/target/seccomp.h"

namespace uprobe::control {
namespace {

// ---- filters that can be read

using Programs =
    std::set<std::vector<sock_filter>, bool (*)(const std::vector<sock_filter>&, const std::vector<sock_filter>&)>;

std::uint64_t word_of(const sock_filter& insn) {
  return std::uint64_t{insn.code} << 48 | std::uint64_t{insn.jt} << 40 | std::uint64_t{insn.jf} << 32 | insn.k;
}
bool is_before(const std::vector<sock_filter>& one, const std::vector<sock_filter>& other) {
  return std::ranges::lexicographical_compare(one, other, {}, word_of, word_of);
}

// Adds the filters of a stopped thread. The kernel numbers them from 0 (kernel/seccomp.c, seccomp_get_filter). Threads share most of
// theirs; a hostile process could have any number.
Status add_filters(pid_t tid, Programs& programs) {
  constexpr auto kGetFilter = static_cast<__ptrace_request>(0x420c);  // PTRACE_SECCOMP_GET_FILTER
  constexpr std::uintptr_t kMostFilters = 512;
  for (std::uintptr_t number = 0; number < kMostFilters && programs.size() < kMostFilters; ++number) {
    std::vector<sock_filter> program(BPF_MAXINSNS);
    const long length = ::ptrace(kGetFilter, tid, reinterpret_cast<void*>(number), program.data());
    if (length < 0 && errno == ENOENT) return ok();
    if (length < 0) return system_error("PTRACE_SECCOMP_GET_FILTER", errno);
    program.resize(std::min<std::size_t>(static_cast<std::size_t>(length), BPF_MAXINSNS));
    programs.insert(std::move(program));
  }
  return system_error("PTRACE_SECCOMP_GET_FILTER", E2BIG);
}

std::uint32_t answer_of_all(const Programs& programs, const FilteredCall& call) {
  std::uint32_t strictest = SECCOMP_RET_ALLOW;
  for (const auto& program : programs) strictest = stricter_answer(strictest, answer_of(program, call));
  return strictest;
}

bool is_log(std::uint32_t answer) { return (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_LOG; }

// What they make of the agent's calls. Attaching itself is done with the filters suspended.
struct Reading {
  std::string forbidden_always, forbidden;  // the first call of each kind
  bool is_logged = false;
};

Reading read_answers(const Programs& programs) {
  Reading reading;
  for (const NeededCall& needed : agents_calls()) {
    const std::uint32_t answer = answer_of_all(programs, needed.call);
    reading.is_logged = reading.is_logged || is_log(answer);
    if (is_allowed(answer)) continue;
    std::string& first = needed.when == NeededWhen::always ? reading.forbidden_always : reading.forbidden;
    if (first.empty()) first = needed.name;
  }
  return reading;
}

// ---- verdicts

Error refused(std::string why, std::string help) {
  return Error{.code = Code::refused, .text = std::move(why), .help = std::move(help)};
}

Result<FilterVerdict> judge_by_reading(const std::vector<pid_t>& tids) {
  Programs programs(is_before);
  for (const pid_t tid : tids)
    if (Status added = add_filters(tid, programs); !added)
      return refused("has a seccomp filter that cannot be read (" + added.error().text + ")", "");
  const Reading reading = read_answers(programs);
  if (!reading.forbidden_always.empty())
    return refused(
        "has a seccomp filter that does not allow " + reading.forbidden_always + ", which the agent needs at every hit",
        "start the program under uprobe-run");
  return FilterVerdict{.forbidden = reading.forbidden, .is_logged = reading.is_logged};
}

// The filters are this tool's as well. A refusal does no harm to what the agent does alone; death does.
Result<FilterVerdict> judge_by_trial() {
  const auto results = own_filters_results();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const NeededCall& needed = agents_calls()[i];
    const bool may_fail = needed.when == NeededWhen::serving && results[i] == TrialResult::refused;
    if (results[i] != TrialResult::made && !may_fail)
      return refused("has a seccomp filter that does not allow " + std::string(needed.name) + ", which attaching needs",
                     "use root outside of the filter, which can suspend it, or start the program under uprobe-run");
  }
  return FilterVerdict{};
}

Result<FilterVerdict> judge(target::StoppedProcess& process, bool trusts) {
  std::vector<pid_t> filtered;
  for (const auto& thread : process.threads())
    if (process.is_filtered(thread.tid)) filtered.push_back(thread.tid);
  if (filtered.empty()) return FilterVerdict{};
  if (target::can_suspend_filters()) return judge_by_reading(filtered);
  if (trusts) return FilterVerdict{};
  const auto is_ours = [&process](pid_t tid) { return target::shares_our_filters(process.pid(), tid); };
  if (std::ranges::all_of(filtered, is_ours)) return judge_by_trial();
  return refused("has put a seccomp filter in force just now", "");
}

}  // namespace

Result<FilterVerdict> judge_filters(target::StoppedProcess& process, bool trusts) {
  auto verdict = judge(process, trusts);
  if (!verdict) process.forbid_calls();
  return verdict;
}

std::string describe(pid_t pid, const FilterVerdict& verdict) {
  const std::string who = procfs::called(pid);
  if (!verdict.forbidden.empty())
    return who + " has a seccomp filter that does not allow " + verdict.forbidden +
           ": libraries that it loads later, and programs that it executes, are not probed";
  if (verdict.is_logged) return who + " has a seccomp filter that logs system calls, the agent's too";
  return {};
}

Result<std::string> foretell(pid_t pid, bool trusts) {
  const auto is_filtered = [pid](pid_t tid) { return target::is_filtered(pid, tid); };
  if (std::ranges::none_of(target::threads_of(pid), is_filtered)) return std::string();
  if (target::can_suspend_filters())
    return std::string("has a seccomp filter, which attaching reads: the agent makes only calls that it allows");
  if (trusts) return std::string("has a seccomp filter, which is taken to allow all that is needed");
  if (auto verdict = judge_by_trial(); !verdict) return verdict.error();
  return std::string("has the tool's own seccomp filter, which allows all that is needed");
}

namespace {

// Such a program has the filters of the tool, and more only where one was added on the way.
bool may_filters_kill(pid_t pid) {
  Programs programs(is_before);
  if (target::can_suspend_filters() && add_filters(pid, programs)) {
    const Reading reading = read_answers(programs);
    return !reading.forbidden.empty() || !reading.forbidden_always.empty();
  }
  const auto is_harmless = [](TrialResult r) { return r == TrialResult::made || r == TrialResult::refused; };
  return !target::has_as_many_filters_as_we(pid) || !std::ranges::all_of(own_filters_results(), is_harmless);
}

}  // namespace

bool may_be_killed_for_calls(pid_t pid) { return target::is_filtered(pid, pid) && may_filters_kill(pid); }

bool may_be_killed_for_calls(target::Target& target) {
  return target::shows_filters(target.status()) && may_filters_kill(target.pid());
}

}  // namespace uprobe::control
