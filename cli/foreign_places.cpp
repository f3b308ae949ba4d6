// SPDX-License-Identifier: MIT
// Other tools' words for a place, each rule with its tool.
#include "cli/foreign_places.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cli/foreign_fetches.h"
#include "cli/foreign_probes.h"
#include "cli/foreign_words.h"
#include "engine/spec/bare.h"
#include "engine/spec/place.h"

namespace uprobe::cli {
namespace {

using Places = std::vector<std::string>;

// One of bpftrace's places: "uprobe:PATH:FUNCTION". Empty: it is none.
std::string place_of_bpftrace(std::string_view text) {
  text = trimmed(text);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view kind = text.substr(0, colon), place = text.substr(colon + 1);
  const std::size_t object = place.find(':');
  const bool has_object = object != std::string_view::npos && object != 0 &&
                          (place.starts_with("lib") || place.substr(0, object).find('/') != std::string_view::npos);
  const bool is_short = (kind == "u" || kind == "ur") && has_object;
  if (kind != "uprobe" && kind != "uretprobe" && !is_short) return {};
  std::string name(trimmed(place));
  constexpr std::string_view kLanguage = ":cpp:\"";  // the language of a name in quotes
  if (const std::size_t at = name.find(kLanguage); at != std::string::npos) name.replace(at, kLanguage.size(), ":\"");
  std::erase(name, '"');
  return kind.starts_with("ur") ? spec::at_return(name) : name;
}

// The parts of a list of bpftrace's places: a comma may also be one of a C++ function's.
std::vector<std::string> places_of_bpftrace(std::string_view list) {
  std::vector<std::string> places;
  std::size_t begin = 0;
  for (std::size_t comma = list.find(','); begin < list.size(); comma = list.find(',', comma + 1)) {
    const std::size_t end = std::min(comma, list.size());
    if (end != list.size() && place_of_bpftrace(list.substr(end + 1)).empty()) continue;
    if (std::string place = place_of_bpftrace(list.substr(begin, end - begin)); !place.empty())
      places.push_back(std::move(place));
    begin = end + 1;
  }
  return places;
}

// What a clause counts, "{ @ = hist(arg1); }": the field, as a fetch argument and a trigger.
struct Counted {
  std::string fetch, trigger;
};
// "@[arg0] = count()", "@[retval] = count()".
Counted counted_by_key(std::string_view action) {
  const std::size_t open = action.find('['), close = action.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  const std::string name(action.substr(open + 1, close - open - 1));
  if (action.find("count()", close) == std::string_view::npos || fetch_of(name).empty()) return {};
  return {" " + name + "=" + fetch_of(name), "hist:keys=" + name};
}

Counted counted_by(std::string_view action) {
  constexpr std::string_view kHistogram = "hist(";
  const std::size_t at = action.find(kHistogram);
  if (at == std::string_view::npos) return counted_by_key(action);
  const std::string_view value = action.substr(at + kHistogram.size());
  const bool is_latency = value.find("nsecs") != std::string_view::npos;
  const std::string name(is_latency ? "latency" : value.substr(0, value.find_first_of("), ")));
  const std::string fetch = is_latency ? "$latency" : fetch_of(name);
  if (fetch.empty()) return {};
  return {" " + (is_latency ? fetch : name + "=" + fetch), "hist:keys=" + name + ".log2"};
}

// "@start[tid] = nsecs": the time of an entry, for a histogram of another clause.
bool keeps_time(std::string_view action) {
  return action.find("= nsecs") != std::string_view::npos && action.find("hist(") == std::string_view::npos;
}

// What is counted, with the clause's filter.
std::string filtered(const std::string& fetch, std::string_view rest) {
  rest = trimmed(rest);
  const std::size_t end = rest.starts_with('/') ? rest.find('/', 1) : std::string_view::npos;
  const std::string filter = end == std::string_view::npos ? std::string() : filter_of(rest.substr(1, end - 1));
  return filter.find(fetch) == std::string::npos ? fetch + filter : filter;
}

// bpftrace: places with commas between them, perhaps with "/FILTER/" and "{ ACTION }"; several such clauses.
std::optional<Meant> of_bpftrace(std::string_view text) {
  Meant meant;
  while (!(text = trimmed(text)).empty()) {
    const std::size_t head = std::min({text.find('{'), text.find(" /"), text.size()});
    const std::size_t close = std::min(text.find('}', head), text.size());
    const std::string_view rest = text.substr(head, close - head);
    const Counted counted = counted_by(rest);
    if (!counted.trigger.empty()) meant.trigger = counted.trigger;
    for (const std::string& place : keeps_time(rest) ? Places() : places_of_bpftrace(text.substr(0, head)))
      meant.places.push_back(place + (counted.fetch.empty() ? records_of(rest) : filtered(counted.fetch, rest)));
    if (!rest.empty()) meant.problem = "a filter and an action are bpftrace's: a definition says what is recorded";
    text.remove_prefix(std::min(close + 1, text.size()));
  }
  if (meant.places.empty()) return {};
  if (meant.problem.empty() && meant.places.size() > 1) meant.problem = "each place needs a -p of its own";
  return meant;
}

// bpftrace: what is recorded, without the rest of a program: "PLACE str(arg0)".
std::optional<Meant> of_bpftrace_words(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos || text.find(" str(") == std::string_view::npos) return {};
  return Meant{.places = {std::string(text.substr(0, blank)) + fetches_in(text.substr(blank))},
               .problem = "str() is bpftrace's: the type 'string' shows what a value points to"};
}

// perf: a marker, "sdt_PROVIDER:NAME", "%sdt_PROVIDER:NAME".
std::optional<Meant> of_marker_of_perf(std::string_view text) {
  constexpr std::string_view kPerf = "sdt_";
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  std::string_view head = text.substr(0, end);
  if (head.starts_with('%')) head.remove_prefix(1);
  if (!head.starts_with(kPerf) || head.find(':') == std::string_view::npos) return {};
  return Meant{{"sdt:" + std::string(head.substr(kPerf.size())) + std::string(text.substr(end))}, {}};
}

// "PATH:sdt:PROVIDER:NAME" of "PATH:PROVIDER:NAME", and of "PATH:NAME" with any provider; without a path "::NAME".
std::string marker_of(std::string_view place) {
  const std::size_t last = place.rfind(':');
  const std::string_view before = place.substr(0, last);
  const std::size_t colon = before.rfind(':');
  const std::string_view path = before.substr(0, colon);
  const std::string provider(colon == std::string_view::npos ? "" : before.substr(colon + 1));
  return (path.empty() ? "" : std::string(path) + ":") + "sdt:" + (provider.empty() ? "*" : provider) +
         std::string(place.substr(last));
}

// bpftrace: a marker, "usdt:PATH:[PROVIDER:]NAME". Its first argument is arg0, as a function's.
std::optional<Meant> of_marker_of_bpftrace(std::string_view text) {
  constexpr std::string_view kKind = "usdt:";
  if (!text.starts_with(kKind)) return {};
  const std::size_t end = std::min(text.find_first_of(" \t{"), text.size());
  const std::string_view place = text.substr(kKind.size(), end - kKind.size()), action = trimmed(text.substr(end));
  if (place.find(':') == std::string_view::npos || place.ends_with(':'))
    return Meant{.places = {}, .problem = "a marker is sdt:PROVIDER:NAME, perhaps with PATH: before it"};
  if (action.empty()) return Meant{{marker_of(place)}, {}};
  return Meant{.places = {marker_of(place) + records_of(action)},
               .problem = "a filter and an action are bpftrace's: a definition says what is recorded"};
}

// bpftrace and perf: what belongs to the kernel.
std::optional<Meant> of_kernel(std::string_view text) {
  static constexpr std::array<std::string_view, 16> kKinds = {
      "kprobe",   "kretprobe", "tracepoint", "rawtracepoint", "kfunc",    "kretfunc",     "fentry",     "fexit",
      "syscalls", "profile",   "interval",   "software",      "hardware", "raw_syscalls", "watchpoint", "iter"};
  if (text == "BEGIN" || text == "END" || text.starts_with("BEGIN ") || text.starts_with("END "))
    return Meant{.places = {}, .problem = "'BEGIN' and 'END' are bpftrace's: a trace lasts as long as the program"};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || std::find(kKinds.begin(), kKinds.end(), text.substr(0, colon)) == kKinds.end())
    return {};
  const std::string kind(text.substr(0, colon));
  const std::string_view where = trimmed(text.substr(0, text.find_first_of(" {/"))).substr(colon + 1);
  const std::size_t last = where.rfind(':');
  const std::string name = system_call(last == std::string_view::npos ? where : where.substr(last + 1));
  const bool is_call = kind != "profile" && kind != "interval" && kind != "software" && kind != "hardware";
  Meant meant{.places = {}, .problem = "'" + kind + "' is of the kernel: programs and their libraries can be probed"};
  if (is_call && !name.empty()) meant.places.push_back(std::string(kLibc) + name);
  return meant;
}

