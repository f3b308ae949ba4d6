// SPDX-License-Identifier: MIT
#include "cli/foreign_probes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "cli/foreign_words.h"
#include "engine/spec/bare.h"

namespace uprobe::cli {
namespace {

constexpr std::string_view kActions = "a filter and an action are the other tool's: a definition says what is recorded";

// Takes the text before `end` off, and `end`; all of it, if there is no `end`.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + end.size(), text.size()));
  return taken;
}

Meant of_the_kernel(std::string_view what, const std::string& call) {
  Meant meant{.places = {},
              .problem = "'" + std::string(what) + "' is of the kernel: programs and their libraries can be probed"};
  if (is_name(call)) meant.places.push_back(std::string(kLibc) + call);
  return meant;
}

// DTrace's module: the program is "a.out", a library "libc.so.1" or "LM0`libc.so.1".
std::string object_of_dtrace(std::string_view module) {
  if (const std::size_t tick = module.find('`'); tick != std::string_view::npos) module.remove_prefix(tick + 1);
  if (module.empty() || module == "a.out" || module == "*") return {};
  if (module.starts_with("lib")) module = module.substr(0, module.find(".so"));
  return std::string(module) + ":";
}

// "$retval" of arg1 at a return, where arg0 is the place; else as fetch arguments.
std::string records_of_dtrace(std::string_view rest, bool is_return) {
  if (!is_return) return records_of(rest);
  return rest.find("arg1") != std::string_view::npos ? " $retval" : "";
}

std::optional<Meant> one_of_dtrace(std::string_view text) {
  const std::size_t head = std::min({text.find('{'), text.find('/'), text.size()});
  std::string_view probe = trimmed(text.substr(0, head));
  const std::string_view rest = text.substr(head);
  const std::string_view provider = take_until(probe, ":"), module = take_until(probe, ":"),
                         function = take_until(probe, ":");
  if (provider == "syscall") return of_the_kernel(provider, std::string(function));
  static constexpr std::array<std::string_view, 7> kKernel = {"proc",     "sched", "io",     "vminfo",
                                                              "lockstat", "fbt",   "sysinfo"};
  const bool is_time = provider.starts_with("profile-") || provider.starts_with("tick-");
  if (is_time || std::find(kKernel.begin(), kKernel.end(), provider) != kKernel.end())
    return of_the_kernel(provider, {});
  const std::string_view process = provider.starts_with("pid") ? provider.substr(3) : std::string_view();
  if (process != "$target" && process != "$1" && !is_decimal_number(process)) return {};
  std::string place = object_of_dtrace(module) + (function.empty() ? "*" : std::string(function));
  const bool is_return = probe == "return";
  if (is_return) place = spec::at_return(place);
  if (!probe.empty() && probe != "entry" && !is_return)  // the offset of an instruction
    place += "+0x" + std::string(probe);
  if (rest.find("timestamp - self") != std::string_view::npos)
    return Meant{
        .places = {place + " $latency"}, .problem = std::string(kActions), .trigger = "hist:keys=latency.log2"};
  if (rest.find("= timestamp") != std::string_view::npos)  // kept for the return
    return Meant{.places = {}, .problem = std::string(kActions)};
  constexpr std::string_view kHistogram = "quantize(arg";
  const std::size_t counted = rest.find(kHistogram);
  const bool is_linear = counted != std::string_view::npos && rest[counted - 1] == 'l';
  if (counted != std::string_view::npos && !is_linear) {
    const std::string name(rest.substr(counted + kHistogram.size() - 3, 4));
    const std::string fetch = is_return && name == "arg1" ? "$retval" : fetch_of(name);
    if (!fetch.empty())
      return Meant{.places = {place + " " + name + "=" + fetch},
                   .problem = std::string(kActions),
                   .trigger = "hist:keys=" + name + ".log2"};
  }
  return Meant{.places = {place + records_of_dtrace(rest, is_return)},
               .problem = rest.empty() ? std::string() : std::string(kActions)};
}

// Takes ".NAME("VALUE")" or ".NAME" off a probe of SystemTap.
struct Part {
  std::string_view name, value;
};
Part take_part(std::string_view& text) {
  text = trimmed(text);
  if (text.starts_with('.')) text.remove_prefix(1);
  const std::size_t end = std::min(text.find_first_of(".( {,"), text.size());
  Part part{text.substr(0, end), {}};
  text.remove_prefix(end);
  if (!text.starts_with('(')) return part;
  text.remove_prefix(1);
  part.value = take_until(text, ")");
  const bool is_quoted = part.value.size() > 1 && part.value.front() == '"';
  while (is_quoted && part.value.back() != '"' && !text.empty())  // a C++ name has parentheses of its own
    part.value = std::string_view(part.value.data(), part.value.size() + 1 + take_until(text, ")").size());
  if (is_quoted) part.value = part.value.substr(1, part.value.size() - 2);
  return part;
}

// "demo.c:7" of "*@demo.c:7", else the same: "work", "work@demo.c".
std::string place_of_systemtap(std::string_view function) {
  const std::size_t at = function.find('@');
  const std::string_view source = at == std::string_view::npos ? std::string_view() : function.substr(at + 1);
  const std::size_t colon = source.find(':');
  const bool is_line = colon != std::string_view::npos && is_decimal_number(source.substr(colon + 1));
  return std::string(is_line ? source : function);
}

// The variables of an action: "$who", "$$parms", "$return".
std::string fetches_of_systemtap(std::string_view action) {
  std::string found;
  std::vector<std::string> seen;
  for (std::size_t at = 0; (at = action.find('$', at)) != std::string_view::npos;) {
    const std::size_t begin = action.find_first_not_of('$', at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = static_cast<std::size_t>(
        std::find_if_not(action.begin() + static_cast<std::ptrdiff_t>(begin), action.end(), is_word) - action.begin());
    const std::string name(action.substr(begin, end - begin));
    const bool is_group = begin - at == 2;
    const std::string fetch = !is_group                            ? (name == "return" ? "$retval" : name)
                              : name == "parms"                    ? "$params"
                              : name == "vars" || name == "locals" ? "$vars"
                                                                   : "";
    const bool is_part = end < action.size() && (action[end] == '-' || action[end] == '[' || action[end] == '$');
    if (!fetch.empty() && !is_part && !name.empty() && std::find(seen.begin(), seen.end(), fetch) == seen.end()) {
      seen.push_back(fetch);
      found += " " + fetch;
    }
    at = std::max(end, begin + 1);
  }
  return found;
}

// What a probe of SystemTap says, part by part.
struct SystemTapProbe {
  std::string object, place;
  bool is_return = false;
};

SystemTapProbe read_systemtap(std::string_view& text) {
  SystemTapProbe probe;
  std::string provider = "*";
  for (bool goes_on = true; goes_on; goes_on = text.starts_with('.')) {
    const Part part = take_part(text);
    if (part.name == "process" || part.name == "library") probe.object = part.value;
    if (part.name == "function" || part.name == "statement") probe.place = place_of_systemtap(part.value);
    if (part.name == "provider") provider = part.value;
    if (part.name == "mark") probe.place = "sdt:" + provider + ":" + std::string(part.value);
    probe.is_return = probe.is_return || part.name == "return";
  }
  return probe;
}

// "char *work(const char *who, int n)": the name before the parenthesis, and the last word of each parameter. A type alone is no
// name.
std::optional<Meant> of_prototype(std::string_view text) {
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  const std::string_view head = trimmed(text.substr(0, open));
  std::size_t begin = head.size();
  while (begin > 0 && is_word(head[begin - 1])) --begin;
  const std::string_view name = head.substr(begin);
  std::string_view inside = text.substr(open + 1, close - open - 1);
  if (!is_name(name) || text.find("::") != std::string_view::npos) return {};
  std::string names;
  while (!inside.empty()) {
    const std::string_view parameter = trimmed(take_until(inside, ","));
    std::size_t last = parameter.size();
    while (last > 0 && is_word(parameter[last - 1])) --last;
    const bool has_name = last != 0 && is_name(parameter.substr(last));
    if (!has_name) return Meant{.places = {std::string(name)}, .problem = {}};
    names += (names.empty() ? "" : ",") + std::string(parameter.substr(last));
  }
  return Meant{.places = {std::string(name) + (names.empty() ? "" : "(" + names + ")")}, .problem = {}};
}

// SystemTap's further probes, which are names of functions of Go too.
std::optional<Meant> of_tapset(std::string_view text) {
  const std::size_t dot = std::min(text.find('.'), text.size());
  const std::string_view kind = text.substr(0, dot);
  static constexpr std::array<std::string_view, 7> kKinds = {"syscall", "nd_syscall", "timer", "vfs",
                                                             "vm",      "scheduler",  "perf"};
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end() || dot == text.size()) return {};
  const std::string_view name = text.substr(dot + 1);
  const bool is_call = kind == "syscall" || kind == "nd_syscall" || kind == "vfs";
  return of_the_kernel(kind, is_call ? std::string(name.substr(0, name.find_first_of(".{ "))) : std::string());
}

// What gdb shows where it has stopped; a hit records it.
std::optional<Meant> of_looks_of_gdb(std::string_view text) {
  const auto after_place = [](std::string_view command, const std::string& place) {
    return Meant{.places = {place}, .problem = "'" + std::string(command) + "' is gdb's: a place comes first"};
  };
  if (text == "info locals") return after_place(text, "FUNCTION $vars");
  if (text == "info args") return after_place(text, "FUNCTION $params");
  if (text == "finish") return after_place(text, spec::at_return("FUNCTION") + " $retval");
  for (const std::string_view command : {"print ", "display ", "inspect "})
    if (text.starts_with(command) && is_name(trimmed(text.substr(command.size()))))
      return after_place(trimmed(command), "FUNCTION " + std::string(trimmed(text.substr(command.size()))));
  return {};
}

}  // namespace

