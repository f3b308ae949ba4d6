// SPDX-License-Identifier: MIT
// See settle.h.
#include "cli/settle.h"

#include <unistd.h>

#include <algorithm>

#include "cli/calls.h"
#include "cli/output_options.h"
#include "cli/pairs.h"
#include "cli/thinning.h"
#include "cli/usage.h"
#include "engine/base/process_paths.h"

namespace uprobe::cli {

namespace {

// -l takes its GLOB attached (-l'z*'), or as the next word where that cannot be the program: after -x, or if it has glob
// characters and the program follows.
bool lists(const Options& options) {
  return options.mode == Mode::list || options.mode == Mode::lines || options.mode == Mode::variables;
}

// For a list; empty: none.
std::string word_of_file(const Options& options) {
  return !options.object.empty() ? options.object : options.program.empty() ? std::string() : options.program[0];
}

// With -P: a path of the process, or nothing.
Status check_listed(const Options& options) {
  const std::string word = word_of_file(options);
  if (options.attach.pids.empty() || word.empty() || word.starts_with('/')) return ok();
  return usage("with -P a file goes by its path in the process, and '" + word + "' is none",
               "/proc/" + std::to_string(options.attach.pids.front()) + "/maps has the paths");
}

Status settle_list(Options& options) {
  std::vector<std::string>& words = options.program;
  const bool is_place =
      !words.empty() && words[0].find(':') != std::string::npos && ::access(words[0].c_str(), F_OK) != 0;
  if (is_place) return usage("-l takes a program, or a file with -x, and no '" + words[0] + "'");
  const bool is_attached = !options.attach.pids.empty();
  const bool is_glob =
      (words.size() > 1 || is_attached) && !words.empty() && words[0].find_first_of("*?[") != std::string::npos;
  if (options.list_glob.empty() && !words.empty() && (is_glob || !options.object.empty())) {
    options.list_glob = words[0];
    words.erase(words.begin());
  }
  if (!options.object.empty() && !words.empty())
    return usage("-l lists either -x " + options.object + " or the program '" + words[0] + "'", "drop one of them");
  if (options.object.empty() && words.empty() && !is_attached)
    return usage("-l needs a program, or a file with -x", "e.g. uprobe-run -l'z*' /bin/zsh");
  return check_listed(options);
}

const char* spelling(CommandKind kind) {
  switch (kind) {
    case CommandKind::remove:
      return "--remove";
    case CommandKind::disable:
      return "--disable";
    case CommandKind::enable:
      return "--enable";
    case CommandKind::reset:
      return "--reset";
    case CommandKind::info:
      return "--info";
    case CommandKind::stats:
      return "--stats";
    case CommandKind::clear:
      return "--clear";
    default:
      return nullptr;  // also has a meaning without --control
  }
}

// --disable, --enable, --reset and --info take their event attached, or as the last word.
Status settle_control(Options& options) {
  if (options.mode != Mode::trace && options.mode != Mode::list)
    return usage("--control changes a session, and --dry-run, --check, --list-events and --format-file run nothing");
  if (!options.session_name.empty()) return usage("--session names a new session, --control a running one");
  options.mode = Mode::control;
  if (sums_calls(options)) {
    if (!options.commands.empty())
      return usage("--summary asks a session for its table, and no other command goes with it");
    options.commands.push_back({.kind = CommandKind::summary});
  }
  if (options.commands.empty())
    return usage("--control needs something to do",
                 "-p, --remove, --disable, --enable, --list, --stats, --summary or --clear");
  ControlCommand& last = options.commands.back();
  const bool takes_event = last.kind == CommandKind::disable || last.kind == CommandKind::enable ||
                           last.kind == CommandKind::reset || last.kind == CommandKind::info;
  if (takes_event && last.name.empty() && options.program.size() == 1) {
    last.name = options.program[0];
    options.program.clear();
  }
  if (attaches(options)) return usage("--control changes a session: it attaches to no process");
  if (!options.program.empty()) return usage("--control takes no program (found '" + options.program[0] + "')");
  if (!options.list_glob.empty()) return usage("with --control --list takes no pattern");
  return ok();
}

Status settle_attach(const Options& options) {
  const Selection& whom = options.attach;
  if (whom.waits && whom.names.empty() && whom.objects.empty())
    return usage("--wait needs a name or a file to wait for", "--comm NAME or --object FILE");
  if (!attaches(options)) return ok();
  const std::string search = !whom.names.empty() ? "--comm" : !whom.objects.empty() ? "--object" : "";
  const std::string option = whom.pids.empty() ? search : "-P";
  const bool looks = lists(options) || options.mode == Mode::dry_run || options.mode == Mode::explain;
  if (looks && !search.empty())
    return usage("a process is looked at by its number, and not by " + search, "give it with -P");
  if (lists(options)) return ok();
  if (!looks && options.mode != Mode::trace)
    return usage(option + " does not go with --check, --list-events and --format-file, which run nothing");
  if (options.program.empty()) return ok();
  return usage(option + " attaches to running processes, and '" + options.program[0] + "' would be started",
               "drop one of them");
}

Status settle_doctor(const Options& options) {
  const Selection& whom = options.attach;
  if (options.sources.empty() && options.program.empty() && whom.names.empty() && whom.objects.empty()) return ok();
  return usage("--doctor looks at this machine, and with -P at processes; it traces nothing",
               "e.g. uprobe-run --doctor -P 812");
}

Status settle_rings(const Options& options) {
  if (options.ring_socket.empty()) return ok();
  if (options.mode != Mode::trace || !options.control.empty())
    return usage("--export-rings is for hits that are recorded, and this call records none");
  if (options.calls == CallSums::alone)
    return usage("--export-rings shows the hits that are recorded, and -c and --top record none", "-C");
  return ok();
}

// Looks among the program's own arguments.
bool has_probe_option(const std::vector<std::string>& program) {
  const auto is_one = [](const std::string& word) {
    return word == "-p" || word == "-r" || word == "--probe" || word.starts_with("--probe=");
  };
  return program.size() > 1 && std::any_of(program.begin() + 1, program.end(), is_one);
}

}  // namespace

std::string listed_object(const Options& options) {
  const std::vector<int>& pids = options.attach.pids;
  std::string word = word_of_file(options);
  if (pids.empty()) return word;
  return word.empty() ? program_of(pids.front()).path : file_of_process(pids.front(), word);
}

bool attaches(const Options& options) {
  const Selection& whom = options.attach;
  return !whom.pids.empty() || !whom.names.empty() || !whom.objects.empty();
}

bool records(const Options& options) { return !options.record.empty(); }

bool is_for_a_run(const Options& options) {
  const bool runs = options.mode == Mode::trace || options.mode == Mode::dry_run || options.mode == Mode::explain;
  return runs && options.control.empty();
}

Status settle(Options& options) {
  if (options.allows_change && options.strict)
    return usage("--allow-change does not go with --strict, which has the kernel's language alone");
  if (options.string_limit && options.strict)
    return usage("-s does not go with --strict, which has the kernel's limits of strings");
  RETURN_IF_ERROR(settle_pairs(options));
  RETURN_IF_ERROR(settle_calls(options));
  RETURN_IF_ERROR(settle_rings(options));
  RETURN_IF_ERROR(settle_thinning(options));
  if (!options.control.empty() && options.daemonize) return usage("-D is for a program that is started, and none is");
  if (!options.control.empty()) return settle_control(options);
  for (const ControlCommand& command : options.commands)
    if (const char* name = spelling(command.kind)) return usage(std::string(name) + " needs --control SESSION");
  if (options.mode == Mode::doctor) return settle_doctor(options);
  if (options.mode == Mode::replay) {
    RETURN_IF_ERROR(settle_pictures(options));
    return settle_replay(options);
  }
  RETURN_IF_ERROR(refuse_replays(options));
  RETURN_IF_ERROR(settle_attach(options));
  RETURN_IF_ERROR(settle_recording(options));
  RETURN_IF_ERROR(settle_daemonize(options));
  RETURN_IF_ERROR(settle_output(options));
  RETURN_IF_ERROR(settle_pictures(options));
  if (options.mode == Mode::list) return settle_list(options);
  if (lists(options)) {
    if (word_of_file(options).empty() && options.attach.pids.empty())
      return usage("--lines and --vars need a program, or a file with -x", "e.g. uprobe-run --vars=main ./prog");
    return check_listed(options);
  }
  if (options.json && options.mode != Mode::check && !sums_calls(options) && !options.finds_leaks && options.pairs == 0)
    return usage("--json prints the answer of --check, the table of -c or the report of --leak, and all are missing",
                 "hits are printed so by --format=json");
  if (options.sources.empty() && has_probe_option(options.program))
    return usage("options go before the program '" + options.program[0] + "'",
                 "e.g. uprobe-run -p DEF " + options.program[0]);
  if (options.sources.empty())
    return usage("no probe is defined: -p or -i is missing",
                 "e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'");
  if (options.mode == Mode::trace && options.program.empty() && !attaches(options))
    return usage("no program to run", "e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'");
  return ok();
}

}  // namespace uprobe::cli
