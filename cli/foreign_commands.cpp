// SPDX-License-Identifier: MIT
// See foreign_commands.h.
#include "cli/foreign_commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "cli/foreign_options.h"
#include "cli/foreign_places.h"
#include "cli/foreign_probes.h"
#include "cli/foreign_words.h"
#include "cli/options.h"
#include "cli/values.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {
namespace {

using Words = std::vector<std::string>;

bool is_path(const std::string& word) {
  return word.find('/') != std::string::npos && word.find_first_of(": ") == std::string::npos;
}

bool is_file(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

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

// The one thing that the line lacks.
enum class Lack { unknown, probe, program };

Lack lack_of(const Error& error) {
  if (error.text.starts_with("no probe is defined")) return Lack::probe;
  return error.text.starts_with("no program to run") ? Lack::program : Lack::unknown;
}

// Reads a command line of any of the tools, word by word.
class CommandReader {
 public:
  CommandReader(const Words& words, const IsProgram& is_program) : words_(words), is_program_(is_program) {}

  std::optional<std::string> read(Lack lack);

 private:
  bool has_next() const { return at_ + 1 < words_.size(); }
  std::string next() { return has_next() ? words_[++at_] : std::string(); }
  void word(const std::string& word);
  void option(const std::string& word);
  bool option_of_tool(const std::string& word);
  void take_option(ForeignOption meaning, const std::string& value);
  bool value_is_foreign(char letter, const std::string& value);
  void add_meant(const Meant& meant);
  void add_expression(const std::string& expression);
  bool command_of_tool(const std::string& word);
  bool option_of_probe(const std::string& word);
  bool option_of_uftrace(const std::string& word);
  bool option_of_events(const std::string& word);
  void split_into_program(const std::string& text);
  bool option_of_others(const std::string& word);
  void own_option(const std::string& word);
  bool first_word(const std::string& word);
  void program();
  void add_probe(const std::string& text);
  void add_place(const std::string& place);
  void add_command(const std::string& text);
  void add_events(std::string_view list);
  void add_list(const std::string& text);
  void add_look(const Words& options);
  void list_instead();
  void measure_latency();
  void add_stacks();
  void add_example();
  std::string value_of(const std::string& word, std::string_view name);
  std::string line() const;

  const Words& words_;
  const IsProgram& is_program_;
  std::size_t at_ = 1;
  Words options_, program_, probe_words_;
  std::string object_, tool_, expression_, library_, probed_program_;
  bool is_over_ = false, is_list_ = false;  // nothing more is read; only a list is wanted
  bool has_program_option_ = false;         // an option names the program, and more options follow
  bool is_rest_ = false, is_foreign_ = false, is_unknown_ = false;
  bool has_probe_ = false, has_process_ = false, has_pid_of_strace_ = false, wants_stacks_ = false;
};

void CommandReader::add_place(const std::string& place) {
  options_.insert(options_.end(), {"-p", place});
  has_probe_ = true;
  const std::size_t colon = place.find(':');
  const bool has_path = place.starts_with('/') || place.starts_with("./");
  if (has_path && colon != std::string::npos && object_.empty()) object_ = place.substr(0, colon);
}

void CommandReader::add_meant(const Meant& meant) {
  for (const std::string& place : meant.places) {
    add_place(place);
    if (!meant.trigger.empty()) options_.push_back("--trigger=" + meant.trigger);
  }
}

bool shows_stacks(const std::string& text) {
  static constexpr std::array<std::string_view, 4> kWords = {"[ustack", "print(ustack", "backtrace()", "stack()"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

void CommandReader::add_probe(const std::string& text) {
  wants_stacks_ = wants_stacks_ || shows_stacks(text);
  const auto meant = meaning_of(text);
  if (!meant) return add_place(text);
  add_meant(*meant);
}

// Of uftrace's -P and of Frida's -i: "." is every function.
void CommandReader::add_expression(const std::string& expression) {
  if (expression.find_first_of("^$.") == std::string::npos) return add_probe(expression);
  add_place(expression == "." ? "*" : glob_from_start(expression));
}

// gdb's -ex: what sets a breakpoint, or asks for functions; the others have no likeness here.
void CommandReader::add_command(const std::string& text) {
  constexpr std::string_view kFunctions = "info functions ";
  if (text.starts_with(kFunctions)) return add_look({"-l*" + text.substr(kFunctions.size()) + "*"});
  for (const std::string_view looks : {"info line ", "list ", "l "})
    if (text.starts_with(looks)) return add_look({"--lines=" + text.substr(looks.size())});
  if (constexpr std::string_view kScope = "info scope "; text.starts_with(kScope))
    return add_look({"--vars=" + text.substr(kScope.size())});
  for (const std::string_view trace : {"trace ", "ftrace ", "strace ", "tp "})
    if (text.starts_with(trace)) return add_place(text.substr(trace.size()));
  if (const auto meant = meaning_of(text); meant && text.find(' ') != std::string::npos) add_meant(*meant);
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
  if (is_event_of_kernel(list) || list.starts_with("@[") || list.starts_with("@ ") ||
      list.ends_with("()")) {  // of no place
    wants_stacks_ = wants_stacks_ || shows_stacks(std::string(list));
    return;
  }
  if (is_call) list.remove_prefix(equals + 1);
  if (list.find('{') != std::string_view::npos || list.find(':') != std::string_view::npos || list.starts_with('@')) {
    for (const std::string_view group : {"probe_", "uprobes:", "probe:"})
      if (list.starts_with(group)) list.remove_prefix(group.size());
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
    else if (is_call && name.size() > 1 && name[0] == '/')  // a regular expression
      add_place("libc:" + glob_of(name.substr(1)));
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

void CommandReader::take_option(ForeignOption meaning, const std::string& value) {
  const auto is_place = [&](std::string_view text) {
    return text.find('@') != std::string_view::npos && text.find('@') != 0;
  };
  switch (meaning) {
    case ForeignOption::flag:
    case ForeignOption::value:
      return;
    case ForeignOption::place:
      return is_place(value) ? add_place(place_of_uftrace(value)) : add_probe(value);
    case ForeignOption::returning:
      return add_place(spec::at_return(place_of_uftrace(value)));
    case ForeignOption::expression:
      return add_expression(value);
    case ForeignOption::events:
      return add_events(value);
    case ForeignOption::library:
      return add_place(value + ":*");
    case ForeignOption::program:
    case ForeignOption::command:
      has_program_option_ = true;
      return split_into_program(value);
    case ForeignOption::process:
      has_process_ = has_pid_of_strace_ = true;
      return options_.insert(options_.end(), {"-P", value}), void();
    case ForeignOption::process_name:
      has_process_ = has_pid_of_strace_ = true;
      return options_.insert(options_.end(), {"--comm=" + value, "-x", value}), void();
    case ForeignOption::list:
      return is_list_ = true, void();
    case ForeignOption::stacks:
      return wants_stacks_ = true, void();
  }
}

// An option of the tool whose name stands first.
bool CommandReader::option_of_tool(const std::string& word) {
  const auto meaning = meaning_of_option(tool_, std::string_view(word).substr(0, 2));
  if (!meaning || word.starts_with("--")) return false;
  const bool has_value =
      *meaning != ForeignOption::flag && *meaning != ForeignOption::stacks && *meaning != ForeignOption::list;
  take_option(*meaning, has_value ? value_of(word, word.substr(0, 2)) : std::string());
  return true;
}

// perf probe's.
bool CommandReader::option_of_probe(const std::string& word) {
  if (tool_ != "probe") return false;
  const std::string name = word.substr(0, word.find('='));
  if (name == "-F" || name == "--funcs") return add_look({"-l"}), true;
  if (name == "-L" || name == "--line") return add_look({"--lines=" + value_of(word, name)}), true;
  if (name == "-V" || name == "--vars") return add_look({"--vars=" + value_of(word, name)}), true;
  if (name == "-n" || name == "--dry-run") return options_.push_back("--dry-run"), has_process_ = true;
  if (name == "-D" || name == "--definition") {
    add_look({"--dry-run"});
    return add_probe(value_of(word, name)), true;
  }
  if (name == "-l" || name == "--list") return add_look({"--control", "SESSION", "--list"}), true;
  if (name == "-d" || name == "--del")
    return add_look({"--control", "SESSION", "--remove=" + value_of(word, name)}), true;
  return false;
}

// uftrace's without its name: "-A greet@arg1/s", "-R greet@retval", "-U ./prog"; Frida's "-I libc.so.6".
bool CommandReader::option_of_uftrace(const std::string& word) {
  const std::string following = has_next() ? words_[at_ + 1] : std::string();
  const bool has_arguments =
      following.find("@arg") != std::string::npos || following.find("@retval") != std::string::npos;
  if ((word == "-A" || word == "-R") && has_arguments) return add_place(place_of_uftrace(next())), true;
  if (word == "-I" && following.find(".so") != std::string::npos) return add_place(next() + ":*"), true;
  if (word != "-a") return false;
  if (is_decimal_number(following)) return next(), true;  // strace's column
  return following.empty() || following.starts_with('-') || is_program_(following);
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
  static constexpr std::array<std::string_view, 20> kWithout = {
      "-c",  "-t",     "-tt",    "-ttt",    "-T", "-y", "-yy", "-C", "-w",      "-z",
      "-ff", "--args", "-batch", "--batch", "-u", "-L", "-R",  "-N", "--count", "--summary"};
  static constexpr std::array<std::string_view, 8> kStacks = {"-k",      "-g",       "--stack-trace", "--call-graph",
                                                              "--stack", "--stacks", "--backtrace",   "--ustack"};
  static constexpr std::array<std::string_view, 4> kWithValue = {"-E", "-S", "-O", "-X"};
  const bool records = tool_ == "record" || tool_ == "stat" || tool_ == "top";
  if (records && (word.starts_with("-a") || word == "-F")) {
    wants_stacks_ = wants_stacks_ || (word[1] == 'a' && word.find('g') != std::string::npos);
    if (word == "-F") next();
    return true;
  }
  if (word == "-c" && has_next() && words_[at_ + 1].find(' ') != std::string::npos) {
    split_into_program(next());  // bpftrace's, with its arguments
    return true;
  }
  static constexpr std::array<std::string_view, 3> kUnwinders = {"dwarf", "fp", "lbr"};
  if (word == "--call-graph" && has_next() && is_among(words_[at_ + 1], kUnwinders)) next();
  if (is_among(word.substr(0, word.find('=')), kStacks)) return wants_stacks_ = true;
  if (is_among(word, kWithValue) && has_next() && !is_program_(words_[at_ + 1])) next();
  return is_among(word, kWithout) || is_among(word, kWithValue);
}

void CommandReader::split_into_program(const std::string& text) {
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    program_.push_back(text.substr(at, end - at));
    at = end;
  }
}

// Takes the value of an option of this tool's that another tool means. False: it is this tool's own.
bool CommandReader::value_is_foreign(char letter, const std::string& value) {
  if (value.empty()) return false;
  switch (letter) {
    case 'F':  // uftrace's, without a prototype; strace's and others' flag before the program
      if (value.find('(') != std::string::npos || value.starts_with('-')) return false;
      is_program_(value) ? program_.push_back(value) : take_option(ForeignOption::place, value);
      return true;
    case 'P':  // uftrace's, or strace's files
      if (is_pid_list(value)) return false;
      if (!value.starts_with('/')) expression_ = value;
      return true;
    case 'n':  // dtrace's, or Frida's
      if (is_decimal_number(value) || value.starts_with('-') || is_program_(value)) return false;
      if (value.find(':') != std::string::npos) return add_events(value), true;
      return take_option(ForeignOption::process_name, value), true;
    case 'i':  // Frida's
      if (value == "-" || is_file(value)) return false;
      if (value.find_first_of("/.") != std::string::npos && value.find_first_of("!*") == std::string::npos)
        return false;
      return add_expression(value), true;
    default:
      return false;
  }
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
    if (is_path(value) && is_program_(value)) return probed_program_ = value, void();
    return is_return ? add_probe(spec::at_return(value)) : add_probe(value);
  }
  const std::string following = has_next() ? words_[at_ + 1] : std::string();
  const char letter = word.size() == 2 && word[0] == '-' ? word[1] : '\0';
  if (letter == 'F' && following.empty()) return object_.empty() ? void() : add_look({"-l"});
  if (letter == 'F' && following.starts_with('-')) return is_foreign_ = true, void();
  if (value_is_foreign(letter, following)) {
    is_foreign_ = is_foreign_ || letter != 'P' || following.starts_with('/');
    return next(), void();
  }
  if ((word == "-l" || word == "-lv") && following.find(':') != std::string::npos && !is_program_(following))
    return add_list(next());
  if (word == "-x" && following.ends_with(".gdb")) return next(), void();
  const bool is_name =
      word == "-x" && has_next() && following.find('/') == std::string::npos && !is_program_(following);
  if (is_name && tool_ == "probe") return library_ = next(), void();
  if (is_name) return is_foreign_ = true, add_events(next());
  if (word == "-x" && has_next()) object_ = following;
  const auto all = option_names();
  const auto known = std::find_if(all.begin(), all.end(), [&](const OptionName& one) {
    const std::string name = "--" + one.name;
    return word == name || word.starts_with(name + "=") ||
           (one.letter != 0 && word.starts_with(std::string("-") + one.letter));
  });
  constexpr std::string_view kTool = "--tool=";
  if (tool_ == "valgrind" && word.starts_with(kTool)) return tool_ = word.substr(kTool.size()), void();
  if ((word == "--timeout" || word == "--time") && is_decimal_number(following))
    return options_.insert(options_.end(), {"-d", next()}), void();
  if (known == all.end()) {  // a short one of another tool is left out
    is_unknown_ = is_unknown_ || (word.starts_with("--") && tool_.empty());
    is_foreign_ = true;
    return;
  }
  has_process_ = has_process_ || word == "-P" || word.starts_with("--pid") || word.starts_with("--comm");
  options_.push_back(word);
  const bool is_whole = word.size() == 2 || word == "--" + known->name;
  if (known->is_required && is_whole && has_next()) options_.push_back(next());
}

void CommandReader::option(const std::string& word) {
  if (option_of_tool(word) || option_of_probe(word) || option_of_uftrace(word) || option_of_others(word) ||
      option_of_events(word)) {
    is_foreign_ = true;
    return;
  }
  own_option(word);
}

// "report" of "perf report": what only prints or lists.
bool CommandReader::command_of_tool(const std::string& word) {
  const auto command = foreign_command(tool_, word);
  if (!command || (tool_.empty() && is_program_(word))) return false;
  if (*command == ForeignCommand::prints) add_look({"--replay=FILE"}), is_rest_ = true, is_over_ = true;
  if (*command == ForeignCommand::lists) add_look({"-x", "libc", "-l"}), is_over_ = true;
  return true;
}

// A word that is no program and no place: a process id after others, "b main" of gdb, "help", a script of another tool.
bool CommandReader::first_word(const std::string& word) {
  static constexpr std::array<std::string_view, 8> kBreaks = {"break", "b",      "br",     "tbreak",
                                                              "tb",    "hbreak", "rbreak", "catch"};
  static constexpr std::array<std::string_view, 3> kScripts = {".bt", ".stp", ".gdb"};
  if (is_program_(word)) return false;
  if (is_decimal_number(word) && options_.size() > 1 && options_[options_.size() - 2] == "-P")
    return options_.back() += "," + word, true;
  if (is_decimal_number(word) && !tool_.empty() && !has_process_)
    return take_option(ForeignOption::process, word), true;
  if (is_decimal_number(word) && is_among("--doctor", options_))
    return options_.insert(options_.end(), {"-P", word}), has_process_ = true;
  if (words_.size() == 2 && (word == "help" || word == "version")) return add_look({"--" + word}), true;
  if (is_among(word, kBreaks) && has_next()) return add_probe(word + " " + next()), is_foreign_ = true;
  const auto ends = [&](std::string_view end) { return word.ends_with(end); };
  return std::any_of(kScripts.begin(), kScripts.end(), ends) && (is_foreign_ = true);
}

// The first word that is no option: a tool's name or command, a place, or the program. Options after a program without probes were
// meant for this tool.
void CommandReader::program() {
  const std::string& word = words_[at_];
  if (tool_ == "probe" && object_.empty() && probe_words_.empty() && is_program_(word))
    return object_ = word, options_.insert(options_.end(), {"-x", word}), void();
  if (tool_ == "probe") return probe_words_.push_back(word);
  if (program_.empty() && first_word(word)) return;
  if (!has_probe_ && program_.empty()) {
    if (command_of_tool(word)) return;
    if (const auto meant = meaning_of_unknown(word); meant && word.find(':') != std::string::npos)
      return add_meant(*meant);
    constexpr std::string_view kDebians = "-bpfcc";  // of the names of bcc's tools
    const std::string tool = word.ends_with(kDebians) ? word.substr(0, word.size() - kDebians.size()) : word;
    if (is_foreign_tool(tool)) return is_foreign_ = true, tool_ = tool, void();
    if (!is_program_(word)) return add_probe(word);
  }
  program_.push_back(word);
}

void CommandReader::word(const std::string& word) {
  const bool may_be_ours = program_.empty() || has_program_option_ ||
                           (!has_probe_ && (word == "-p" || word == "-r" || word == "-e")) ||
                           (tool_ == "gdb" && word == "-ex");
  if (is_rest_)
    program_.push_back(word);
  else if (word == "--" && program_.empty())
    is_rest_ = true;
  else if (word.size() > 1 && word[0] == '-' && may_be_ours)
    for (const std::string& one : options_in(word)) option(one);
  else
    program();
}

// "OBJECT:GLOB" of the first place, as what is to be listed.
void CommandReader::list_instead() {
  const auto place = std::find(options_.begin(), options_.end(), "-p");
  if (place == options_.end() || place + 1 == options_.end()) return;
  const std::string text = place[1];
  const std::size_t colon = text.find(':');
  const bool is_of_program = !program_.empty() && program_[0].ends_with("/" + text.substr(0, colon));
  if (is_of_program) return options_ = {"-l" + text.substr(colon + 1)}, void();
  options_ = {"-l" + (colon == std::string::npos ? text : text.substr(colon + 1))};
  if (colon != std::string::npos) options_.insert(options_.begin(), {"-x", text.substr(0, colon)}), program_.clear();
  has_process_ = true;
}

// How long the functions take, in a histogram.
void CommandReader::measure_latency() {
  for (std::size_t i = 0; i + 1 < options_.size(); ++i) {
    if (options_[i] != "-p") continue;
    options_[i + 1] = spec::at_return(options_[i + 1]) + " $latency";
    options_.insert(options_.begin() + static_cast<std::ptrdiff_t>(i) + 2, "--trigger=hist:keys=latency.log2");
  }
}

void CommandReader::add_stacks() {
  for (std::size_t i = 0; i + 1 < options_.size(); ++i)
    if (options_[i] == "-p")
      options_.insert(options_.begin() + static_cast<std::ptrdiff_t>(i) + 2, "--trigger=stacktrace");
}

std::string CommandReader::line() const {
  std::string line = "uprobe-run";
  if (is_over_) return line + " " + as_line(options_);
  for (const Words* part : {&options_, &program_}) {
    if (part == &program_ && !program_.empty() && program_[0].starts_with('-')) line += " --";
    for (const std::string& word : *part) line += " " + quoted(word);
  }
  return line;
}

void CommandReader::add_example() {
  const Words options = example_of_tool(tool_);
  options_.insert(options_.end(), options.begin(), options.end());
  has_probe_ = true, has_process_ = has_process_ || options.back().starts_with("--object=");
}

std::optional<std::string> CommandReader::read(Lack lack) {
  for (; at_ < words_.size() && !is_over_; ++at_) word(words_[at_]);
  if (is_unknown_) return {};
  if (!probe_words_.empty() && !has_probe_) {
    std::string text;
    for (const std::string& one : probe_words_) text += (text.empty() ? "" : " ") + one;
    add_probe((library_.empty() ? "" : library_ + ":") + text);
  }
  if (!has_probe_ && !expression_.empty()) add_expression(expression_);
  if (is_list_) list_instead();
  if (is_among("--doctor", options_)) return has_process_ ? std::optional(line()) : std::nullopt;
  if (program_.empty() && !probed_program_.empty()) program_.push_back(probed_program_), is_foreign_ = true;
  const bool has_program = !program_.empty() && is_program_(program_[0]);
  const bool lacks_probe = ((lack == Lack::probe || is_foreign_) && has_program) ||
                           (lack == Lack::probe && has_process_ && program_.empty());
  const bool is_tool_alone = program_.empty() && !tool_.empty() && options_.empty();
  if (!has_probe_ && (has_pid_of_strace_ || lacks_probe || is_tool_alone)) add_example();
  if (!has_probe_) return {};
  if (program_.empty() && !has_process_) {
    if (object_.empty() && !is_foreign_ && lack != Lack::program) return {};
    if (object_.empty()) program_.push_back("PROGRAM");
    if (!object_.empty()) options_.push_back("--object=" + object_);
  }
  if (tool_ == "funclatency") measure_latency();
  if (wants_stacks_ || tool_ == "stackcount") add_stacks();
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
  const auto better = CommandReader(arguments, is_program).read(lack_of(error));
  if (better && *better != as_given(arguments)) error.help = *better;
  return error;
}

}  // namespace uprobe::cli
