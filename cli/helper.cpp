// SPDX-License-Identifier: MIT
// See helper.h. Reports bad variables and definitions once, on the program's stderr; the program then runs unprobed.
#include "cli/helper.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "cli/diagnostics.h"
#include "cli/dry_run.h"
#include "cli/inheritance.h"
#include "cli/output.h"
#include "cli/probes_file.h"
#include "cli/run.h"
#include "cli/skip_refused.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "cli/values.h"
#include "engine/base/procfs.h"
#include "engine/inject/preloaded.h"

namespace uprobe::cli {
namespace {

constexpr const char* kProbes = "UPROBE_PROBES";
constexpr const char* kProbesFile = "UPROBE_PROBES_FILE";
constexpr const char* kOutput = "UPROBE_OUTPUT";
constexpr const char* kRecord = "UPROBE_RECORD";
constexpr const char* kBufferSize = "UPROBE_BUFFER_SIZE";
constexpr const char* kStringLimit = "UPROBE_STRING_LIMIT";
constexpr const char* kVerbose = "UPROBE_VERBOSE";
constexpr const char* kTier = "UPROBE_TIER";
constexpr const char* kReturn = "UPROBE_RETURN";
constexpr const char* kRawStrings = "UPROBE_RAW_STRINGS";
constexpr const char* kSkipRefused = "UPROBE_SKIP_REFUSED";
constexpr const char* kDisable = "UPROBE_DISABLE";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// A misspelt variable would be a setting without effect.
void tell_unknown_variables(const Diagnostics& diagnostics) {
  static const std::vector<std::string> kVariables = {kProbes,     kProbesFile,  kOutput,      kRecord,
                                                      kBufferSize, kStringLimit, kVerbose,     kTier,
                                                      kReturn,     kRawStrings,  kSkipRefused, kDisable};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("UPROBE_") || std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end())
      continue;
    const std::string close = nearest(name, kVariables);
    diagnostics.line("unknown variable " + name + (close.empty() ? "" : ": did you mean " + close + "?"));
  }
}

struct Settings {
  SessionOptions session;
  std::vector<std::string> places;  // one per definition, for messages
  std::string output;
  bool records = false;  // the output is a recording
  int verbosity = 0;
  bool raw_strings = false;
  bool skips_refused = false;
};

Error bad_variable(const char* name, std::string text) {
  return Error{.code = Code::usage, .text = std::move(text), .where = name};
}

// The end of the definition at `at`: a newline, or a semicolon outside the quotes of its condition.
std::size_t end_of_definition(const std::string& text, std::size_t at) {
  const std::size_t condition = text.find(" if ", at);
  for (char quote = '\0'; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n' || (c == ';' && quote == '\0')) return at;
    if (at < condition) continue;
    if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = '\0';
  }
  return at;
}

// Definitions are separated by newlines or semicolons, as in the kernel's boot parameter. Those without an object belong to the
// program.
std::vector<ProbeSource> sources(const std::string& program) {
  std::vector<ProbeSource> found;
  const std::string text = variable(kProbes);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_definition(text, at);
    const std::string one = text.substr(at, end - at);
    const std::size_t first = one.find_first_not_of(" \t\r");
    if (first != std::string::npos && one[first] != '#')
      found.push_back({ProbeSource::Kind::definition, one.substr(first), program});
    at = end + 1;
  }
  if (const std::string file = variable(kProbesFile); !file.empty())
    found.push_back({ProbeSource::Kind::file, file, program});
  return found;
}