// gdb: "catch syscall NAME", "catch throw".
std::optional<Meant> of_catchpoint(std::string_view what) {
  if (what == "throw" || what == "catch" || what == "rethrow")
    return Meant{.places = {what == "throw"   ? "__cxa_throw"
                            : what == "catch" ? "__cxa_begin_catch"
                                              : "__cxa_rethrow"},
                 .problem = {}};
  Meant meant{.places = {},
              .problem = "catchpoints are gdb's: the functions of libc that make system calls can be probed"};
  constexpr std::string_view kSyscall = "syscall";
  const bool is_call = what.starts_with(kSyscall);
  for (const std::string& name : names_in(is_call ? what.substr(kSyscall.size()) : what))
    meant.places.push_back(std::string(kLibc) + (name == "exec" ? "execve" : name == "load" ? "dlopen" : name));
  return meant;
}

// gdb: a text is compared by a call: 'strcmp(who, "x") == 0', '!strcmp(who, "x")', '$_streq(who, "x")'.
std::string with_compared_texts(std::string_view condition) {
  std::string_view rest = trimmed(condition);
  const bool is_negated = rest.starts_with('!');
  if (is_negated) rest.remove_prefix(1);
  const bool is_equality = rest.starts_with("$_streq(");
  const std::size_t open = rest.find('('), comma = rest.find(',', open), quote = rest.find('"', comma);
  if ((!is_equality && !rest.starts_with("strcmp(")) || quote == std::string_view::npos) return std::string(condition);
  const std::size_t end = rest.find('"', quote + 1), close = rest.find(')', end);
  const std::string_view name = trimmed(rest.substr(open + 1, comma - open - 1));
  if (end == std::string_view::npos || close == std::string_view::npos || !is_name(name)) return std::string(condition);
  const std::string_view after = trimmed(rest.substr(close + 1));
  const bool is_compared = after == "== 0" || after == "==0" || after == "!= 0" || after == "!=0";
  if (!after.empty() && (!is_compared || is_equality || is_negated)) return std::string(condition);
  const bool is_same = is_equality ? !is_negated : is_negated || after.starts_with("==");
  return std::string(name) + (is_same ? " == " : " != ") + std::string(rest.substr(quote, end + 1 - quote));
}

