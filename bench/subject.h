// SPDX-License-Identifier: MIT
// A target that runs during the whole benchmark, traced in one way, and measures the sites that it is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/child.h"
#include "bench/kernel_events.h"
#include "bench/workshop.h"

namespace uprobe::bench {

enum class Tracer {
  none,         // with a SIGTRAP handler of its own
  tool,         // uprobe-run, probes at every site
  tool_off,     // the same, recording off
  tool_filter,  // probes at every site, that of `push` with a filter that lets nothing pass
  tool_crowd,   // uprobe-run, probes at the 20,000 functions of the crowd and none at the sites
  tool_pairs,   // uprobe-run, entry and return of the functions for that
  tool_sums,    // uprobe-run, a summary of the calls of these functions
  kernel,       // uprobe events, at every site
  kernel_pairs,
};

struct Tracing {
  Tracer tracer = Tracer::none;
  Tier tier = Tier::int3;  // of uprobe-run
  std::string arguments = {};
  std::string option = {};  // of uprobe-run, a further one
};

// The number of functions in the crowd, and the definitions that probe the first `count` of them in `target`.
inline constexpr int kCrowd = 20'000;
std::string crowd_definitions(const std::string& target, int count);
// One definition: that of `site` with its event name.
std::string site_definition(const std::string& target, const std::string& site, const std::string& arguments);

// Hits, recorded and lost, as uprobe-run's summary gives them for an event (empty: for all together); nothing if the summary
// does not have it.
std::optional<std::uint64_t> hits_in_summary(const std::string& summary, const std::string& event);
// Of all events.
std::uint64_t lost_in_summary(const std::string& summary);
// Whether a summary says of the first `count` functions of the crowd that they were probed, and never reached.
bool is_armed_crowd(const std::string& summary, int count);

class Subject {
 public:
  // `kernel` outlives it and is used for Tracer::kernel alone; `name` is that of its files and its kernel events.
  static Result<Subject> start(const Workshop& workshop, KernelEvents& kernel, const std::string& name,
                               const Tracing& tracing);

  // CPU time of a call of the site, of `count` in a row; `threads` threads measure at once, each on a CPU of its own.
  Result<double> nanoseconds(const std::string& site, std::uint64_t count, unsigned threads);
  // Ends it and checks: each call of a probed site is a recorded hit, and none while recording was off.
  Status finish();

 private:
  Subject(Child child, KernelEvents& kernel, std::string name, const Tracing& tracing, std::string summary)
      : child_(std::move(child)),
        kernel_(&kernel),
        name_(std::move(name)),
        tracing_(tracing),
        summary_(std::move(summary)) {}
  bool is_traced_by_kernel() const {
    return tracing_.tracer == Tracer::kernel || tracing_.tracer == Tracer::kernel_pairs;
  }
  bool is_traced_by_tool() const { return tracing_.tracer != Tracer::none && !is_traced_by_kernel(); }
  bool has_probes(const std::string& site) const;
  std::vector<std::string> events_of(const std::string& site) const;
  Status check_kernel() const;
  Status check_summary() const;
  Status check_table(const std::string& table) const;
  Error mismatch(const std::string& site, std::uint64_t calls, std::uint64_t hits) const;

  Child child_;
  KernelEvents* kernel_;
  std::string name_;
  Tracing tracing_;
  std::string summary_;                         // the file with uprobe-run's summary
  std::map<std::string, std::uint64_t> calls_;  // of each probed site, while recording was on
};

}  // namespace uprobe::bench
