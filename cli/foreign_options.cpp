// SPDX-License-Identifier: MIT
#include "cli/foreign_options.h"

#include <algorithm>
#include <array>

#include "cli/foreign_words.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {
namespace {

struct Option {
  std::string_view tools;  // with blanks between them
  std::string_view name;
  ForeignOption meaning;
};

constexpr std::string_view kSamplers = "profile offcputime samply",
                           kOneLine =
                               "memleak opensnoop execsnoop syscount gethostlatency sslsniff deadlock ucalls "
                               "eu-stack pstack py-spy";
constexpr std::string_view kCounters = "funccount stackcount funclatency argdist";

constexpr std::array kOptions = {
    Option{"frida-trace", "-i", ForeignOption::place},
    Option{"frida-trace", "-a", ForeignOption::place},
    Option{"frida-trace", "-I", ForeignOption::library},
    Option{"frida-trace", "-f", ForeignOption::program},
    Option{"frida-trace", "-p", ForeignOption::process},
    Option{"frida-trace", "-n", ForeignOption::process_name},
    Option{"frida-trace", "-N", ForeignOption::process_name},
    Option{"frida-trace", "-x", ForeignOption::value},
    Option{"frida-trace", "-X", ForeignOption::value},
    Option{"frida-trace", "-U", ForeignOption::flag},
    Option{"frida-trace", "-F", ForeignOption::flag},
    Option{"uftrace", "-F", ForeignOption::place},
    Option{"uftrace", "-A", ForeignOption::place},
    Option{"uftrace", "-T", ForeignOption::place},
    Option{"uftrace", "-R", ForeignOption::returning},
    Option{"uftrace", "-P", ForeignOption::expression},
    Option{"uftrace", "-U", ForeignOption::value},
    Option{"uftrace", "-N", ForeignOption::value},
    Option{"uftrace", "-C", ForeignOption::value},
    Option{"uftrace", "-H", ForeignOption::value},
    Option{"uftrace", "-L", ForeignOption::value},
    Option{"uftrace", "-D", ForeignOption::value},
    Option{"uftrace", "-t", ForeignOption::value},
    Option{"uftrace", "-r", ForeignOption::value},
    Option{"uftrace", "-d", ForeignOption::value},
    Option{"uftrace", "-S", ForeignOption::value},
    Option{"uftrace", "-s", ForeignOption::value},
    Option{"uftrace", "-E", ForeignOption::value},
    Option{"uftrace", "-p", ForeignOption::process},
    Option{"uftrace", "-a", ForeignOption::flag},
    Option{"uftrace", "-l", ForeignOption::flag},
    Option{"uftrace", "-k", ForeignOption::flag},
    Option{"dtrace", "-n", ForeignOption::events},
    Option{"dtrace", "-f", ForeignOption::place},
    Option{"dtrace", "-c", ForeignOption::command},
    Option{"dtrace", "-p", ForeignOption::process},
    Option{"dtrace", "-l", ForeignOption::list},
    Option{"dtrace", "-s", ForeignOption::value},
    Option{"dtrace", "-b", ForeignOption::value},
    Option{"dtrace", "-x", ForeignOption::value},
    Option{"dtrace", "-F", ForeignOption::flag},
    Option{"stap", "-e", ForeignOption::events},
    Option{"stap", "-c", ForeignOption::command},
    Option{"stap", "-x", ForeignOption::process},
    Option{"stap", "-l", ForeignOption::list},
    Option{"stap", "-L", ForeignOption::list},
    Option{"stap", "-d", ForeignOption::value},
    Option{"stap", "-p", ForeignOption::value},
    Option{"stap", "-m", ForeignOption::value},
    Option{"stap", "-D", ForeignOption::value},
    Option{"trace-cmd", "-e", ForeignOption::events},
    Option{"trace-cmd", "-l", ForeignOption::place},
    Option{"trace-cmd", "-g", ForeignOption::place},
    Option{"trace-cmd", "-P", ForeignOption::process},
    Option{"trace-cmd", "-p", ForeignOption::value},
    Option{"trace-cmd", "-n", ForeignOption::value},
    Option{"trace-cmd", "-f", ForeignOption::value},
    Option{"trace-cmd", "-r", ForeignOption::value},
    Option{"trace-cmd", "-s", ForeignOption::value},
    Option{"trace-cmd", "-F", ForeignOption::flag},
    Option{"trace-cmd", "-T", ForeignOption::stacks},
    Option{"ftrace", "-T", ForeignOption::place},
    Option{"ftrace", "-G", ForeignOption::place},
    Option{"ftrace", "-t", ForeignOption::value},
    Option{"ftrace", "-D", ForeignOption::value},
    Option{"bpftrace", "-p", ForeignOption::process},
    Option{"bpftrace", "-c", ForeignOption::command},
    Option{"ltrace strace perf trace record stat top", "-p", ForeignOption::process},
    Option{"strace ltrace", "-r", ForeignOption::flag},
    Option{"strace ltrace", "-i", ForeignOption::flag},
    Option{"strace ltrace", "-u", ForeignOption::value},
    Option{"strace", "-P", ForeignOption::value},
    Option{"ltrace", "-l", ForeignOption::library},
    Option{"ltrace", "-F", ForeignOption::value},
    Option{"ltrace", "-n", ForeignOption::value},
    Option{"ltrace", "-x", ForeignOption::events},
    Option{"trace", "-s", ForeignOption::flag},
    Option{kSamplers, "-F", ForeignOption::value},
    Option{kSamplers, "-p", ForeignOption::process},
    Option{kOneLine, "-p", ForeignOption::process},
    Option{"ltrace", "-w", ForeignOption::value},
    Option{"ltrace", "-A", ForeignOption::value},
    Option{"record stat top", "-F", ForeignOption::value},
    Option{"record stat top", "-c", ForeignOption::value},
    Option{kCounters, "-p", ForeignOption::process},
    Option{kCounters, "-H", ForeignOption::place},
    Option{kCounters, "-C", ForeignOption::place},
    Option{kCounters, "-i", ForeignOption::value},
    Option{kCounters, "-d", ForeignOption::value},
    Option{kCounters, "-r", ForeignOption::flag},
};

constexpr std::string_view kTools =
    " probe record trace stat top ftrace perf strace ltrace bpftrace gdb uftrace frida-trace dtrace stap trace-cmd "
    "funccount "
    "stackcount funclatency argdist "
    "memleak opensnoop execsnoop syscount gethostlatency bashreadline sslsniff deadlock ucalls profile offcputime "
    "samply "
    "valgrind heaptrack callgrind gprof eu-stack pstack py-spy gcore lttng sysdig bpftool rr hotspot kernelshark ";

constexpr std::string_view kEventsOfKernel =
    "all uprobes probe cycles instructions branches branch-misses cache-misses cache-references cpu-clock task-clock "
    "page-faults "
    "faults cpu-migrations cs context-switches minor-faults major-faults sched irq block net kmem timer power ext4 "
    "workqueue task "
    "signal";

// Whether a list of words with blanks between them has the word.
bool has_word(std::string_view list, std::string_view word) {
  if (word.empty()) return false;
  for (std::size_t at = 0; (at = list.find(word, at)) != std::string_view::npos; at += word.size()) {
    const bool begins = at == 0 || list[at - 1] == ' ',
               ends = at + word.size() == list.size() || list[at + word.size()] == ' ';
    if (begins && ends) return true;
  }
  return false;
}

// " $arg1:string" of "arg1/s".
std::string fetch_of_uftrace(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view name = text.substr(0, slash), format = text.substr(slash);
  const bool is_argument = name.size() == 4 && name.starts_with("arg") && name[3] >= '1' && name[3] <= '6';
  if (!is_argument && name != "retval") return {};
  return " $" + std::string(name) + (format == "/s" ? ":string" : "");
}

}  // namespace

