// SPDX-License-Identifier: MIT
// The table's rows in nanoseconds of a call or a hit: measured in turn, in random order, many times.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/hit_function.h"
#include "bench/kernel_events.h"
#include "bench/options.h"
#include "bench/subject.h"
#include "bench/table.h"
#include "bench/workshop.h"

namespace uprobe::bench {

class HitRows {
 public:
  // `no_kernel`: why the kernel's uprobes cannot be measured, or empty. All outlive it.
  HitRows(const Options& options, const Workshop& workshop, KernelEvents& kernel, std::string no_kernel)
      : options_(options), workshop_(workshop), kernel_(kernel), no_kernel_(std::move(no_kernel)) {}

  // Starts the targets, which live until the end of measure(), so that each repetition finds them unchanged.
  Status prepare(const std::vector<Tier>& tiers);
  Status measure();
  const std::vector<Row>& rows() const { return rows_; }

 private:
  // The peer of a row's cost.
  struct Aim {
    std::string peer = {};  // another row; empty: nanoseconds
    double most = 0;        // of the ratio of the costs; 0: none, only the ratio is shown
    std::string label = {};
  };
  // One row that Google Benchmark repeats: nanoseconds of one call of `count`.
  struct Timed {
    std::string what;
    std::uint64_t count = 0;
    std::function<Result<double>(std::uint64_t count)> nanoseconds = {};  // empty: `absent` says why
    std::string absent = {};
    std::string base = {};  // the row without probes: the cost is the additional time; empty: all of it
    Aim aim = {};
  };

  Status add_subject(const std::string& name, const Tracing& tracing);
  Status add_hit_function(const std::string& title, const std::string& arguments);
  Timed& add_site(const std::string& what, const std::string& subject, const std::string& site, std::uint64_t count,
                  unsigned threads = 1);
  Status add_plain();
  Status add_tier(Tier tier);
  void add_tier_sites(Tier tier);
  Status add_pairs();
  Status add_sums();
  Status add_kernel();
  void add_kernel_site(const std::string& what, const std::string& subject, const std::string& site,
                       std::uint64_t count);
  Status run(Collector& collector);
  double cost(const Collector& collector, const Timed& timed) const;
  const Timed* find(const std::string& what) const;
  void add_rows(const Collector& collector);
  void judge(const Collector& collector, const Timed& timed, Row& row) const;

  const Options& options_;
  const Workshop& workshop_;
  KernelEvents& kernel_;
  std::string no_kernel_;
  std::map<std::string, Subject> subjects_;
  std::vector<std::unique_ptr<HitFunction>> hit_functions_;
  std::vector<Timed> timed_;
  std::vector<Row> rows_;
};

}  // namespace uprobe::bench