Result<Settings> settings(pid_t pid) {
  Settings result;
  auto definitions = gather_definitions(sources(procfs::link(pid, "exe")), STDIN_FILENO);
  if (!definitions) return definitions.error();
  result.session.definitions = std::move(definitions->list);
  for (const std::string& place : definitions->places) result.places.push_back(place == "-p" ? kProbes : place);
  if (const std::string size = variable(kBufferSize); !size.empty()) {
    const auto bytes = parse_ring_size(size);
    if (!bytes) return bad_variable(kBufferSize, bytes.error().text);
    result.session.ring_bytes = *bytes;
  }
  if (const std::string limit = variable(kStringLimit); !limit.empty()) {
    const auto bytes = parse_string_limit(limit);
    if (!bytes) return bad_variable(kStringLimit, bytes.error().text);
    result.session.string_limit = *bytes;
  }
  if (const std::string tier = variable(kTier); !tier.empty()) {
    const auto chosen = parse_tier(tier);
    if (!chosen) return bad_variable(kTier, chosen.error().text);
    result.session.tier = *chosen;
  }
  if (const std::string mode = variable(kReturn); !mode.empty()) {
    const auto chosen = parse_return_mode(mode);
    if (!chosen) return bad_variable(kReturn, chosen.error().text);
    result.session.returns = *chosen;
  }
  const std::string skip = variable(kSkipRefused);
  if (!skip.empty() && skip != "0" && skip != "1") return bad_variable(kSkipRefused, "must be 0 or 1");
  result.skips_refused = skip == "1";
  const std::string verbose = variable(kVerbose);
  if (verbose.size() > 1 || (!verbose.empty() && (verbose[0] < '0' || verbose[0] > '2')))
    return bad_variable(kVerbose, "must be 0, 1 or 2");
  result.verbosity = verbose.empty() ? 0 : verbose[0] - '0';
  const std::string raw = variable(kRawStrings);
  if (raw.size() > 1 || (!raw.empty() && raw != "0" && raw != "1")) return bad_variable(kRawStrings, "must be 0 or 1");
  result.raw_strings = raw == "1";
  result.output = variable(kOutput);
  if (result.output == "-") return bad_variable(kOutput, "must be a file: standard output is the program's");
  if (const std::string record = variable(kRecord); !record.empty()) {
    if (!result.output.empty()) return bad_variable(kRecord, std::string("does not go with ") + kOutput);
    if (record == "-") return bad_variable(kRecord, "must be a file: standard output is the program's");
    result.output = record, result.records = true;
  }
  return result;
}

Context context_of(const Error& error, const Settings& from) {
  const auto number = static_cast<std::size_t>(error.definition);
  if (number >= from.places.size()) return {};
  return {from.places[number], from.session.definitions[number].text};
}

// The destination of the trace: appended to a file that other processes may be appending to, or standard error.
class Appender {
 public:
  static Result<Appender> open(const std::string& pattern, pid_t pid) {
    Appender to;
    if (pattern.empty()) return to;
    const std::string name = expand_pid(pattern, std::to_string(pid));
    auto opened = open_output(name, OpenMode::append);
    if (!opened) return opened.error();
    to.file_ = std::move(opened->file);
    return to;
  }

  bool is_stderr() const { return !file_; }
  // A recording is of one session, and has a file of its own. The lock is held to the end.
  Status take_alone(const std::string& pattern) {
    struct stat status {};
    const bool is_free = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
    if (is_free && ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0) return ok();
    return Error{.code = Code::refused,
                 .text = "is not an empty file: a recording is of one session",
                 .where = std::string(kRecord) + "=" + pattern,
                 .help = "%p in the name is the process id"};
  }
  bool is_terminal() const { return ::isatty(descriptor()) == 1; }
  // Whether the file still lacks the header. If so, the lock is held until the next write, so that no other process writes it.
  bool wants_header() {
    struct stat status {};
    if (is_stderr()) return true;
    lock();
    const bool empty = ::fstat(file_.get(), &status) == 0 && status.st_size == 0;
    if (!empty) ::flock(file_.get(), LOCK_UN);
    return empty;
  }
  // Returns 0 or an errno.
  int write(std::string_view text) {
    const int error = write_patiently(descriptor(), text);
    if (file_) ::flock(file_.get(), LOCK_UN);
    return error;
  }
  int write_record(std::string_view bytes) { return write_patiently(descriptor(), bytes); }