std::optional<Meant> of_dtrace(std::string_view text) {
  Meant all;
  while (!(text = trimmed(text)).empty()) {
    const std::size_t close = std::min(text.find('}'), text.size());
    const auto one = one_of_dtrace(text.substr(0, close));
    text.remove_prefix(std::min(close + 1, text.size()));
    if (!one) continue;
    all.places.insert(all.places.end(), one->places.begin(), one->places.end());
    if (all.problem.empty()) all.problem = one->problem;
    if (all.trigger.empty()) all.trigger = one->trigger;
  }
  if (all.places.empty() && all.problem.empty()) return {};
  if (all.places.size() > 1 && all.problem.empty()) all.problem = "each place needs a -p of its own";
  return all;
}

std::optional<Meant> of_systemtap(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with("probe ")) text = trimmed(text.substr(6));
  for (const std::string_view of_run : {"begin", "end", "error"})  // of the run of a script
    if (const auto rest = trimmed(text.substr(std::min(of_run.size(), text.size())));
        text.starts_with(of_run) && rest.starts_with('{') && rest.find('}') != std::string_view::npos)
      return of_systemtap(rest.substr(rest.find('}') + 1));
  const bool is_process = text.starts_with("process(\"") || text.starts_with("process.function(\"") ||
                          text.starts_with("process.mark(\"") || text.starts_with("process.begin") ||
                          text.starts_with("process.end") || text.starts_with("process.provider(\"") ||
                          text.starts_with("process.statement(\"");
  if (text.starts_with("kernel.") || text.starts_with("module(\"")) {
    const std::size_t quote = text.find('"');
    const std::string_view kind = text.substr(0, text.find_first_of(".("));
    if (quote == std::string_view::npos) return {};
    return of_the_kernel(kind, kind == "kernel" ? system_call(text.substr(quote + 1)) : std::string());
  }
  if (text.starts_with("timer.")) return of_the_kernel("timer", {});
  if (!is_process) return {};
  const SystemTapProbe probe = read_systemtap(text);
  if (const auto further = trimmed(text); further.starts_with(',')) {  // each of a list has the action
    auto rest = of_systemtap(further.substr(1));
    if (!rest || rest->places.empty()) return {};
    const std::string place = probe.object.empty() ? probe.place : probe.object + ":" + probe.place;
    rest->places.insert(rest->places.begin(), probe.is_return ? spec::at_return(place) : place);
    if (rest->problem.empty()) rest->problem = "each place needs a -p of its own";
    return rest;
  }
  if (probe.place.empty())
    return Meant{.places = {}, .problem = "this probe is SystemTap's alone: functions and lines can be probed"};
  std::string place = (probe.object.empty() || is_decimal_number(probe.object) ? "" : probe.object + ":") + probe.place;
  if (probe.is_return) place = spec::at_return(place);
  const std::string_view action = trimmed(text);
  return Meant{.places = {place + fetches_of_systemtap(action)},
               .problem = action.empty() ? std::string() : std::string(kActions)};
}

