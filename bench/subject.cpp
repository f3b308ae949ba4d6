// SPDX-License-Identifier: MIT
#include "bench/subject.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/process_view.h"
#include "engine/elf/elf_file.h"

namespace uprobe::bench {
namespace {

constexpr const char* kSites[] = {"push", "move", "nop"};
// Probed at entry and return: the site, and its function.
constexpr struct { const char *site, *function; } kPairs[] = {{"pair", "site_pair"}, {"deep", "site_deeper"}};
constexpr const char* kFiltered = "push";
constexpr std::uint64_t kWarmUp = 600;  // also where a call makes 30
constexpr std::chrono::milliseconds kReadersLongestSleep{60};

Result<std::uint64_t> offset_of(const elf::ElfFile& file, const std::string& function) {
  const auto found = file.find_functions(function);
  if (found.size() != 1) return Error{.code = Code::not_found, .text = "the target has no " + function};
  return file.offset_of_address(found[0].address).value_or(0);
}

Status add_kernel_events(KernelEvents& kernel, const std::string& target, const std::string& name,
                         const std::string& arguments) {
  auto file = elf::ElfFile::open(target);
  if (!file) return file.error();
  for (const std::string site : kSites) {
    const auto offset = offset_of(*file, "site_" + site);
    if (!offset) return offset.error();
    if (Status s = kernel.add('p', name + "_" + site, target, *offset, arguments); !s) return s;
  }
  return ok();
}

Status add_kernel_pairs(KernelEvents& kernel, const std::string& target, const std::string& name) {
  auto file = elf::ElfFile::open(target);
  if (!file) return file.error();
  for (const auto& pair : kPairs) {
    const auto offset = offset_of(*file, pair.function);
    if (!offset) return offset.error();
    if (Status s = kernel.add('p', name + "_" + pair.site, target, *offset, ""); !s) return s;
    if (Status s = kernel.add('r', name + "_ret_" + pair.site, target, *offset, "$retval"); !s) return s;
  }
  return ok();
}

std::string pair_definitions(const std::string& target) {
  std::string text;
  for (const auto& pair : kPairs)
    text += std::string("p:") + pair.site + " " + target + ":" + pair.function + "\nr:ret_" + pair.site + " " + target +
            ":" + pair.function + " $retval\n";
  return text;
}

std::string sum_definitions(const std::string& target) {
  std::string text;
  for (const auto& pair : kPairs) text += std::string("p:") + pair.site + " " + target + ":" + pair.function + "\n";
  return text;
}

std::string site_definitions(const std::string& target, const Tracing& tracing) {
  std::string text;
  for (const std::string site : kSites)
    if (tracing.tracer != Tracer::tool_filter || site != kFiltered)
      text += site_definition(target, site, tracing.arguments);
  return text;
}

// Only on the command line can a filter follow a definition.
std::vector<std::string> filter_options(const std::string& target, const Tracing& tracing) {
  if (tracing.tracer != Tracer::tool_filter) return {};
  std::string definition = site_definition(target, kFiltered, "%sp");
  definition.pop_back();
  return {"-p", definition, "--filter=arg1 == 1"};
}

// The first byte that differs from the file is that of the lowest probe: int3, or a jump of four bytes or one.
Status check_tier(pid_t tool, const std::string& target, Tier tier) {
  const auto program = program_of(tool);
  if (!program) return program.error();
  const auto text = TextView::open(*program, target);
  if (!text) return text.error();
  const auto now = text->now();
  if (!now) return now.error();
  const auto patched = std::mismatch(now->begin(), now->end(), text->in_file().begin()).first;
  const int byte = patched == now->end() ? 0 : static_cast<unsigned char>(*patched);
  if (tier == Tier::int3 ? byte == 0xcc : byte == 0xe9 || byte == 0xeb) return ok();
  return Error{.code = Code::damaged, .text = target + " is not probed by " + name_of(tier)};
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

namespace {

// "1,234 hits": 1234
std::uint64_t digits_in(const std::string& text) {
  std::uint64_t value = 0;
  for (std::size_t i = text.find_first_not_of(' '); i < text.size() && text[i] != ' '; ++i)
    if (text[i] >= '0' && text[i] <= '9') value = value * 10 + static_cast<std::uint64_t>(text[i] - '0');
  return value;
}

// The number after the first `start` in it: "uprobe-run: uprobes/push /path:0x11a0: 1,234 hits, lost 5 (ring full)".
std::optional<std::uint64_t> number_after(const std::string& summary, const std::string& start) {
  const std::size_t name = summary.find("uprobe-run: " + start);
  if (name == std::string::npos) return std::nullopt;
  const std::string line = summary.substr(name + 12, summary.find('\n', name) - name - 12);
  const std::size_t number = line.find(": ");
  if (number == std::string::npos) return std::nullopt;
  return digits_in(line.substr(number + 2));
}

}  // namespace

std::optional<std::uint64_t> hits_in_summary(const std::string& summary, const std::string& event) {
  return number_after(summary, event.empty() ? "total: " : "uprobes/" + event + " ");
}

std::uint64_t lost_in_summary(const std::string& summary) { return number_after(summary, "lost: ").value_or(0); }

// Of a few probes the summary has a line each, of many one line: "uprobe-run: 20,000 probes never reached".
bool is_armed_crowd(const std::string& summary, int count) {
  const std::string mark = ": 0 hits (never reached)\n", all = " probes never reached\n";
  int armed = 0;
  for (std::size_t at = summary.find(mark); at != std::string::npos; at = summary.find(mark, at + 1)) ++armed;
  if (const std::size_t end = summary.find(all); end != std::string::npos)
    armed += static_cast<int>(digits_in(summary.substr(summary.rfind(' ', end - 1), end)));
  return armed == count;
}

Result<Subject> Subject::start(const Workshop& workshop, KernelEvents& kernel, const std::string& name,
                               const Tracing& tracing) {
  auto target = workshop.copy_target(name);
  if (!target) return target.error();
  std::vector<std::string> argv{*target, "handler"};
  const bool by_kernel = tracing.tracer == Tracer::kernel || tracing.tracer == Tracer::kernel_pairs;
  const bool by_tool = tracing.tracer != Tracer::none && !by_kernel;
  if (by_kernel) {
    argv = {*target};
    const bool pairs = tracing.tracer == Tracer::kernel_pairs;
    if (Status s = pairs ? add_kernel_pairs(kernel, *target, name)
                         : add_kernel_events(kernel, *target, name, tracing.arguments);
        !s)
      return s.error();
  }
  if (by_tool) {
    const std::string definitions = tracing.tracer == Tracer::tool_crowd   ? crowd_definitions(*target, kCrowd)
                                    : tracing.tracer == Tracer::tool_pairs ? pair_definitions(*target)
                                    : tracing.tracer == Tracer::tool_sums  ? sum_definitions(*target)
                                                                           : site_definitions(*target, tracing);
    if (Status s = workshop.write(name + ".probes", definitions); !s) return s.error();
    std::vector<std::string> more = filter_options(*target, tracing);
    if (!tracing.option.empty()) more.push_back(tracing.option);
    const bool sums = tracing.tracer == Tracer::tool_sums;
    if (sums) more.emplace_back("-c");
    argv = tool_command(tracing.tier, workshop.path(name + ".probes"), sums ? "" : "/dev/null", *target, more);
  }
  auto child = Child::start(argv, workshop.path(name + ".summary"));
  if (!child) return child.error();
  if (auto ready = child->receive(); !ready)
    return Error{.code = Code::system,
                 .text = name + ": " + ready.error().text,
                 .help = read_file(workshop.path(name + ".summary"))->substr(0, 1000)};
  if (by_tool)
    if (Status s = check_tier(child->pid(), *target, tracing.tier); !s) return s.error();
  if (tracing.tracer == Tracer::tool_off)
    if (Status s = set_recording(child->pid(), false); !s) return s.error();
  return Subject(child.take(), kernel, name, tracing, workshop.path(name + ".summary"));
}

bool Subject::has_probes(const std::string& site) const {
  const bool is_pair = std::any_of(std::begin(kPairs), std::end(kPairs), [&](const auto& p) { return site == p.site; });
  switch (tracing_.tracer) {
    case Tracer::none:
    case Tracer::tool_off:
      return false;
    case Tracer::tool_crowd:
      return site == "crowd";
    case Tracer::tool_pairs:
    case Tracer::tool_sums:
    case Tracer::kernel_pairs:
      return is_pair;
    default:
      return std::find(std::begin(kSites), std::end(kSites), site) != std::end(kSites);
  }
}

Result<double> Subject::nanoseconds(const std::string& site, std::uint64_t count, unsigned threads) {
  const std::uint64_t warm_up = site == "crowd" ? kCrowd : kWarmUp;
  const std::string order =
      site + " " + std::to_string(warm_up) + " " + std::to_string(count) + " " + std::to_string(threads);
  if (Status s = child_.send(order); !s) return s.error();
  auto answer = child_.receive();
  if (!answer) return answer.error();
  if (has_probes(site)) calls_[site] += threads * (warm_up + count);
  // By jump a ring fills faster than its reader polls: it has read the last burst when the next one comes.
  if (is_traced_by_tool() && tracing_.tier == Tier::jump) std::this_thread::sleep_for(kReadersLongestSleep);
  return std::stod(*answer) / static_cast<double>(count);
}

// Each of them has a hit for a call of the site.
std::vector<std::string> Subject::events_of(const std::string& site) const {
  const bool is_pair = tracing_.tracer == Tracer::tool_pairs || tracing_.tracer == Tracer::kernel_pairs;
  return is_pair ? std::vector{site, "ret_" + site} : std::vector{site};
}

Error Subject::mismatch(const std::string& site, std::uint64_t calls, std::uint64_t hits) const {
  return {.code = Code::damaged,
          .text = name_ + ": " + std::to_string(calls) + " calls of site_" + site + ", " + std::to_string(hits) +
                  " hits recorded"};
}

Status Subject::check_kernel() const {
  auto hits = kernel_->hits();
  if (!hits) return hits.error();
  for (const auto& [site, calls] : calls_)
    for (const std::string& event : events_of(site))
      if ((*hits)[name_ + "_" + event] != calls) return mismatch(event, calls, (*hits)[name_ + "_" + event]);
  return ok();
}

// "1,234  1,234  ...  pair": calls and returns.
Status Subject::check_table(const std::string& table) const {
  for (const auto& [site, calls] : calls_) {
    const std::size_t end = table.find("  " + site + "\n");
    const std::size_t begin = end == std::string::npos ? 0 : table.rfind('\n', end) + 1;
    const std::uint64_t found = end == std::string::npos ? 0 : digits_in(table.substr(begin));
    if (found != calls) return mismatch(site, calls, found);
  }
  return ok();
}

Status Subject::check_summary() const {
  const auto summary = read_file(summary_);
  if (!summary) return summary.error();
  if (tracing_.tracer == Tracer::tool_sums) return check_table(*summary);
  if (const std::uint64_t lost = lost_in_summary(*summary))
    return Error{.code = Code::damaged, .text = name_ + ": " + std::to_string(lost) + " hits were lost"};
  for (const auto& [site, calls] : calls_)
    for (const std::string& event : events_of(site)) {
      const std::uint64_t hits = hits_in_summary(*summary, event == "crowd" ? "" : event).value_or(0);
      if (hits != calls) return mismatch(event, calls, hits);
    }
  if (tracing_.tracer == Tracer::tool_crowd && !is_armed_crowd(*summary, calls_.contains("crowd") ? 0 : kCrowd))
    return Error{.code = Code::damaged, .text = name_ + ": not every function of the crowd was probed"};
  return ok();
}

Status Subject::finish() {
  if (Status s = child_.finish(); !s) return s;
  if (tracing_.tracer == Tracer::none) return ok();
  return is_traced_by_kernel() ? check_kernel() : check_summary();
}

}  // namespace uprobe::bench
