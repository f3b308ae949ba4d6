// SPDX-License-Identifier: MIT
// Other tools' words, each rule with its tool.
#include "cli/foreign_places.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "cli/options.h"
#include "cli/values.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {
namespace {

using Words = std::vector<std::string>;

// What a text of another tool means here.
struct Meant {
  std::string place;    // a definition
  std::string problem;  // why it cannot be taken as it stands; empty: it can
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_word);
}

// "open" of "sys_enter_open", "__x64_sys_open", "vfs_open".
std::string system_call(std::string_view name) {
  for (const std::string_view prefix :
       {"sys_enter_", "sys_exit_", "__x64_sys_", "__se_sys_", "do_sys_", "sys_", "vfs_"})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  return std::string(name.substr(0, name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789*")));
}

// What a bpftrace program records, as fetch arguments.
std::string fetches_of(std::string_view program) {
  std::string found;
  const auto add = [&](const std::string& fetch) {
    if ((found + " ").find(" " + fetch + " ") == std::string::npos) found += " " + fetch;
  };
  for (std::size_t at = 0; at < program.size(); ++at) {
    if (at != 0 && is_word(program[at - 1])) continue;
    const bool is_text = program.substr(0, at).ends_with("str(");
    const std::string_view rest = program.substr(at);
    const char digit = rest.size() > 3 ? rest[3] : '\0';
    if (rest.starts_with("arg") && digit >= '0' && digit <= '5')
      add("$arg" + std::string(1, static_cast<char>(digit + 1)) + (is_text ? ":string" : ""));
    if (rest.starts_with("retval")) add(is_text ? "$retval:string" : "$retval");
  }
  return found;
}

// bpftrace: "uprobe:PATH:FUNCTION", perhaps with "/FILTER/" and "{ ACTION }".
std::optional<Meant> of_bpftrace(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view kind = text.substr(0, colon);
  std::string_view place = text.substr(colon + 1);
  const bool is_short = (kind == "u" || kind == "ur") && (place.starts_with('/') || place.starts_with("lib"));
  if (kind != "uprobe" && kind != "uretprobe" && !is_short) return {};
  const std::size_t program = std::min(place.find('{'), place.find(" /"));
  Meant meant;
  std::string fetches;
  if (program != std::string_view::npos) {
    fetches = fetches_of(place.substr(program));
    meant.problem = "a filter and an action are bpftrace's: a definition says what is recorded";
    place = place.substr(0, program);
  }
  if (const std::size_t comma = place.find(','); comma != std::string_view::npos) {
    meant.problem = "each place needs a -p of its own";
    place = place.substr(0, comma);
  }
  std::string name(trimmed(place));
  std::erase(name, '"');
  meant.place = (kind.starts_with("ur") ? spec::at_return(name) : name) + fetches;
  return meant;
}

// bpftrace and perf: what belongs to the kernel.
std::optional<Meant> of_kernel(std::string_view text) {
  static constexpr std::array<std::string_view, 17> kKinds = {
      "kprobe",   "kretprobe", "tracepoint",   "rawtracepoint", "kfunc",   "kretfunc",
      "fentry",   "fexit",     "syscalls",     "usdt",          "profile", "interval",
      "software", "hardware",  "raw_syscalls", "watchpoint",    "iter"};
  const std::size_t colon = text.find(':');
  if (text.starts_with("sdt_") || text.starts_with("%sdt_"))
    return Meant{.place = {}, .problem = "static probes (SDT) are not known: a function is probed by its name"};
  if (colon == std::string_view::npos || std::find(kKinds.begin(), kKinds.end(), text.substr(0, colon)) == kKinds.end())
    return {};
  const std::string kind(text.substr(0, colon));
  if (kind == "usdt")
    return Meant{.place = {}, .problem = "static probes (USDT) are not known: a function is probed by its name"};
  const std::string_view where = trimmed(text.substr(0, text.find_first_of(" {/"))).substr(colon + 1);
  const std::size_t last = where.rfind(':');
  const std::string name = system_call(last == std::string_view::npos ? where : where.substr(last + 1));
  const bool is_call = kind != "profile" && kind != "interval" && kind != "software" && kind != "hardware";
  return Meant{.place = is_call && !name.empty() ? "libc:" + name : "",
               .problem = "'" + kind + "' is of the kernel: programs and their libraries can be probed"};
}

// gdb: "break PLACE [thread N]", "b *ADDRESS".
std::optional<Meant> of_gdb(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return {};
  static constexpr std::array<std::string_view, 8> kCommands = {"break", "b",      "br", "bre",
                                                                "brea",  "tbreak", "tb", "hbreak"};
  if (std::find(kCommands.begin(), kCommands.end(), text.substr(0, blank)) == kCommands.end()) return {};
  std::string_view place = trimmed(text.substr(blank));
  if (place.starts_with("*0x")) place.remove_prefix(1);
  return Meant{.place = std::string(place.substr(0, place.find(" thread "))), .problem = {}};
}

bool is_source(std::string_view name) {
  for (const std::string_view end : {".c", ".cc", ".cpp", ".cxx", ".h", ".rs", ".go"})
    if (name.ends_with(end)) return true;
  return false;
}

// ltrace: "malloc@libc.so*", "main@MAIN"; perf: "f@file.c".
std::optional<Meant> of_function_at(std::string_view text) {
  const std::size_t blank = std::min(text.find_first_of(" \t%"), text.size());
  const std::size_t at = text.substr(0, blank).find('@');
  if (at == std::string_view::npos || at == 0) return {};
  const std::string_view name = text.substr(0, at), object = text.substr(at + 1, blank - at - 1);
  const std::string rest(text.substr(blank));
  if (object == "MAIN" || is_source(object)) return Meant{std::string(name) + rest, {}};
  const std::size_t so = object.find(".so");
  if (so == std::string_view::npos && !object.starts_with("lib")) return {};
  const bool is_pattern = object.find_first_of("*?") != std::string_view::npos;
  return Meant{std::string(is_pattern ? object.substr(0, so) : object) + ":" + std::string(name) + rest, {}};
}

// perf: "[GROUP:]EVENT=PLACE ARGUMENT..."; bcc's trace: "p:LIBRARY:FUNCTION".
std::optional<Meant> of_named(std::string_view text) {
  const std::string_view head = text.substr(0, text.find_first_of(" \t"));
  if ((head.starts_with("p:") || head.starts_with("r:")) && head.find('/') == std::string_view::npos) {
    const std::size_t colon = head.find(':', 2);
    if (colon == std::string_view::npos || colon == 2 || head.substr(colon).starts_with("::")) return {};
    const std::string place(text.substr(2));
    return Meant{head[0] == 'r' ? spec::at_return(place) : place, {}};
  }
  const std::size_t equals = head.find('=');
  if (equals == std::string_view::npos || equals + 1 >= head.size() || head.substr(equals).starts_with("==")) return {};
  const std::size_t colon = std::min(head.find(':'), equals);
  const std::string_view group = colon == equals ? "" : head.substr(0, colon);
  const std::string_view event = colon == equals ? head.substr(0, equals) : head.substr(colon + 1, equals - colon - 1);
  if (!is_name(event) || event == "operator" || (!group.empty() && !is_name(group))) return {};
  return Meant{"p:" + (group.empty() ? "" : std::string(group) + "/") + std::string(event) + " " +
                   std::string(text.substr(equals + 1)),
               {}};
}

std::optional<Meant> meaning_of(std::string_view text) {
  text = trimmed(text);
  for (const auto& rule : {of_bpftrace, of_kernel, of_gdb, of_named, of_function_at})
    if (auto meant = rule(text)) return meant;
  return {};
}

std::string quoted(const std::string& word) {
  static constexpr std::string_view kUnquoted = "_-./:=,+@%";
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return is_word(c) || kUnquoted.find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// Reads a command line of any of the tools, word by word.
class CommandReader {
 public:
  CommandReader(const Words& words, const IsProgram& is_program) : words_(words), is_program_(is_program) {}

  std::optional<std::string> read();

 private:
  bool has_next() const { return at_ + 1 < words_.size(); }
  void option(const std::string& word);
  void program();
  void add_probe(const std::string& text);
  void add_events(std::string_view list);
  void add_list(const std::string& text);
  std::string value_of(const std::string& word, std::string_view name);

  const Words& words_;
  const IsProgram& is_program_;
  std::size_t at_ = 1;
  Words options_, program_;
  std::string object_;
  bool has_probe_ = false, has_process_ = false, has_pid_of_strace_ = false;
};

void CommandReader::add_probe(const std::string& text) {
  const auto meant = meaning_of(text);
  const std::string place = meant ? meant->place : text;
  if (place.empty()) return;
  options_.insert(options_.end(), {"-p", place});
  has_probe_ = true;
  const std::size_t colon = place.find(':');
  if (place.starts_with('/') && colon != std::string::npos && object_.empty()) object_ = place.substr(0, colon);
}

// strace: "trace=open,close", "open"; ltrace: "malloc+free@libc.so*"; perf: "probe_libc:malloc"; bpftrace: a program.
void CommandReader::add_events(std::string_view list) {
  list = trimmed(list);
  if (list.find('{') != std::string_view::npos || list.find(':') != std::string_view::npos) {
    if (list.starts_with("probe_")) list.remove_prefix(6);
    return add_probe(std::string(list));
  }
  bool is_call = false;
  if (const std::size_t equals = list.find('='); equals != std::string_view::npos) {
    if (list.substr(0, equals) != "trace" && list.substr(0, equals) != "t") return;
    is_call = true;
    list.remove_prefix(equals + 1);
  }
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(",+"), list.size());
    const std::string_view name = list.substr(0, end);
    if (!name.empty() && std::string_view("%!/?-").find(name[0]) == std::string_view::npos)
      add_probe((is_call ? "libc:" : "") + std::string(name));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

// bpftrace: -l 'uprobe:PATH:GLOB'.
void CommandReader::add_list(const std::string& text) {
  const std::size_t path = text.find(':') + 1, glob = text.find(':', path);
  options_.insert(options_.end(), {"-x", text.substr(path, glob - path)});
  options_.push_back("-l" + (glob == std::string::npos ? std::string() : text.substr(glob + 1)));
  has_probe_ = has_process_ = true;
}

// Of "-eVALUE", "--name=VALUE", or the next word.
std::string CommandReader::value_of(const std::string& word, std::string_view name) {
  if (word.size() > name.size()) return word.substr(name.size() + (word[name.size()] == '=' ? 1 : 0));
  return has_next() ? words_[++at_] : std::string();
}

void CommandReader::option(const std::string& word) {
  static constexpr std::array<std::string_view, 17> kWithout = {"-c",  "-t",     "-tt",    "-ttt",    "-T", "-y",
                                                                "-yy", "-C",     "-k",     "-g",      "-w", "-z",
                                                                "-ff", "--args", "-batch", "--batch", "-u"};
  if (word == "-ex") {
    const std::string command = has_next() ? words_[++at_] : std::string();
    return command.find(' ') != std::string::npos ? add_probe(command) : void();
  }
  if (word == "-l" && has_next() && words_[at_ + 1].starts_with("uprobe:")) return add_list(words_[++at_]);
  for (const std::string_view name : {"--eval-command", "--add", "--event", "--trace", "-a", "-e"}) {
    if (!word.starts_with(name) || (name.starts_with("--") && word.size() > name.size() && word[name.size()] != '='))
      continue;
    const std::string value = value_of(word, name);
    if (name == "--trace") return add_events("trace=" + value);
    return name == "-e" || name == "--event" ? add_events(value) : add_probe(value);
  }
  if (std::find(kWithout.begin(), kWithout.end(), word) != kWithout.end()) return;
  if (word == "-p" || word == "--probe" || word == "-r") {
    const std::string value = value_of(word, word);
    if (is_pid_list(value)) {
      has_process_ = has_pid_of_strace_ = true;
      return options_.insert(options_.end(), {"-P", value}), void();
    }
    return word == "-r" ? add_probe(spec::at_return(value)) : add_probe(value);
  }
  if (word == "-x" && has_next() && words_[at_ + 1].find('/') == std::string::npos && !is_program_(words_[at_ + 1]))
    return add_events(words_[++at_]);
  if (word == "-x" && has_next()) object_ = words_[at_ + 1];
  const auto all = option_names();
  const auto known = std::find_if(all.begin(), all.end(), [&](const OptionName& one) {
    return word == "--" + one.name || (one.letter != 0 && word == std::string("-") + one.letter);
  });
  has_process_ = has_process_ || word == "-P" || word.starts_with("--pid") || word.starts_with("--comm");
  options_.push_back(word);
  if (known != all.end() && known->is_required && has_next()) options_.push_back(words_[++at_]);
}

// The first word that is no option: a tool's name or command, a place, or the program. Options after a program without probes were
// meant for this tool.
void CommandReader::program() {
  static constexpr std::array<std::string_view, 8> kTools = {"probe", "record", "trace",  "stat",
                                                             "perf",  "strace", "ltrace", "bpftrace"};
  const std::string& word = words_[at_];
  if (!has_probe_ && program_.empty()) {
    if (std::find(kTools.begin(), kTools.end(), word) != kTools.end()) return;
    if (!is_program_(word)) return add_probe(word);
  }
  program_.push_back(word);
}

std::optional<std::string> CommandReader::read() {
  bool is_rest = false;
  for (; at_ < words_.size(); ++at_) {
    const std::string& word = words_[at_];
    const bool may_be_ours = program_.empty() || (!has_probe_ && (word == "-p" || word == "-r" || word == "-e"));
    if (is_rest)
      program_.push_back(word);
    else if (word == "--" && program_.empty())
      is_rest = true;
    else if (word.size() > 1 && word[0] == '-' && may_be_ours)
      option(word);
    else
      program();
  }
  if (!has_probe_ && has_pid_of_strace_) add_probe("malloc");  // an example
  if (!has_probe_) return {};
  if (program_.empty() && !has_process_) {
    if (object_.empty()) return {};
    options_.push_back("--object=" + object_);
  }
  std::string line = "uprobe-run";
  for (const Words* part : {&options_, &program_}) {
    if (part == &program_ && !program_.empty() && program_[0].starts_with('-')) line += " --";
    for (const std::string& word : *part) line += " " + quoted(word);
  }
  return line;
}

// The command line itself, as read() would make it.
std::string as_given(const Words& arguments) {
  std::string line = "uprobe-run";
  for (std::size_t i = 1; i < arguments.size(); ++i)
    if (arguments[i] != "--") line += " " + quoted(arguments[i]);
  return line;
}

}  // namespace

Result<std::string> translated_place(const std::string& text) {
  const auto meant = meaning_of(text);
  if (!meant) return text;
  if (meant->problem.empty()) return meant->place;
  return Error{.code = Code::usage,
               .text = meant->problem,
               .help = meant->place.empty() ? "e.g. -p libc:malloc" : "-p " + quoted(meant->place)};
}

Error with_translation(Error error, const std::vector<std::string>& arguments, const IsProgram& is_program) {
  // A line that only repeats the user's would hide what to do.
  const auto better = CommandReader(arguments, is_program).read();
  if (better && *better != as_given(arguments)) error.help = *better;
  return error;
}

}  // namespace uprobe::cli