std::optional<ForeignOption> meaning_of_option(std::string_view tool, std::string_view option) {
  const auto found = std::find_if(kOptions.begin(), kOptions.end(),
                                  [&](const Option& one) { return one.name == option && has_word(one.tools, tool); });
  return found == kOptions.end() ? std::nullopt : std::optional(found->meaning);
}

bool is_foreign_tool(std::string_view word) { return has_word(kTools, word); }

std::optional<ForeignCommand> foreign_command(std::string_view tool, std::string_view word) {
  if (tool.empty() && word == "list") return ForeignCommand::lists;
  if (tool == "perf" && has_word("sched mem lock kmem kvm c2c bench", word)) return ForeignCommand::traces;
  if (has_word("py-spy lttng sysdig bpftool rr samply", tool) &&
      has_word("dump record top create start stop prog replay view load enable-event probe status", word))
    return ForeignCommand::traces;
  if (!has_word("perf uftrace trace-cmd", tool)) return {};
  if (has_word("report script replay graph dump annotate tui info", word)) return ForeignCommand::prints;
  if (has_word("list", word)) return ForeignCommand::lists;
  if (tool != "perf" && has_word("live record start stream profile", word)) return ForeignCommand::traces;
  return {};
}

std::vector<std::string> example_of_tool(std::string_view tool) {
  struct Example {
    std::string_view tools;
    std::vector<std::string> options;
  };
  static const std::array kExamples = {
      Example{"memleak valgrind memcheck massif dhat heaptrack", {"--leak=malloc"}},
      Example{"callgrind cachegrind gprof profile samply", {"-c", "-p", "*"}},
      Example{"deadlock helgrind drd", {"--pair=pthread_mutex_lock:$arg1 -> pthread_mutex_unlock:$arg1"}},
      Example{"opensnoop", {"-p", "libc:open $arg1:string"}},
      Example{"execsnoop", {"-p", "libc:execve $arg1:string"}},
      Example{"syscount", {"-c", "-p", "libc:read", "-p", "libc:write"}},
      Example{"gethostlatency", {"-p", "libc:getaddrinfo%return $latency"}},
      Example{"bashreadline", {"-p", "/bin/bash:readline%return $retval:string", "--object=/bin/bash"}},
  };
  for (const Example& example : kExamples)
    if (has_word(example.tools, tool)) return example.options;
  return {"-p", "malloc"};
}

bool is_event_of_kernel(std::string_view event) {
  const bool is_group_of_ours = event.starts_with("uprobes:") || event.starts_with("probe:");
  return !is_group_of_ours && has_word(kEventsOfKernel, event.substr(0, event.find(':')));
}

std::string place_of_uftrace(std::string_view text) {
  const std::size_t at = std::min(text.find('@'), text.size());
  std::string fetches;
  std::string_view rest = text.substr(at);
  while (!rest.empty()) {
    rest.remove_prefix(1);  // '@' or ','
    const std::size_t end = std::min(rest.find(','), rest.size());
    fetches += fetch_of_uftrace(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  std::string name(text.substr(0, at));
  if (name.starts_with('^') || name.find(".*") != std::string::npos)  // its patterns are regular expressions
    name = glob_from_start(name);
  return (fetches.find("$retval") == std::string::npos ? name : spec::at_return(name)) + fetches;
}

}  // namespace uprobe::cli
