// SPDX-License-Identifier: MIT
#include "bench/launches.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "bench/child.h"
#include "bench/process_view.h"
#include "bench/subject.h"

namespace uprobe::bench {
namespace {

constexpr double kDisarmedWithin = 20;  // seconds

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Error not_armed(const std::string& summary) {
  return {.code = Code::damaged, .text = "not every function of the crowd was probed", .help = summary.substr(0, 500)};
}

// One way to launch the target, and its measurements.
struct Launch {
  std::vector<std::string> command;
  int probes;
  bool traced;
  std::vector<double> to_main = {}, exec_to_main = {}, resident = {}, mapped = {};
};

// "ready NANOSECONDS" as main() begins, "exec NANOSECONDS" before it starts itself anew.
Result<double> receive_time(Child& child) {
  auto line = child.receive();
  if (!line) return line.error();
  return std::stod(line->substr(line->find(' '))) * 1e-9;
}

Status measure_memory(Child& child, Launch& launch) {
  if (!launch.traced) return ok();
  const auto program = program_of(child.pid());
  if (!program) return program.error();
  const auto bytes = anonymous_bytes(*program);
  if (!bytes) return bytes.error();
  launch.resident.push_back(static_cast<double>(bytes->resident));
  launch.mapped.push_back(static_cast<double>(bytes->mapped));
  return ok();
}

Status measure(Launch& launch, const std::string& errors) {
  const double before = now();
  auto child = Child::start(launch.command, errors);
  if (!child) return child.error();
  const auto ready = receive_time(*child);
  if (!ready) return ready.error();
  launch.to_main.push_back(*ready - before);
  if (Status s = measure_memory(*child, launch); !s) return s;
  if (Status s = child->send("exec"); !s) return s;
  const auto exec = receive_time(*child);
  if (!exec) return exec.error();
  const auto again = receive_time(*child);
  if (!again) return again.error();
  launch.exec_to_main.push_back(*again - *exec);
  if (Status s = child->finish(); !s) return s;
  const auto summary = read_file(errors);
  if (!summary) return summary.error();
  return is_armed_crowd(*summary, launch.probes) ? ok() : Status(not_armed(*summary));
}

// The file with the definitions of the first `count` functions of the crowd.
Result<std::string> write_crowd(const Workshop& workshop, const std::string& target, int count) {
  const std::string name = "crowd-" + std::to_string(count) + ".probes";
  if (Status s = workshop.write(name, crowd_definitions(target, count)); !s) return s.error();
  return workshop.path(name);
}

// Starts the target with the crowd probed, and watches its text from the end of the session to its last original byte.
Result<double> seconds_of_disarming(const Workshop& workshop, const std::vector<std::string>& command,
                                    const std::string& target) {
  auto child = Child::start(command, workshop.path("disarmed.summary"));
  if (!child) return child.error();
  if (auto ready = child->receive(); !ready) return ready.error();
  const auto program = program_of(child->pid());
  if (!program) return program.error();
  const auto text = TextView::open(*program, target);
  if (!text) return text.error();
  const auto armed = text->now();
  if (!armed) return armed.error();
  double last_armed = now();
  for (const double deadline = last_armed + kDisarmedWithin; now() < deadline;) {
    const double looked = now();
    const auto bytes = text->now();
    if (!bytes) return bytes.error();
    if (*bytes == text->in_file()) {
      const double seconds = now() - last_armed;
      if (Status s = child->finish(); !s) return s.error();
      return seconds;
    }
    if (*bytes == *armed) last_armed = looked;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Error{.code = Code::damaged, .text = "the original bytes have not come back"};
}

}  // namespace

Result<LaunchTimes> measure_launches(const Workshop& workshop, Tier tier, int repetitions) {
  auto target = workshop.copy_target(std::string("launched-") + name_of(tier));
  if (!target) return target.error();
  auto one = write_crowd(workshop, *target, 1), all = write_crowd(workshop, *target, kCrowd);
  if (!one) return one.error();
  if (!all) return all.error();
  Launch untraced{.command = {*target}, .probes = 0, .traced = false};
  Launch one_probe{.command = tool_command(tier, *one, "/dev/null", *target), .probes = 1, .traced = true};
  Launch crowd{.command = tool_command(tier, *all, "/dev/null", *target), .probes = kCrowd, .traced = true};
  for (int i = 0; i < repetitions; ++i)
    for (Launch* launch : {&untraced, &one_probe, &crowd})
      if (Status s = measure(*launch, workshop.path("launched.summary")); !s) return s.error();
  constexpr double kMore = kCrowd - 1;
  return LaunchTimes{.untraced = median(untraced.to_main),
                     .one_probe = median(one_probe.to_main),
                     .crowd = median(crowd.to_main),
                     .exec_one_probe = median(one_probe.exec_to_main),
                     .exec_crowd = median(crowd.exec_to_main),
                     .resident = (median(crowd.resident) - median(one_probe.resident)) / kMore,
                     .mapped = (median(crowd.mapped) - median(one_probe.mapped)) / kMore};
}

Result<double> measure_disarming(const Workshop& workshop, Tier tier, int repetitions) {
  auto target = workshop.copy_target(std::string("disarmed-") + name_of(tier));
  if (!target) return target.error();
  auto all = write_crowd(workshop, *target, kCrowd);
  if (!all) return all.error();
  const auto command = tool_command(tier, *all, "/dev/null", *target, {"-d", "300ms"});
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto seconds = seconds_of_disarming(workshop, command, *target);
    if (!seconds) return seconds.error();
    times.push_back(*seconds);
  }
  return median(times);
}

Result<WholeRun> measure_whole_run(const Workshop& workshop, Tier tier, std::uint64_t hits, int repetitions) {
  auto target = workshop.copy_target(std::string("whole-") + name_of(tier));
  if (!target) return target.error();
  if (Status s = workshop.write("whole.probes", site_definition(*target, "push", "%di %si %dx")); !s) return s.error();
  const auto command = tool_command(tier, workshop.path("whole.probes"), workshop.path("whole.trace"), *target);
  std::vector<double> times, lost;
  for (int i = 0; i < repetitions; ++i) {
    const double before = now();
    auto child = Child::start(command, workshop.path("whole.summary"));
    if (!child) return child.error();
    if (Status s = child->send("push 0 " + std::to_string(hits) + " 1"); !s) return s.error();
    if (Status s = child->finish(); !s) return s.error();
    times.push_back(now() - before);
    const auto summary = read_file(workshop.path("whole.summary"));
    if (!summary || hits_in_summary(*summary, "push") != hits)
      return Error{.code = Code::damaged,
                   .text = "not every hit of the whole run was counted",
                   .help = summary ? *summary : std::string()};
    lost.push_back(static_cast<double>(lost_in_summary(*summary)) / static_cast<double>(hits));
  }
  return WholeRun{.seconds = median(times), .lost = median(lost)};
}

}  // namespace uprobe::bench
