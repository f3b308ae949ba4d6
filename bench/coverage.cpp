// SPDX-License-Identifier: MIT
// How many places of real programs a jump can reach, and why it cannot reach the others: one line per file, each place planned
// by itself. For functions whose exits are all known: how many of the exits, and how many functions are left only by jumps.
//
//   uprobe-coverage [--reasons] [--list REASON] [FILE...]
//
// --reasons: the reasons, for each file; --list: the places with this reason, or "front": those whose jump begins before them.
// Without files: the usual ones that exist.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "arch/code/scan.h"
#include "engine/elf/elf_file.h"
#include "engine/flow/entries.h"
#include "engine/flow/flow.h"
#include "engine/plan/exit_place.h"
#include "engine/plan/window.h"

namespace uprobe {
namespace {

constexpr const char* kUsual[] = {"/usr/bin/bash",
                                  "/usr/bin/zsh",
                                  "/lib/x86_64-linux-gnu/libc.so.6",
                                  "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
                                  "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                  "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                                  "/usr/bin/python3.11",
                                  "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
                                  "/usr/bin/perl",
                                  "/usr/bin/redis-server",
                                  "/usr/sbin/nginx",
                                  "/usr/bin/git",
                                  "/usr/bin/node"};

using Clock = std::chrono::steady_clock;

struct Counts {
  std::size_t by_kind[7] = {};
  std::map<std::string, std::size_t> reasons;