 private:
  // Gives up after a while, because another process may hold the lock for any time.
  void lock() {
    constexpr int kMostLooks = 100;
    constexpr useconds_t kMoment = 10'000;
    for (int looks = 0; ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && looks < kMostLooks; ++looks) ::usleep(kMoment);
  }
  int descriptor() const { return file_ ? file_.get() : STDERR_FILENO; }
  Fd file_;
};

// After this a reader of the program's stderr waits for the program alone, and the working folder can be unmounted.
void let_go_of_streams() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) ::dup2(null.get(), STDERR_FILENO);
}

// In a file each line is a comment.
void write_summary(const Summary& summary, int verbosity, Appender& output) {
  if (verbosity == 0 && !has_losses(summary)) return;
  const std::string text = render_summary(summary, false, verbosity > 0);
  static_cast<void>(output.write(output.is_stderr() ? text : as_comments(text)));
}

struct Helper {
  const Diagnostics& diagnostics;
  control::Preloaded& program;
  Settings settings;
};

int serve(Helper& helper) {
  const auto fail = [&](const Error& error) {
    helper.diagnostics.error(error, context_of(error, helper.settings));
    return kExitFailure;
  };
  std::optional<Session> session;
  const auto prepare = [&](const SessionOptions& options) -> Status {
    auto prepared = Session::prepare(options);
    if (!prepared) return prepared.error();
    session.emplace(prepared.take());
    return ok();
  };
  Settings& settings = helper.settings;
  const Status prepared = settings.skips_refused
                              ? prepare_others(settings.session, settings.places, prepare, helper.diagnostics)
                              : prepare(settings.session);
  if (!prepared) return fail(prepared.error());
  auto output = Appender::open(helper.settings.output, helper.program.target().pid());
  if (!output) return fail(output.error());
  if (settings.records)
    if (const Status alone = output->take_alone(settings.output); !alone) return fail(alone.error());
  if (Status adopted = session->adopt(helper.program); !adopted) return fail(adopted.error());
  if (helper.settings.verbosity > 0)
    for (const PlanReport& report : session->report()) helper.diagnostics.line(plan_line(report));
  if (!helper.program.finish(true))
    return kExitFailure;  // the program runs on untraced; the session's end takes the probes out

  if (!output->is_stderr()) let_go_of_streams();
  (void)!::chdir("/");
  RunOptions options;
  options.records = settings.records;
  options.header = settings.records || output->wants_header();
  options.raw_strings = helper.settings.raw_strings;
  options.detach_requested = is_asked_to_end;
  const Status followed = session->follow(helper.program, options, [&](std::string_view bytes) {
    return settings.records ? output->write_record(bytes) : output->write(bytes);
  });
  if (!settings.records) write_summary(session->summary(), helper.settings.verbosity, *output);
  return followed ? 0 : kExitFailure;
}

}  // namespace

bool is_helper_call(int argc, char** argv) { return argc == 4 && std::string_view(argv[1]) == "--preload-helper"; }

int run_helper(char** argv) {
  shed_inheritance();
  const Diagnostics diagnostics(STDERR_FILENO, use_color(ColorMode::automatic, STDERR_FILENO));
  // The lifeline is held open and never used.
  Fd page(std::atoi(argv[2]));
  ::fcntl(page.get(), F_SETFD, FD_CLOEXEC);
  auto program = control::Preloaded::open(std::move(page));
  if (!program) {
    // If the program has given up waiting, it has reported that itself.
    if (program.error().code != Code::killed) diagnostics.error(program.error());
    return kExitFailure;
  }
  tell_unknown_variables(diagnostics);
  auto chosen = settings((*program)->target().pid());
  if (!chosen) {
    diagnostics.error(chosen.error());
    return kExitFailure;
  }
  Helper helper{diagnostics, **program, chosen.take()};
  return serve(helper);
}

}  // namespace uprobe::cli
