// SPDX-License-Identifier: MIT
// See foreign_commands.h.
#include "cli/foreign_commands.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "cli/foreign_places.h"
#include "cli/options.h"
#include "cli/values.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kExample = "malloc";

template <class List>
bool is_among(const std::string& word, const List& list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// strace's groups of system calls, by functions of libc that make some of them.
const std::map<std::string_view, Words>& groups_of_calls() {
  static const std::map<std::string_view, Words> kGroups = {
      {"file", {"open", "access", "unlink"}},       {"desc", {"read", "write", "close"}},
      {"network", {"socket", "connect", "accept"}}, {"net", {"socket", "connect", "accept"}},
      {"process", {"fork", "execve", "waitpid"}},   {"signal", {"sigaction", "kill"}},
      {"memory", {"mmap", "munmap", "mprotect"}},
  };
  return kGroups;
}

// "-fp" as "-f" and "-p": letters without a value, and a last one that may have one; "-pid" as "--pid".
Words options_in(const std::string& word) {
  constexpr std::string_view kWithout = "fvqtTykCzrw", kLast = "fvqtTykCzrwpeosx";
  const auto names = option_names();
  const auto is_this = [&](const OptionName& one) { return word == "-" + one.name; };
  if (std::any_of(names.begin(), names.end(), is_this)) return {"-" + word};
  const bool is_cluster = word.size() > 2 && kLast.find(word.back()) != std::string_view::npos &&
                          word.find_first_not_of(kWithout, 1) >= word.size() - 1;
  if (!is_cluster) return {word};
  Words options;
  for (std::size_t i = 1; i < word.size(); ++i) options.push_back({'-', word[i]});
  return options;
}

// Reads a command line of any of the tools, word by word.
class CommandReader {
 public:
  CommandReader(const Words& words, const IsProgram& is_program) : words_(words), is_program_(is_program) {}

  // `needs_probe`: the line lacks nothing but a probe.
  std::optional<std::string> read(bool needs_probe);

 private:
  bool has_next() const { return at_ + 1 < words_.size(); }
  std::string next() { return has_next() ? words_[++at_] : std::string(); }
  void word(const std::string& word);
  void option(const std::string& word);
  bool option_of_probe(const std::string& word);
  bool option_of_events(const std::string& word);
  bool option_of_others(const std::string& word);
  void own_option(const std::string& word);
  void program();
  void add_probe(const std::string& text);
  void add_place(const std::string& place);
  void add_command(const std::string& text);
  void add_events(std::string_view list);
  void add_list(const std::string& text);
  void add_look(const Words& options);
  void add_stacks();
  std::string value_of(const std::string& word, std::string_view name);
  std::string line() const;

  const Words& words_;
  const IsProgram& is_program_;
  std::size_t at_ = 1;
  Words options_, program_, probe_words_;
  std::string object_, tool_;
  bool is_rest_ = false, is_foreign_ = false, is_unknown_ = false;
  bool has_probe_ = false, has_process_ = false, has_pid_of_strace_ = false, wants_stacks_ = false;
};

void CommandReader::add_place(const std::string& place) {
  options_.insert(options_.end(), {"-p", place});
  has_probe_ = true;
  const std::size_t colon = place.find(':');
  const bool is_path = place.starts_with('/') || place.starts_with("./");
  if (is_path && colon != std::string::npos && object_.empty()) object_ = place.substr(0, colon);
}

void CommandReader::add_probe(const std::string& text) {
  wants_stacks_ =
      wants_stacks_ || text.find("{ @[ustack") != std::string::npos || text.find("print(ustack") != std::string::npos;
  const auto meant = meaning_of(text);
  if (!meant) return add_place(text);
  for (const std::string& place : meant->places) add_place(place);
}

// gdb's -ex: what sets a breakpoint, or asks for functions; the others have no likeness here.
void CommandReader::add_command(const std::string& text) {
  constexpr std::string_view kFunctions = "info functions ";
  if (text.starts_with(kFunctions)) return add_look({"-l*" + text.substr(kFunctions.size()) + "*"});
  if (const auto meant = meaning_of(text); meant && text.find(' ') != std::string::npos)
    for (const std::string& place : meant->places) add_place(place);
}

// strace: "trace=open,close", "%file", "open"; ltrace: "malloc+free-realloc@libc.so*"; perf: "probe_libc:malloc"; bpftrace: a program.
void CommandReader::add_events(std::string_view list) {
  static constexpr std::array<std::string_view, 16> kOther = {
      "signal", "signals", "raw",    "verbose", "abbrev", "read", "reads", "write",
      "writes", "fault",   "inject", "status",  "quiet",  "kvm",  "s",     "decode-fds"};
  const std::size_t equals = list.find('=');
  const std::string head(list.substr(0, equals));
  const bool is_call = equals != std::string_view::npos && (head == "trace" || head == "t");
  if (equals != std::string_view::npos && is_among(head, kOther)) return;
  if (is_call) list.remove_prefix(equals + 1);
  if (list.find('{') != std::string_view::npos || list.find(':') != std::string_view::npos || list.starts_with('@')) {
    if (list.starts_with("probe_")) list.remove_prefix(6);
    return add_probe(std::string(list));
  }
  bool is_left_out = false;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(",+-", is_left_out ? 1 : 0), list.size());
    std::string_view name = list.substr(0, end);
    if (name.starts_with('%')) name.remove_prefix(1);
    const auto group = groups_of_calls().find(name);
    if (group != groups_of_calls().end() && (is_call || name.size() != end))
      for (const std::string& call : group->second) add_place("libc:" + call);
    else if (!name.empty() && !is_left_out && std::string_view("!/?").find(name[0]) == std::string_view::npos)
      add_probe((is_call ? "libc:" : "") + std::string(name));
    is_left_out = end < list.size() && list[end] == '-';
    list.remove_prefix(std::min(end + (is_left_out ? 0 : 1), list.size()));
  }
}