  std::size_t total() const {
    std::size_t sum = 0;
    for (const std::size_t n : by_kind) sum += n;
    return sum;
  }
  std::size_t jumps() const { return total() - by_kind[5] - by_kind[6]; }
  void add(const plan::Window& window) {
    ++by_kind[static_cast<std::size_t>(window.kind)];
    if (!window.is_jump())
      ++reasons[(window.kind == plan::WindowKind::refused ? "refused: " : "int3: ") + window.text()];
  }
  void add(const Counts& other) {
    for (std::size_t i = 0; i < 7; ++i) by_kind[i] += other.by_kind[i];
    for (const auto& [reason, n] : other.reasons) reasons[reason] += n;
  }
};

// Functions, sorted by whether their exits are known.
struct Functions {
  std::size_t number = 0, known = 0, by_jumps = 0;
  void add(const Functions& other) { number += other.number, known += other.known, by_jumps += other.by_jumps; }
};

struct Report {
  Counts entries, all, exits;
  Functions functions;
};

bool is_listed(const plan::Window& window, const std::string& listed) {
  return window.kind == plan::WindowKind::prefix_window ? listed == "front" : window.text() == listed;
}

double percent(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}
double seconds_since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

void print_counts(const char* what, const Counts& counts) {
  std::printf("  %-8s %9zu ", what, counts.total());
  for (const std::size_t n : counts.by_kind) std::printf(" %6.2f", percent(n, counts.total()));
  std::printf("  jump %6.2f\n", percent(counts.jumps(), counts.total()));
}

void print_functions(const Functions& functions) {
  std::printf("  %zu functions: the exits of %.1f%% are known, all jumps in %.1f%% of these\n", functions.number,
              percent(functions.known, functions.number), percent(functions.by_jumps, functions.known));
}

void print_reasons(const Counts& counts) {
  for (const auto& [reason, n] : counts.reasons)
    std::printf("    %7.3f%% %8zu  %s\n", percent(n, counts.total()), n, reason.c_str());
}

// The targets of other functions' jumps, and of calls.
struct Targets {
  std::set<std::uint64_t> jumps, calls;
};

Targets targets_of(const plan::FileFlow& flow) {
  Targets targets;
  for (const plan::SweptFunction& function : flow.functions())
    for (std::uint64_t at = function.range.begin; at < function.range.end; ++at) {
      arch::Scanned insn;
      if (!flow.is_start(at) || !arch::scan(flow.bytes_at(at), Addr{at}, insn)) continue;
      if (insn.leads == arch::Leads::call) targets.calls.insert(insn.target);
      if (insn.leads == arch::Leads::jump || insn.leads == arch::Leads::jump_if) targets.jumps.insert(insn.target);
    }
  return targets;
}

// Starts of functions: symbols, and the targets of calls. An FDE that only jumps lead to is the part of a function that its
// compiler moved away (.cold); in a stripped file only that shows it.
std::vector<std::uint64_t> entries_of(const plan::FileFlow& flow) {
  const Targets targets = targets_of(flow);
  std::set<std::uint64_t> named;
  for (const elf::Symbol& symbol : flow.file().functions())
    if (symbol.name.find(".cold") == std::string::npos) named.insert(symbol.address);
  std::vector<std::uint64_t> entries;
  for (const elf::Range& range : flow.file().function_ranges()) {
    const bool is_part = targets.jumps.count(range.begin) != 0 && targets.calls.count(range.begin) == 0;
    if (named.count(range.begin) != 0 || !is_part) entries.push_back(range.begin);
  }
  return entries;
}

void measure_exits(const plan::FileFlow& flow, const std::vector<std::uint64_t>& starts, const std::string& listed,
                   Report& report) {
  const plan::FunctionEntries ways_in(flow);
  const plan::WindowClaims none;
  for (const std::uint64_t start : starts) {
    ++report.functions.number;
    const auto exits = plan::exits_of(flow, ways_in, start);
    if (!exits) continue;
    bool all_jumps = true;
    for (const plan::Exit& exit : *exits) {
      const plan::Exit place = plan::place_for(flow, exit, 0);
      const plan::Window window = plan::plan_window(flow, place.address, none);
      report.exits.add(window);
      all_jumps = all_jumps && window.is_jump();
      if (!listed.empty() && is_listed(window, listed))
        std::printf("exit %#lx\n", static_cast<unsigned long>(exit.address));
    }
    ++report.functions.known;
    report.functions.by_jumps += all_jumps ? 1 : 0;
  }
}

// Every start of a function, its exits, and every instruction.
Report measure(const plan::FileFlow& flow, const std::string& listed) {
  Report report;
  const plan::WindowClaims none;
  std::uint64_t last = 0;
  const std::vector<std::uint64_t> starts = entries_of(flow);
  for (const std::uint64_t entry : starts) {
    const plan::Window window = plan::plan_window(flow, entry, none);
    report.entries.add(window);
    if (!listed.empty() && is_listed(window, listed)) std::printf("entry %#lx\n", static_cast<unsigned long>(entry));
  }
  measure_exits(flow, starts, listed, report);
  for (const plan::SweptFunction& function : flow.functions())
    for (std::uint64_t at = std::max(last, function.range.begin); at < function.range.end; last = ++at) {
      if (!flow.is_start(at)) continue;
      const plan::Window window = plan::plan_window(flow, at, none);
      report.all.add(window);
      if (!listed.empty() && is_listed(window, listed)) std::printf("%#lx\n", static_cast<unsigned long>(at));
    }
  return report;
}

// 20,000 places spread over the whole file, as one session would plan them: each knows of the others.
void time_places(const plan::FileFlow& flow) {
  constexpr std::size_t kPlaces = 20000;
  const auto& functions = flow.functions();
  plan::WindowClaims claims;
  std::vector<std::uint64_t> places;
  for (std::size_t i = 0; i < kPlaces && !functions.empty(); ++i) {
    const elf::Range& range = functions[i * functions.size() / kPlaces].range;
    std::uint64_t at = range.begin + (range.end - range.begin) * (i % 7) / 7;
    while (at < range.end && !flow.is_start(at)) ++at;
    if (at < range.end) places.push_back(at);
  }
  const auto begin = Clock::now();
  for (const std::uint64_t place : places) claims.add_place(place);
  std::size_t jumps = 0;
  for (const std::uint64_t place : places) {
    const plan::Window window = plan::plan_window(flow, place, claims);
    claims.take(window);
    jumps += window.is_jump() ? 1 : 0;
  }
  std::printf("  %zu places together: %zu jumps, %.3f s\n", places.size(), jumps, seconds_since(begin));
}

int measure_file(const std::string& path, bool with_reasons, const std::string& listed, Report& sum) {
  const auto opened = Clock::now();
  auto file = elf::ElfFile::open(path);
  if (!file) return std::fprintf(stderr, "%s %s\n", path.c_str(), file.error().text.c_str()), 1;
  file->function_ranges();
  const double open_time = seconds_since(opened);
  const auto begin = Clock::now();
  const plan::FileFlow flow(*file);
  std::printf("%s: opened in %.2f s, read in %.2f s, %.1f MB\n", path.c_str(), open_time, seconds_since(begin),
              static_cast<double>(flow.memory()) / 1e6);
  time_places(flow);
  const Report report = measure(flow, listed);
  print_counts("entries", report.entries);
  if (with_reasons) print_reasons(report.entries);
  print_counts("exits", report.exits);
  if (with_reasons) print_reasons(report.exits);
  print_functions(report.functions);
  print_counts("all", report.all);
  if (with_reasons) print_reasons(report.all);
  sum.entries.add(report.entries);
  sum.exits.add(report.exits);
  sum.functions.add(report.functions);
  sum.all.add(report.all);
  return 0;
}

}  // namespace
}  // namespace uprobe

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string listed;
  bool with_reasons = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--reasons") == 0)
      with_reasons = true;
    else if (std::strcmp(argv[i], "--list") == 0 && i + 1 < argc)
      listed = argv[++i];
    else
      files.emplace_back(argv[i]);
  }
  if (files.empty())
    for (const char* file : uprobe::kUsual)
      if (access(file, R_OK) == 0) files.emplace_back(file);
  std::printf("  %-8s %9s  %6s %6s %6s %6s %6s %6s %6s  (percent)\n", "places", "number", "W", "N", "M", "J2", "front",
              "int3", "refuse");
  uprobe::Report sum;
  int failed = 0;
  for (const std::string& file : files) failed |= uprobe::measure_file(file, with_reasons, listed, sum);
  std::printf("all files\n");
  uprobe::print_counts("entries", sum.entries);
  uprobe::print_reasons(sum.entries);
  uprobe::print_counts("exits", sum.exits);
  uprobe::print_reasons(sum.exits);
  uprobe::print_functions(sum.functions);
  uprobe::print_counts("all", sum.all);
  uprobe::print_reasons(sum.all);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("most memory: %ld MB\n", usage.ru_maxrss / 1024);
  return failed;
}
