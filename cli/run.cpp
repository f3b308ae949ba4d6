// SPDX-License-Identifier: MIT
// One call from start to end. See run.h.
#include "cli/run.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "cli/call.h"
#include "cli/calls.h"
#include "cli/check.h"
#include "cli/daemonize.h"
#include "cli/diagnostics.h"
#include "cli/doctor.h"
#include "cli/dry_run.h"
#include "cli/explain.h"
#include "cli/follow.h"
#include "cli/foreign_commands.h"
#include "cli/foreign_places.h"
#include "cli/foreign_probes.h"
#include "cli/help.h"
#include "cli/launcher.h"
#include "cli/live_control.h"
#include "cli/options.h"
#include "cli/output_options.h"
#include "cli/pairs.h"
#include "cli/probes_file.h"
#include "cli/replay.h"
#include "cli/skip_refused.h"
#include "cli/slips.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "cli/thinning.h"
#include "cli/top.h"
#include "cli/version.h"
#include "engine/base/debuginfod.h"
#include "engine/base/process_paths.h"
#include "engine/facts/kept_facts.h"

namespace uprobe::cli {

namespace {

// The search for further bad definitions prepares each one alone, which is cheap for definitions that people type, not for a
// whole symbol table.
constexpr std::size_t kCheckedAlone = 64;
constexpr std::size_t kShownProblems = 10;

// What debuginfod fetches may take a while: a line says it.
class TellsFetches {
 public:
  explicit TellsFetches(const Call& call) {
    if (!call.options.quiet)
      debuginfod::tell_fetches([&call](const std::string& line) { call.diagnostics.line(line); });
  }
  TellsFetches(const TellsFetches&) = delete;
  TellsFetches& operator=(const TellsFetches&) = delete;
  ~TellsFetches() { debuginfod::tell_fetches({}); }
};

IsProgram programs_of(Engine& engine) {
  return [&engine](const std::string& word) { return static_cast<bool>(engine.find_program(word)); };
}

struct Problem {
  Error error;
  Context context;
};

// The option with the mistake, if the mistake is not in the definition itself.
std::optional<Context> option_context(const Error& error, const Definition& definition) {
  if (error.where.empty()) return std::nullopt;
  if (definition.filter && definition.filter->starts_with(error.where)) return Context{"--filter", *definition.filter};
  for (const std::string& trigger : definition.triggers)
    if (trigger == error.where) return Context{"--trigger", trigger};
  return std::nullopt;
}

Context context_of(const Error& error, const Definitions& definitions) {
  for (const Definition& definition : definitions.list)
    if (const auto option = option_context(error, definition)) return *option;
  const auto number = static_cast<std::size_t>(definitions.list.size() == 1 ? 0 : error.definition);
  if (number >= definitions.list.size()) return {};
  return {definitions.places[number], definitions.list[number].text};
}

bool same(const Error& a, const Error& b) { return a.text == b.text && a.where == b.where && a.column == b.column; }

// A deletion has a meaning only after other definitions.
bool is_deletion(const Definition& definition) {
  const std::size_t first = definition.text.find_first_not_of(" \t");
  return first != std::string::npos && definition.text[first] == '-';
}

// All mistakes that can be found cheaply. `first` is among them even when each definition alone is fine (two events of one
// name).
std::vector<Problem> problems(Engine& engine, const SessionOptions& options, const Definitions& definitions,
                              const Error& first) {
  std::vector<Problem> found;
  const bool many = definitions.list.size() > 1 && definitions.list.size() <= kCheckedAlone;
  for (std::size_t i = 0; many && i < definitions.list.size(); ++i) {
    if (is_deletion(definitions.list[i])) continue;
    SessionOptions alone = options;
    alone.definitions = {definitions.list[i]};
    alone.definitions[0].triggers.clear();  // they may name other events
    alone.counters.clear();                 // likewise
    const Status checked = engine.check(alone);
    if (checked) continue;
    const auto option = option_context(checked.error(), definitions.list[i]);
    found.push_back({checked.error(), option.value_or(Context{definitions.places[i], definitions.list[i].text})});
  }
  const auto again = [&](const Problem& problem) { return same(problem.error, first); };
  if (std::none_of(found.begin(), found.end(), again))
    found.insert(found.begin(), {first, context_of(first, definitions)});
  return found;
}

// A function that a program has which the traced one executes.
std::string place_elsewhere(const Call& call, const std::string& function) {
  return place_in_executed(function, call.options.program, [&](const std::string& path, const std::string& name) {
    const auto lines = call.engine.list_functions(path, name);
    return lines && !lines->empty();
  });
}

// What was not found may be in another tool's words, or nearly right, or in another program.
Error with_meaning(const Call& call, Error error, const std::string& definition) {
  if (error.code != Code::not_found && !error.help.empty()) return error;
  if (const std::string place = place_elsewhere(call, definition); !place.empty())
    return error.help = "it is in a program that " + call.options.program[0] + " executes: -p " + quoted(place), error;
  auto meant = meaning_of_slip(definition);
  if (!meant) meant = meaning_of_unknown(definition);
  if (meant && !meant->problem.empty()) error.text = meant->problem;
  if (meant && !meant->places.empty()) error.help = as_line(options_for(*meant));
  return error;
}

void show(const Call& call, const std::vector<Problem>& found) {
  const std::size_t shown = std::min(found.size(), kShownProblems);
  for (std::size_t i = 0; i < shown; ++i)
    call.diagnostics.error(with_meaning(call, found[i].error, found[i].context.definition), found[i].context);
  if (shown == found.size()) return;
  call.diagnostics.line("and " + counted(found.size() - shown, "more bad definition", "more bad definitions"));
}

// What cannot be read of a process explains what was not found there.
Error cause_of(const Call& call, const Error& error) {
  for (const int pid : call.options.attach.pids)
    if (const Status readable = call.engine.check_readable(pid); !readable) return readable.error();
  return error;
}

Outcome list(const Call& call) {
  std::string object = listed_object(call.options);
  if (call.options.object.empty() && call.options.attach.pids.empty()) {
    Result<std::string> program = call.engine.find_program(call.options.program[0]);
    if (!program) {
      Error error = program.error();
      if (call.options.program[0].find(".so") != std::string::npos)
        error.help = "a library is listed by -x " + call.options.program[0];
      if (error.help.empty() && call.options.program.size() > 1)
        error.help = "to list only some functions, attach the pattern: -l'" + call.options.program[0] + "'";
      return fail(call, error, exit_code_of_launch(error));
    }
    object = program.take();
  }
  const auto lines = call.engine.list_functions(object, call.options.list_glob);
  if (!lines) return fail(call, cause_of(call, lines.error()));
  std::string text;
  for (const std::string& line : *lines) text += escape(line) + "\n";
  if (lines->empty()) {
    const std::string& glob = call.options.list_glob;
    call.diagnostics.line(object +
                          (glob.starts_with("sdt:") || glob.starts_with("mark:") ? ": no marker" : ": no function") +
                          (glob.empty() ? " can be probed by name" : " matches '" + glob + "'"));
  }
  return print(call, text);
}

// Of the file of -x, or of the program.
Outcome list_source(const Call& call) {
  const Options& options = call.options;
  const auto what = options.mode == Mode::lines ? SourceList::lines : SourceList::variables;
  const auto lines = call.engine.list_source(listed_object(options), options.function, what);
  if (!lines) return fail(call, cause_of(call, lines.error()));
  std::string text;
  for (const std::string& line : *lines) text += escape(line) + "\n";
  return print(call, text);
}

// Definitions without an object belong to the program that will run, or to the first process that is attached to, whose files are
// reached by its own paths.
std::vector<ProbeSource> sources_of(const Call& call) {
  std::vector<ProbeSource> sources = call.options.sources;
  const std::vector<int>& pids = call.options.attach.pids;
  for (ProbeSource& source : sources)
    if (!pids.empty()) source.default_object = file_of_process(pids.front(), source.default_object);
  if (call.options.program.empty()) return sources;
  const Result<std::string> program = call.engine.find_program(call.options.program[0]);
  for (ProbeSource& source : sources)
    if (program && source.default_object.empty()) source.default_object = *program;
  return sources;
}

// A process that is released must get back everything that was changed in it, which is impossible for return stubs.
plan::ReturnMode returns_for(const Options& options) {
  const bool chosen = !attaches(options) || options.returns != plan::ReturnMode::automatic;
  return chosen ? options.returns : plan::ReturnMode::exits;
}

bool prepare(const Call& call) {
  if (const Status known = check_clock(call.options); !known) {
    call.diagnostics.error(known.error());
    return false;
  }
  if (const Status checked = check_definitions(call.options); !checked) {
    call.diagnostics.error(checked.error());
    return false;
  }
  Result<Definitions> definitions = gather_definitions(sources_of(call), call.streams.in);
  if (!definitions) {
    call.diagnostics.error(with_translation(definitions.error(), call.arguments, programs_of(call.engine)));
    return false;
  }
  if (call.options.stacks) add_stacks(*definitions);
  if (sums_calls(call.options)) add_sums(*definitions, records_calls(call.options));
  SessionOptions options;
  options.definitions = definitions->list;
  options.ring_bytes = call.options.ring_bytes;
  options.patience = call.options.overflow.patience;
  options.string_limit = call.options.string_limit.value_or(options.string_limit);
  options.strict = call.options.strict;
  options.force = call.options.force;
  options.allows_change = call.options.allows_change;
  options.tier = call.options.tier;
  options.returns = returns_for(call.options);
  options.thinning = thinning_of(call.options);
  options.style = call.options.style;
  options.counters = call.options.counters;
  options.sums_by_process = call.options.summary_by_process;
  options.has_fixed_fields = has_fixed_fields(call.options);
  options.notes_mappings = records(call.options);
  options.has_socket = options.has_guardian = true;
  options.joins_others = call.options.joins_others;
  options.known_as = visible_pid();
  if (call.options.daemonize) {
    options.waiting = waiting_process();
    options.known_as = options.waiting->pid;
    options.waiting->give_up = [&call](const Error& error) {
      call.diagnostics.error(error);
      return exit_code_of_launch(error);
    };
  }
  options.name = call.options.session_name;
  options.ring_socket = call.options.ring_socket;
  const Preparer preparer{.prepare = [&](const SessionOptions& these) { return call.engine.prepare(these); },
                          .report = [&] { return call.engine.report({}); }};
  choose_allocators(options, *definitions, preparer);
  if (call.options.skip_refused) {
    std::vector<std::string> places = definitions->places;
    const auto try_these = [&](const SessionOptions& these) { return call.engine.prepare(these); };
    const Status rest = prepare_others(options, places, try_these, call.diagnostics);
    if (!rest) call.diagnostics.error(rest.error());
    return static_cast<bool>(rest);
  }
  const Status prepared = prepare_pairs(options, *definitions, preparer, call.diagnostics);
  if (prepared) return true;
  if (prepared.error().where.starts_with("--counter=")) return call.diagnostics.error(prepared.error()), false;
  if (const Error cause = cause_of(call, prepared.error()); !same(cause, prepared.error()))
    return call.diagnostics.error(cause), false;
  const std::vector<Problem> found = problems(call.engine, options, *definitions, prepared.error());
  show(call, found);
  const auto is_refused = [](const Problem& problem) {
    return problem.error.code == Code::refused && !problem.error.where.empty();
  };
  if (found.size() < definitions->list.size() && std::all_of(found.begin(), found.end(), is_refused))
    call.diagnostics.line("--skip-refused arms the other definitions");
  return false;
}

// Reports the mistake as usual, and notes if the kernel would refuse it without a message.
Outcome refuse(const Call& call, const CheckReport& report, const Definitions& writes) {
  Error error = *report.error;
  if (call.options.strict && !report.is_kernels)
    error.help += std::string(error.help.empty() ? "" : "; ") + "the kernel refuses this without a message";
  if (!report.option.empty()) return call.diagnostics.error(error, {report.option, error.where}), kFailed;
  const bool is_file = call.options.sources[report.write].kind == ProbeSource::Kind::file;
  call.diagnostics.error(
      error, {writes.places[report.write] + (is_file ? ":" + std::to_string(report.line) : ""), error.where});
  return kFailed;
}

Outcome check(const Call& call) {
  const Options& options = call.options;
  if (const Status checked = check_definitions(options); !checked && options.mode != Mode::check)
    return fail(call, checked.error());
  const Result<Definitions> writes = gather_writes(sources_of(call), call.streams.in);
  if (!writes) return fail(call, writes.error());
  const CheckReport report = call.engine.define(writes->list, {options.strict, options.style});
  for (const std::string& note : report.notes) call.diagnostics.line(note);
  if (options.json) {
    const Outcome printed = print(call, render_check_json(report, options.strict));
    return report.error ? kFailed : printed;
  }
  if (report.error) return refuse(call, report, *writes);
  return print(call, options.mode == Mode::format_file ? render_formats(report) : render_listing(report));
}

Outcome doctor(const Call& call) {
  const std::vector<Finding> findings = call.engine.examine(call.options.attach);
  const Outcome printed = print(call, render_findings(findings));
  return any_bad(findings) ? kFailed : printed;
}

Outcome dry_run(const Call& call) {
  if (!call.options.program.empty())
    if (const auto program = call.engine.find_program(call.options.program[0]); !program)
      return fail(call, program.error(), exit_code_of_launch(program.error()));
  for (const int pid : call.options.attach.pids)
    if (const Status readable = call.engine.check_readable(pid); !readable) return fail(call, readable.error());
  if (!prepare(call)) return kFailed;
  const std::vector<PlanReport> reports = call.engine.report(call.options.attach.pids);
  const bool explains = call.options.mode == Mode::explain;
  const Outcome printed = print(call, explains ? render_explanation(reports) : render_plan(reports));
  for (const std::string& note : call.engine.summary().notes) call.diagnostics.line(note);
  return any_refused(reports) ? kFailed : printed;
}

void explain(const Call& call) {
  if (call.options.verbosity == 0) return;
  const std::vector<PlanReport> reports = call.engine.report(call.options.attach.pids);
  if (call.options.verbosity > 1) return call.diagnostics.print(render_plan(reports));
  for (const PlanReport& report : reports) call.diagnostics.line(plan_line(report));
}

Outcome outcome_of(const Ending& ending) {
  return ending.signalled ? Outcome{0, ending.code} : Outcome{ending.code, 0};
}

void tell_ending(const Call& call, const Ending& ending) {
  if (call.options.verbosity == 0) return;
  const std::string how = ending.signalled ? "was killed by signal " : "exited with code ";
  call.diagnostics.line("the program " + how + std::to_string(ending.code));
}

void tell_beginning(const Call& call) {
  if (call.options.verbosity == 0) return;
  call.diagnostics.line("tracing " + call.options.program[0] + ", PID " + std::to_string(call.engine.child_pid()));
}

// With -c its table has said what each probe would.
std::string summary_text(const Call& call) {
  Summary summary = call.engine.summary();
  if (!records_calls(call.options)) summary.probes.clear();
  return render_summary(summary, call.diagnostics.color(), call.options.verbosity > 0);
}

// After the launch the program's fate decides how the tool ends, whatever happens to the trace.
Outcome launch_and_follow(const Call& call, Sinks& sinks) {
  Signals signals;
  if (call.options.reopens) signals.reopen_at_hangup();
  const Status launched = call.engine.launch(call.options.program);
  if (!launched) return fail(call, launched.error(), exit_code_of_launch(launched.error()));
  const int pid = call.engine.child_pid();
  signals.child_started(pid);
  tell_beginning(call);
  const Status named = sinks.child_started(pid);
  if (!named) call.diagnostics.error(named.error());

  const Result<Ending> ending = follow(call, sinks, signals);
  sinks.finish(call);
  if (call.options.profile) call.diagnostics.print(render_profile(call.engine.summary()));
  if (!call.options.quiet) call.diagnostics.print(summary_text(call));
  if (!ending) return fail(call, ending.error());
  tell_ending(call, *ending);
  return outcome_of(*ending);
}

// The part of the summary for a user who gets no messages any more: what was asked for, and losses.
std::string last_words(const Call& call) {
  if (!takes_text(call.options)) return {};
  const Summary summary = call.engine.summary();
  std::string text = call.options.profile ? render_profile(summary) : "";
  const bool is_told = call.options.verbosity > 0 || has_losses(summary);
  if (is_told && !call.options.quiet) text += render_summary(summary, false, call.options.verbosity > 0);
  return as_comments(text);
}

// The program's end concerns only its parent, so the tool does not pass it on.
Outcome follow_daemonized(const Call& call, Sinks& sinks) {
  step_aside();
  const std::string restriction = restriction_on_children();
  if (!restriction.empty() && !call.options.quiet) call.diagnostics.line(restriction);
  Signals signals;
  if (call.options.reopens) signals.reopen_at_hangup();
  signals.no_program();
  const Status launched = call.engine.launch(call.options.program);
  if (!launched && launched.error().code == Code::killed) return {};
  if (!launched) return fail(call, launched.error(), exit_code_of_launch(launched.error()));
  tell_beginning(call);
  const Status named = sinks.child_started(call.engine.child_pid());
  if (!named) call.diagnostics.error(named.error());
  fall_silent();
  static_cast<void>(follow(call, sinks, signals));
  sinks.finish(call, last_words(call));
  call.engine.let_program_end();
  return {};
}

void tell_end_of_attached(const Call& call, const Ending& ending) {
  if (ending.detached) return;
  const Selection& whom = call.options.attach;
  call.diagnostics.line(names_one(whom) ? "the process has ended" : "the processes have ended");
}

Outcome attach_and_follow(const Call& call, Sinks& sinks) {
  Signals signals;
  if (call.options.reopens) signals.reopen_at_hangup();
  show_tables_at_signal(call, signals);  // before the first line that tells of the session: it would end it
  signals.attaching();
  Selection whom = call.options.attach;
  if (!call.options.quiet) whom.tell = [&call](const std::string& text) { call.diagnostics.line(text); };
  const Status attached = call.engine.attach(whom, [&] { return signals.detach_requested(); });
  if (!attached && attached.error().code == Code::killed && signals.detach_requested()) return {};
  if (!attached) return fail(call, attached.error());
  if (call.options.verbosity > 0) call.diagnostics.line("attached");
  const Status named = sinks.child_started(whom.pids.empty() ? visible_pid() : whom.pids.front());
  if (!named) call.diagnostics.error(named.error());

  const Result<Ending> ending = follow(call, sinks, signals);
  sinks.finish(call);
  if (ending) tell_end_of_attached(call, *ending);
  if (!call.options.quiet) call.diagnostics.print(summary_text(call));
  const Outcome outcome = ending ? Outcome{} : fail(call, ending.error());
  if (call.engine.has_clients()) {
    leave_launcher(outcome);
    call.engine.serve_clients();
  }
  return outcome;
}

// The trace may use standard output, because the tool has not started the program.
Outcome attach(const Call& call) {
  if (!prepare(call)) return kFailed;
  Result<Sinks> sinks = Sinks::open(call.options.output.empty() ? "-" : call.options.output, call);
  if (!sinks) return fail(call, sinks.error());
  explain(call);
  return attach_and_follow(call, *sinks);
}

Outcome trace(const Call& call) {
  if (call.options.top)
    if (const Status shown = TopView::check(call.streams); !shown) return fail(call, shown.error());
  if (attaches(call.options)) return attach(call);
  const Result<std::string> program = call.engine.find_program(call.options.program[0]);
  if (!program) return fail(call, program.error(), exit_code_of_launch(program.error()));
  if (!prepare(call)) return kFailed;
  Result<Sinks> sinks = Sinks::open(call.options.output, call);
  if (!sinks) return fail(call, sinks.error());
  explain(call);
  return call.options.daemonize ? follow_daemonized(call, *sinks) : launch_and_follow(call, *sinks);
}

}  // namespace

int exit_code_of_launch(const Error& error) {
  if (error.code == Code::not_found) return kExitNotFound;
  if (error.code == Code::not_executable) return kExitNotExecutable;
  return kExitFailure;
}

Outcome run_cli(const std::vector<std::string>& arguments, Engine& engine, const Streams& streams) {
  Result<Options> options = parse_options(arguments);
  const ColorMode color = options ? options->color : early_color(arguments);
  const Diagnostics diagnostics(streams.err, use_color(color, streams.err));
  if (!options) {
    diagnostics.error(with_translation(options.error(), arguments, programs_of(engine)));
    return kFailed;
  }
  const Call call{options.take(), engine, streams, diagnostics, arguments};
  const TellsFetches tells(call);
  if (!call.options.no_cache) facts::keep_facts();
  switch (call.options.mode) {
    case Mode::help:
      return print(call, help_text());
    case Mode::version:
      return print(call, version_text(engine.find_agent()));
    case Mode::list:
      return list(call);
    case Mode::lines:
    case Mode::variables:
      return list_source(call);
    case Mode::dry_run:
    case Mode::explain:
      return dry_run(call);
    case Mode::doctor:
      return doctor(call);
    case Mode::check:
    case Mode::list_events:
    case Mode::format_file:
      return check(call);
    case Mode::replay:
      return replay(call);
    case Mode::control:
      return control(call);
    case Mode::trace:
      return trace(call);
  }
  return kFailed;
}

}  // namespace uprobe::cli