// gdb: "break PLACE [thread N]", "b *ADDRESS", "rbreak EXPRESSION", "catch ...".
std::optional<Meant> of_gdb(std::string_view text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return {};
  static constexpr std::array<std::string_view, 9> kCommands = {"break",  "b",  "br",     "bre",    "brea",
                                                                "tbreak", "tb", "hbreak", "thbreak"};
  const std::string_view command = text.substr(0, blank);
  std::string_view rest = trimmed(text.substr(blank));
  if (command == "rbreak") return Meant{.places = {glob_of(rest)}, .problem = {}};
  if (command == "catch" || command == "tcatch") return of_catchpoint(rest);
  if (command == "watch" || command == "rwatch" || command == "awatch")
    return Meant{.places = {}, .problem = "watchpoints are not known: places of code can be probed"};
  if (std::find(kCommands.begin(), kCommands.end(), command) == kCommands.end()) return {};
  if (rest.starts_with('*') && rest.find('*', 1) == std::string_view::npos)
    rest.remove_prefix(1);  // "*main+4", "*0x1139"
  rest = rest.substr(0, rest.find(" thread "));
  constexpr std::string_view kCondition = " if ";
  std::string place(rest);
  if (const std::size_t condition = rest.find(kCondition); condition != std::string_view::npos)
    place.replace(condition + kCondition.size(), std::string::npos,
                  with_compared_texts(rest.substr(condition + kCondition.size())));
  return Meant{.places = {with_fields(place)}, .problem = {}};
}

// "libc" of "libc.so*" and of "libc*"; a name without a pattern as it is.
std::string object_of(std::string_view name) {
  const std::size_t pattern = name.find_first_of("*?");
  return std::string(name.substr(0, pattern == std::string_view::npos ? pattern : std::min(name.find(".so"), pattern)));
}