// A '!' also stands in names of C++ ("operator!=").
std::optional<Meant> of_frida(std::string_view text) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  const std::size_t mark = text.substr(0, blank).find('!');
  if (mark == 0 || mark == std::string_view::npos || mark + 1 >= blank) return {};
  const std::string_view object = text.substr(0, mark);
  const bool is_object =
      object.starts_with('/') || object.starts_with("./") || object.find(".so") != std::string_view::npos;
  const bool is_operator =
      object.find("operator") != std::string_view::npos || object.find_first_of(":(<") != std::string_view::npos;
  if (!is_object || is_operator) return {};
  return Meant{.places = {std::string(object) + ":" + std::string(text.substr(mark + 1))}, .problem = {}};
}

std::optional<Meant> of_dprintf(std::string_view text) {
  constexpr std::string_view kCommand = "dprintf ";
  if (!text.starts_with(kCommand)) return {};
  text.remove_prefix(kCommand.size());
  std::string place(trimmed(take_until(text, ",")));
  take_until(text, "\"");
  take_until(text, "\"");
  for (take_until(text, ","); !text.empty();)
    if (const std::string_view value = trimmed(take_until(text, ",")); is_name(value))
      place += " " + std::string(value);
  return Meant{.places = {std::move(place)}, .problem = {}};
}

