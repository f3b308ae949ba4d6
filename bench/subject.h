// A target that runs during the whole benchmark, traced in one way, and measures what it is told to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bench/child.h"
#include "bench/kernel_events.h"
#include "bench/workshop.h"

namespace uprobe::bench {

enum class Tracer {
  none,        // with a SIGTRAP handler of its own
  tool,        // uprobe-run, probes at every site
  tool_crowd,  // uprobe-run, probes at the 10,000 functions of the crowd and none at the sites
  kernel,      // uprobe events, at every site
};

// How many functions the crowd has, and the definitions that probe the first `count` of them in `target`.
inline constexpr int kCrowd = 10'000;
std::string crowd_definitions(const std::string& target, int count);
// One definition: that of `site` with its event name.
std::string site_definition(const std::string& target, const std::string& site, const std::string& arguments);

// Hits as uprobe-run's summary gives them for an event; nothing when it is not there or some were lost.
std::optional<std::uint64_t> hits_in_summary(const std::string& summary, const std::string& event);
// Whether a summary says of the first `count` functions of the crowd that they were probed, and never reached.
bool is_armed_crowd(const std::string& summary, int count);

class Subject {
 public:
  // `kernel` outlives it and is used for Tracer::kernel alone; `name` is that of its files and its kernel events.
  static Result<Subject> start(const Workshop& workshop, KernelEvents& kernel, const std::string& name, Tracer tracer,
                               const std::string& arguments);

  // CPU time of a call of the site, of `count` in a row.
  Result<double> nanoseconds(const std::string& site, std::uint64_t count);
  // Ends it and compares: each call of a probed site is a recorded hit.
  Status finish();

 private:
  Subject(Child child, KernelEvents& kernel, std::string name, Tracer tracer, std::string summary)
      : child_(std::move(child)),
        kernel_(&kernel),
        name_(std::move(name)),
        tracer_(tracer),
        summary_(std::move(summary)) {}
  Result<std::optional<std::uint64_t>> hits_of(const std::string& site) const;

  Child child_;
  KernelEvents* kernel_;
  std::string name_;
  Tracer tracer_;
  std::string summary_;                         // the file with uprobe-run's summary
  std::map<std::string, std::uint64_t> calls_;  // of each site
};

}  // namespace uprobe::bench