// ltrace: "malloc@libc.so*", "main@MAIN", "@libc.so*"; perf: "f@file.c".
std::optional<Meant> of_function_at(std::string_view text) {
  const std::size_t blank = std::min(text.find_first_of(" \t%"), text.size());
  const std::size_t at = text.substr(0, blank).find('@');
  if (at == std::string_view::npos) return {};
  const std::string_view name = at == 0 ? "*" : text.substr(0, at), object = text.substr(at + 1, blank - at - 1);
  const std::string rest(text.substr(blank));
  if (object == "MAIN") return Meant{{std::string(name) + rest}, {}};
  if (spec::is_source_name(object)) return Meant{{std::string(text)}, {}};
  const bool is_path = object.find('/') != std::string_view::npos;
  if (!is_path && object.find(".so") == std::string_view::npos && !object.starts_with("lib")) return {};
  return Meant{{(is_path ? std::string(object) : object_of(object)) + ":" + std::string(name) + rest}, {}};
}

// perf: "[GROUP:]EVENT=PLACE ARGUMENT..."; bcc's trace: "p:LIBRARY:FUNCTION".
std::optional<Meant> of_named(std::string_view text) {
  const std::string_view head = text.substr(0, text.find_first_of(" \t"));
  if ((head.starts_with("p:") || head.starts_with("r:")) && head.find('/') == std::string_view::npos) {
    const std::size_t colon = head.find(':', 2);
    if (colon == std::string_view::npos || colon == 2 || head.substr(colon).starts_with("::")) return {};
    const std::string place(text.substr(2));
    return Meant{{head[0] == 'r' ? spec::at_return(place) : place}, {}};
  }
  const std::size_t equals = head.find('=');
  if (equals == 0 && head.size() > 1)
    return Meant{.places = {std::string(text.substr(1))}, .problem = "the value of -p stands after it without a '='"};
  if (equals == std::string_view::npos || equals + 1 >= head.size() || head.substr(equals).starts_with("==")) return {};
  const std::size_t colon = std::min(head.find(':'), equals);
  const std::string_view group = colon == equals ? "" : head.substr(0, colon);
  const std::string_view event = colon == equals ? head.substr(0, equals) : head.substr(colon + 1, equals - colon - 1);
  if (!is_name(event) || event == "operator" || (!group.empty() && !is_name(group))) return {};
  return Meant{{"p:" + (group.empty() ? "" : std::string(group) + "/") + std::string(event) + " " +
                std::string(text.substr(equals + 1))},
               {}};
}

// "f if n > 2": a filter knows only what is recorded.
std::optional<Meant> of_condition(std::string_view text) {
  if (spec::starts_as_definition(text)) return {};
  const std::string place = with_fields(std::string(text));
  return place == text ? std::nullopt : std::optional(Meant{.places = {place}, .problem = {}});
}

// "malloc,free": a list, as other options of many tools take it.
std::optional<Meant> of_list(std::string_view text) {
  if (text.find_first_of(",;") == std::string_view::npos) return {};
  Meant meant{.places = names_in(text), .problem = "each place needs a -p of its own"};
  const bool is_list =
      std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == ',' || c == ';' || c == ' '; });
  return is_list && meant.places.size() > 1 ? std::optional(meant) : std::nullopt;
}

}  // namespace

std::optional<Meant> meaning_of(std::string_view text) {
  text = trimmed(text);
  if (text.ends_with(':')) return {};  // a place that is not complete
  for (const auto& rule : {of_bpftrace, of_marker_of_bpftrace, of_marker_of_perf, of_dtrace, of_systemtap, of_kernel,
                           of_dprintf, of_gdb, of_bpftrace_words, of_bcc, of_frida, of_named, of_function_at,
                           of_bracketed_values, of_bare_condition, of_condition, of_listed_values, of_list})
    if (auto meant = rule(text)) return meant;
  return {};
}

Result<std::string> translated_place(const std::string& text) {
  const auto meant = meaning_of(text);
  if (!meant) return text;
  if (meant->problem.empty()) return meant->places.front();
  return Error{.code = Code::usage,
               .text = meant->problem,
               .help = meant->places.empty() ? "e.g. -p libc:malloc" : as_line(options_for(*meant))};
}

std::vector<std::string> options_for(const Meant& meant) {
  std::vector<std::string> options;
  for (const std::string& place : meant.places) {
    options.insert(options.end(), {"-p", place});
    if (!meant.trigger.empty()) options.push_back("--trigger=" + meant.trigger);
  }
  return options;
}

std::string as_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
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

}  // namespace uprobe::cli
