#include "bench/subject.h"

#include <algorithm>

#include "engine/elf/elf_file.h"

namespace uprobe::bench {
namespace {

constexpr const char* kSites[] = {"push", "move", "nop"};
constexpr std::uint64_t kWarmUp = 500;

Status add_kernel_events(KernelEvents& kernel, const std::string& target, const std::string& name,
                         const std::string& arguments) {
  auto file = elf::ElfFile::open(target);
  if (!file) return file.error();
  for (const std::string site : kSites) {
    const auto functions = file->find_functions("site_" + site);
    if (functions.size() != 1) return Error{.code = Code::not_found, .text = "the target has no site_" + site};
    const std::uint64_t offset = file->offset_of_address(functions[0].address).value_or(0);
    if (Status s = kernel.add(name + "_" + site, target, offset, arguments); !s) return s;
  }
  return ok();
}

std::string site_definitions(const std::string& target, const std::string& arguments) {
  std::string text;
  for (const std::string site : kSites) text += site_definition(target, site, arguments);
  return text;
}

}  // namespace

std::string crowd_definitions(const std::string& target, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    text += "p:c" + number + " " + target + ":crowd_" + number + "\n";
  }
  return text;
}

std::string site_definition(const std::string& target, const std::string& site, const std::string& arguments) {
  return "p:" + site + " " + target + ":site_" + site + " " + arguments + "\n";
}

// A line of it: "uprobe-run: uprobes/push /path:0x11a0: 1,234 hits, lost 5 (ring full)".
std::optional<std::uint64_t> hits_in_summary(const std::string& summary, const std::string& event) {
  const std::size_t name = summary.find("uprobes/" + event + " ");
  if (name == std::string::npos) return std::nullopt;
  const std::string line = summary.substr(name, summary.find('\n', name) - name);
  const std::size_t number = line.find(": ");
  if (number == std::string::npos || line.find("lost") != std::string::npos) return std::nullopt;
  std::uint64_t hits = 0;
  for (std::size_t i = number + 2; i < line.size() && line[i] != ' '; ++i)
    if (line[i] >= '0' && line[i] <= '9') hits = hits * 10 + static_cast<std::uint64_t>(line[i] - '0');
  return hits;
}

bool is_armed_crowd(const std::string& summary, int count) {
  const std::string mark = ": 0 hits (never reached)\n";
  int armed = 0;
  for (std::size_t at = summary.find(mark); at != std::string::npos; at = summary.find(mark, at + 1)) ++armed;
  return armed == count;
}

Result<Subject> Subject::start(const Workshop& workshop, KernelEvents& kernel, const std::string& name, Tracer tracer,
                               const std::string& arguments) {
  auto target = workshop.copy_target(name);
  if (!target) return target.error();
  std::vector<std::string> argv{*target, "handler"};
  if (tracer == Tracer::kernel) {
    argv = {*target};
    if (Status s = add_kernel_events(kernel, *target, name, arguments); !s) return s.error();
  }
  if (tracer == Tracer::tool || tracer == Tracer::tool_crowd) {
    const std::string definitions =
        tracer == Tracer::tool ? site_definitions(*target, arguments) : crowd_definitions(*target, kCrowd);
    if (Status s = workshop.write(name + ".probes", definitions); !s) return s.error();
    argv = tool_command(workshop.path(name + ".probes"), "/dev/null", *target);
  }
  auto child = Child::start(argv, workshop.path(name + ".summary"));
  if (!child) return child.error();
  if (auto ready = child->receive(); !ready)
    return Error{.code = Code::system,
                 .text = name + ": " + ready.error().text,
                 .help = read_file(workshop.path(name + ".summary"))->substr(0, 1000)};
  return Subject(child.take(), kernel, name, tracer, workshop.path(name + ".summary"));
}

Result<double> Subject::nanoseconds(const std::string& site, std::uint64_t count) {
  const std::string order = site + " " + std::to_string(kWarmUp) + " " + std::to_string(count);
  if (Status s = child_.send(order); !s) return s.error();
  auto answer = child_.receive();
  if (!answer) return answer.error();
  calls_[site] += kWarmUp + count;
  return std::stod(*answer) / static_cast<double>(count);
}

Result<std::optional<std::uint64_t>> Subject::hits_of(const std::string& site) const {
  if (tracer_ == Tracer::kernel) {
    auto hits = kernel_->hits();
    if (!hits) return hits.error();
    return std::optional<std::uint64_t>((*hits)[name_ + "_" + site]);
  }
  auto summary = read_file(summary_);
  if (!summary) return summary.error();
  return hits_in_summary(*summary, site);
}

Status Subject::finish() {
  if (Status s = child_.finish(); !s) return s;
  if (tracer_ == Tracer::none) return ok();
  if (tracer_ == Tracer::tool_crowd) {
    const auto summary = read_file(summary_);
    if (summary && is_armed_crowd(*summary, kCrowd)) return ok();
    return Error{.code = Code::damaged, .text = name_ + ": not every function of the crowd was probed"};
  }
  for (const auto& [site, calls] : calls_) {
    const auto hits = hits_of(site);
    if (!hits) return hits.error();
    if (*hits == calls) continue;
    return Error{.code = Code::damaged,
                 .text = name_ + ": " + std::to_string(calls) + " calls of site_" + site + ", " +
                         std::to_string(hits->value_or(0)) + " hits recorded"};
  }
  return ok();
}

}  // namespace uprobe::bench