// A "%s" of the format makes a string of its argument.
std::optional<Meant> of_bcc(std::string_view text) {
  const std::size_t quote = text.find(" \"");
  std::string_view place = text.substr(0, quote);
  const bool is_return = place.starts_with("r:");
  if (is_return || place.starts_with("p:")) place.remove_prefix(2);
  const std::size_t open = place.find('('), close = place.rfind("):");
  // In a definition a blank stands before the first parenthesis: "p:e libc:open +0(%di):string".
  const bool has_prototype = place.find(':') < open && place.substr(0, open).find(' ') == std::string_view::npos;
  if (quote == std::string_view::npos && close != std::string_view::npos && open < close && has_prototype) {
    const auto function = of_prototype(place.substr(place.find(':') + 1, close - place.find(':')));
    if (!function || place.substr(0, open).find("::") != std::string_view::npos) return {};
    const std::string whole = std::string(place.substr(0, place.find(':') + 1)) + function->places.front();
    const std::string returning = spec::at_return(whole.substr(0, whole.find('('))) + " $retval";
    return Meant{.places = {is_return ? returning : whole}, .problem = std::string(kActions)};
  }
  if (quote == std::string_view::npos || place.find(' ') != std::string_view::npos) return {};
  std::string_view rest = text.substr(quote + 2);
  std::string_view format = take_until(rest, "\"");
  std::string definition = is_return ? spec::at_return(place) : std::string(place);
  for (take_until(rest, ","); !rest.empty();) {
    const std::string_view name = trimmed(take_until(rest, ","));
    take_until(format, "%");
    const bool is_argument = name.size() == 4 && name.starts_with("arg") && name[3] >= '1' && name[3] <= '6';
    if (is_argument || name == "retval")
      definition += " $" + std::string(name) + (format.starts_with('s') ? ":string" : "");
    else if (is_name(name) && !is_return)  // a variable
      definition += " " + std::string(name);
  }
  return Meant{.places = {std::move(definition)}, .problem = std::string(kActions)};
}

std::optional<Meant> meaning_of_unknown(std::string_view text) {
  text = trimmed(text);
  const auto place = [](std::string_view name) { return Meant{.places = {std::string(name)}, .problem = {}}; };
  const bool is_one = text.find(' ') == std::string_view::npos;
  for (const std::string_view before : {"entry:", "function:", "f:", ":", "&", "*"})
    if (is_one && text.starts_with(before)) {
      const std::string_view rest = text.substr(before.size());
      if (is_name(rest) || (before == "*" && rest.starts_with("0x"))) return place(rest);
    }
  constexpr std::string_view kReturn = "return:";
  if (is_one && text.starts_with(kReturn) && is_name(text.substr(kReturn.size())))
    return place(spec::at_return(text.substr(kReturn.size())));
  for (const char between : {'!', '`', '@'}) {  // "zsh!zfree", "zsh`zfree", "zfree@zsh", "malloc@plt"
    const std::size_t at = text.find(between);
    if (!is_one || at == std::string_view::npos || at == 0) continue;
    const std::string_view before = text.substr(0, at), after = text.substr(at + 1);
    if (between == '@' && is_name(before) && after == "plt") return place(before);
    const std::string_view object = between == '@' ? after : before, function = between == '@' ? before : after;
    if (is_name(object) && is_name(function)) return place(std::string(object) + ":" + std::string(function));
  }
  if (is_one && text.ends_with(':') && is_name(text.substr(0, text.size() - 1)))
    return place(text.substr(0, text.size() - 1));
  if (const std::string_view name = text.substr(std::min(text.find(' '), text.size())); is_name(trimmed(name))) {
    const std::string_view head = text.substr(0, text.find(' ')), function = trimmed(name);
    if (head == "return" || head == "ret" || head == "exit") return place(spec::at_return(function));
    if (head == "entry" || head == "function" || head == "func" || head == "on") return place(function);
  }
  const bool is_expression = text.starts_with('^') || text.find(".*") != std::string_view::npos;
  if (is_one && is_expression) {
    if (text.size() > 1 && text.starts_with('/') && text.ends_with('/')) text = text.substr(1, text.size() - 2);
    return place(glob_from_start(text));
  }
  if (auto meant = of_looks_of_gdb(text)) return meant;
  if (text == "begin" || text == "end")
    return Meant{.places = {}, .problem = "'begin' and 'end' are SystemTap's: a trace lasts as long as the program"};
  if (auto meant = of_tapset(text)) return meant;
  return of_prototype(text);
}

}  // namespace uprobe::cli