// bpftrace: -l 'uprobe:PATH:GLOB'.
void CommandReader::add_list(const std::string& text) {
  std::size_t path = 0;
  for (const std::string_view kind : {"uprobe:", "uretprobe:", "u:", "ur:"})
    if (text.starts_with(kind)) path = kind.size();
  const std::size_t glob = text.find(':', path);
  add_look({"-x", text.substr(path, glob - path),
            "-l" + (glob == std::string::npos ? std::string() : text.substr(glob + 1))});
}

// Options that only look at a program.
void CommandReader::add_look(const Words& options) {
  options_.insert(options_.end(), options.begin(), options.end());
  has_probe_ = has_process_ = true;
}

// Of "-eVALUE", "--name=VALUE", or the next word.
std::string CommandReader::value_of(const std::string& word, std::string_view name) {
  if (word.size() > name.size()) return word.substr(name.size() + (word[name.size()] == '=' ? 1 : 0));
  return next();
}

// perf probe's.
bool CommandReader::option_of_probe(const std::string& word) {
  if (tool_ != "probe") return false;
  if (word == "-F" || word == "--funcs") return add_look({"-l"}), true;
  if (word == "-L" || word == "--line") return add_look({"--lines=" + next()}), true;
  if (word == "-V") return add_look({"--vars=" + next()}), true;
  if (word == "-l" || word == "--list") return add_look({"--control", "SESSION", "--list"}), true;
  if (word == "-d" || word == "--del") return add_look({"--control", "SESSION", "--remove=" + next()}), true;
  return false;
}

// What names events, in any of the tools.
bool CommandReader::option_of_events(const std::string& word) {
  if (word == "-ex" || word == "--eval-command") return add_command(next()), true;
  for (const std::string_view name : {"--add", "--event", "--trace", "-a", "-e"}) {
    if (!word.starts_with(name) || (name.starts_with("--") && word.size() > name.size() && word[name.size()] != '='))
      continue;
    const std::string value = value_of(word, name);
    if (name == "--trace")
      add_events("trace=" + value);
    else if (name == "-e" || name == "--event")
      add_events(value);
    else
      add_probe(value);
    return true;
  }
  return false;
}

// What has another meaning here, or none.
bool CommandReader::option_of_others(const std::string& word) {
  static constexpr std::array<std::string_view, 18> kWithout = {"-c",     "-t",      "-tt", "-ttt", "-T",  "-y",
                                                                "-yy",    "-C",      "-w",  "-z",   "-ff", "--args",
                                                                "-batch", "--batch", "-u",  "-L",   "-R",  "-N"};
  static constexpr std::array<std::string_view, 4> kStacks = {"-k", "-g", "--stack-trace", "--call-graph"};
  static constexpr std::array<std::string_view, 4> kWithValue = {"-E", "-S", "-O", "-X"};
  const bool records = tool_ == "record" || tool_ == "stat" || tool_ == "top";
  if (records && (word.starts_with("-a") || word == "-F")) {
    wants_stacks_ = wants_stacks_ || (word[1] == 'a' && word.find('g') != std::string::npos);
    if (word == "-F") next();
    return true;
  }
  if (word == "-c" && has_next() && words_[at_ + 1].find(' ') != std::string::npos) {
    std::string command = next();  // bpftrace's, with its arguments
    for (std::size_t blank; (blank = command.find(' ')) != std::string::npos; command.erase(0, blank + 1))
      program_.push_back(command.substr(0, blank));
    program_.push_back(command);
    return true;
  }
  if (is_among(word.substr(0, word.find('=')), kStacks)) return wants_stacks_ = true;
  if (is_among(word, kWithValue)) next();
  return is_among(word, kWithout) || is_among(word, kWithValue);
}

