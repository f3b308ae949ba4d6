#include "bench/launches.h"

#include <algorithm>
#include <ctime>

#include "bench/child.h"
#include "bench/subject.h"

namespace uprobe::bench {
namespace {

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The target says when its main() begins: "ready NANOSECONDS".
Result<double> seconds_to_main(const std::vector<std::string>& argv, const std::string& errors) {
  const double before = now();
  auto child = Child::start(argv, errors);
  if (!child) return child.error();
  auto ready = child->receive();
  if (!ready) return ready.error();
  if (Status s = child->finish(); !s) return s.error();
  return std::stod(ready->substr(ready->find(' '))) * 1e-9 - before;
}

Result<double> seconds_of_run(const std::vector<std::string>& argv, const std::string& errors,
                              const std::string& order) {
  const double before = now();
  auto child = Child::start(argv, errors);
  if (!child) return child.error();
  if (Status s = child->send(order); !s) return s.error();
  if (Status s = child->finish(); !s) return s.error();
  return now() - before;
}

}  // namespace

Result<LaunchTimes> measure_launches(const Workshop& workshop, int repetitions) {
  auto target = workshop.copy_target("launched");
  if (!target) return target.error();
  const std::string one = workshop.path("one.probes"), crowd = workshop.path("crowd.probes");
  if (Status s = workshop.write("one.probes", crowd_definitions(*target, 1)); !s) return s.error();
  if (Status s = workshop.write("crowd.probes", crowd_definitions(*target, kCrowd)); !s) return s.error();
  const std::vector<std::string> commands[] = {
      {*target}, tool_command(one, "/dev/null", *target), tool_command(crowd, "/dev/null", *target)};
  const int probes[] = {0, 1, kCrowd};
  std::vector<double> times[std::size(commands)];
  for (int i = 0; i < repetitions; ++i)
    for (std::size_t c = 0; c < std::size(commands); ++c) {
      auto seconds = seconds_to_main(commands[c], workshop.path("launched.summary"));
      if (!seconds) return seconds.error();
      const auto summary = read_file(workshop.path("launched.summary"));
      if (!summary || !is_armed_crowd(*summary, probes[c]))
        return Error{.code = Code::damaged, .text = "not every function of the crowd was probed"};
      times[c].push_back(*seconds);
    }
  return LaunchTimes{.untraced = median(times[0]), .one_probe = median(times[1]), .crowd = median(times[2])};
}

Result<double> measure_whole_run(const Workshop& workshop, std::uint64_t hits, int repetitions) {
  auto target = workshop.copy_target("whole");
  if (!target) return target.error();
  if (Status s = workshop.write("whole.probes", site_definition(*target, "push", "%di %si %dx")); !s) return s.error();
  const auto command = tool_command(workshop.path("whole.probes"), workshop.path("whole.trace"), *target);
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    auto seconds = seconds_of_run(command, workshop.path("whole.summary"), "push 0 " + std::to_string(hits));
    if (!seconds) return seconds.error();
    const auto summary = read_file(workshop.path("whole.summary"));
    if (!summary || hits_in_summary(*summary, "push") != hits)
      return Error{.code = Code::damaged,
                   .text = "not every hit of the whole run was recorded",
                   .help = summary ? *summary : std::string()};
    times.push_back(*seconds);
  }
  return median(times);
}

}  // namespace uprobe::bench