// An option of this tool, perhaps with another tool's value.
void CommandReader::own_option(const std::string& word) {
  const bool is_probe = word.starts_with("-p") || word == "--probe", is_return = word.starts_with("-r");
  if (is_probe || is_return) {
    const std::string value = value_of(word, word == "--probe" ? word : word.substr(0, 2));
    if (is_pid_list(value)) {
      has_process_ = has_pid_of_strace_ = true;
      return options_.insert(options_.end(), {"-P", value}), void();
    }
    return is_return ? add_probe(spec::at_return(value)) : add_probe(value);
  }
  const std::string following = has_next() ? words_[at_ + 1] : std::string();
  if ((word == "-l" || word == "-lv") && following.find(':') != std::string::npos && !is_program_(following))
    return add_list(next());
  if (word == "-x" && following.ends_with(".gdb")) return next(), void();
  if (word == "-x" && has_next() && following.find('/') == std::string::npos && !is_program_(following))
    return is_foreign_ = true, add_events(next());
  if (word == "-x" && has_next()) object_ = following;
  const auto all = option_names();
  const auto known = std::find_if(all.begin(), all.end(), [&](const OptionName& one) {
    const std::string name = "--" + one.name;
    return word == name || word.starts_with(name + "=") ||
           (one.letter != 0 && word.starts_with(std::string("-") + one.letter));
  });
  if (known == all.end()) {  // a short one of another tool is left out
    is_unknown_ = is_unknown_ || word.starts_with("--");
    is_foreign_ = true;
    return;
  }
  has_process_ = has_process_ || word == "-P" || word.starts_with("--pid") || word.starts_with("--comm");
  options_.push_back(word);
  const bool is_whole = word.size() == 2 || word == "--" + known->name;
  if (known->is_required && is_whole && has_next()) options_.push_back(next());
}

void CommandReader::option(const std::string& word) {
  if (option_of_probe(word) || option_of_others(word) || option_of_events(word)) {
    is_foreign_ = true;
    return;
  }
  own_option(word);
}

// The first word that is no option: a tool's name or command, a place, or the program. Options after a program without probes were
// meant for this tool.
void CommandReader::program() {
  static constexpr std::array<std::string_view, 10> kTools = {"probe", "record", "trace",  "stat",     "top",
                                                              "perf",  "strace", "ltrace", "bpftrace", "gdb"};
  const std::string& word = words_[at_];
  if (tool_ == "probe") return probe_words_.push_back(word);
  if (!has_probe_ && program_.empty()) {
    if (is_among(word, kTools)) return is_foreign_ = true, tool_ = word, void();
    if (!is_program_(word)) return add_probe(word);
  }
  program_.push_back(word);
}

void CommandReader::word(const std::string& word) {
  const bool may_be_ours = program_.empty() || (!has_probe_ && (word == "-p" || word == "-r" || word == "-e"));
  if (is_rest_)
    program_.push_back(word);
  else if (word == "--" && program_.empty())
    is_rest_ = true;
  else if (word.size() > 1 && word[0] == '-' && may_be_ours)
    for (const std::string& one : options_in(word)) option(one);
  else
    program();
}

void CommandReader::add_stacks() {
  for (std::size_t i = 0; i + 1 < options_.size(); ++i)
    if (options_[i] == "-p")
      options_.insert(options_.begin() + static_cast<std::ptrdiff_t>(i) + 2, "--trigger=stacktrace");
}

std::string CommandReader::line() const {
  std::string line = "uprobe-run";
  for (const Words* part : {&options_, &program_}) {
    if (part == &program_ && !program_.empty() && program_[0].starts_with('-')) line += " --";
    for (const std::string& word : *part) line += " " + quoted(word);
  }
  return line;
}

std::optional<std::string> CommandReader::read(bool needs_probe) {
  for (; at_ < words_.size(); ++at_) word(words_[at_]);
  if (is_unknown_) return {};
  if (!probe_words_.empty() && !has_probe_) {
    std::string text;
    for (const std::string& one : probe_words_) text += (text.empty() ? "" : " ") + one;
    add_probe(text);
  }
  const bool lacks_probe = (needs_probe || is_foreign_) && !program_.empty() && is_program_(program_[0]);
  if (!has_probe_ && (has_pid_of_strace_ || lacks_probe)) add_place(std::string(kExample));
  if (!has_probe_) return {};
  if (program_.empty() && !has_process_) {
    if (object_.empty()) return {};
    options_.push_back("--object=" + object_);
  }
  if (wants_stacks_) add_stacks();
  return line();
}

// The command line itself, as read() would make it.
std::string as_given(const Words& arguments) {
  std::string line = "uprobe-run";
  for (std::size_t i = 1; i < arguments.size(); ++i)
    if (arguments[i] != "--") line += " " + quoted(arguments[i]);
  return line;
}

}  // namespace

Error with_translation(Error error, const std::vector<std::string>& arguments, const IsProgram& is_program) {
  // A line that only repeats the user's would hide what to do.
  const auto better = CommandReader(arguments, is_program).read(error.text.starts_with("no probe is defined"));
  if (better && *better != as_given(arguments)) error.help = *better;
  return error;
}

}  // namespace uprobe::cli
