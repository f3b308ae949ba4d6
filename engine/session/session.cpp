// SPDX-License-Identifier: MIT
#include "engine/session/session.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "engine/arm/loader_events.h"
#include "engine/attach/attach.h"
#include "engine/base/exhaustion.h"
#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "engine/inject/load.h"
#include "engine/inject/preloaded.h"
#include "engine/process/processes.h"
#include "engine/process/program_end.h"
#include "engine/resolve/programs.h"
#include "engine/session/session_state.h"
#include "engine/target/attachable.h"
#include "engine/target/guardian.h"
#include "engine/trace/histogram_copy.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;

constexpr std::uint32_t kMoreEvents = 1024;  // can be added while the session runs

std::uint64_t power_of_two(std::uint64_t n) {
  std::uint64_t power = shared::kMinRingBytes;
  while (power < n && power < shared::kMaxRingBytes) power *= 2;
  return power;
}

// One ring per CPU, and some that threads without rseq claim: a thread that is preempted in the middle of a record keeps its
// ring that long.
void set_rings(trace::AreaSpec& spec) {
  const auto cpus = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)));
  const std::uint32_t claimed = std::min(shared::kMaxRings / 2, std::max(4u, cpus / 2));
  spec.cpu_ring_count = std::min(shared::kMaxRings - claimed, cpus);
  spec.ring_count = spec.cpu_ring_count + claimed;
}

// Room for events that are added while the session runs.
std::uint32_t room_for_events(std::size_t present) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(kMoreEvents, shared::kMaxEvents - std::min<std::size_t>(present, shared::kMaxEvents)));
}

// The /proc of another PID namespace has other processes under the ids of this tool's children: nothing there may be read or
// written.
bool proc_is_ours() {
  char link[32] = {};
  return ::readlink("/proc/self", link, sizeof link - 1) > 0 && std::strtol(link, nullptr, 10) == ::getpid();
}

}  // namespace

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session::State::~State() {
  if (reader_thread.joinable()) reader_thread.join();
  if (area) stop_tracing();
  peer_server.reset();
}

// The mail service sees processes while they live.
void Session::State::learn_names() {
  if (!mail) return;
  learn(mail->take_names());
}

void Session::State::learn(const std::vector<control::SeenTask>& tasks) {
  for (const control::SeenTask& seen : tasks) {
    names.learn_number(seen.task, seen.number);
    names.learn(seen.task, seen.name, seen.ns);
  }
}

void Session::State::learn_counted_tasks() {
  counted_tasks.resize(area->histogram_count());
  for (std::size_t i = 0; i < counted_tasks.size(); ++i) {
    std::uint32_t entries = 0;
    for (std::size_t part = 0; part < area->live_count(); ++part)
      entries += __atomic_load_n(area->histogram(i, part).next_entry, __ATOMIC_RELAXED);
    for (const program::HistogramWord& key : table.switches().histograms[i].plan.keys) {
      if (!trace::is_task(key.field) || entries == counted_tasks[i]) continue;
      const bool has_name = key.modifier == program::HistogramModifier::task;
      for (const trace::HistogramEntry& entry : trace::copy_histogram(*area, i).entries) {
        const shared::TaskNumber task = shared::task_of_key(entry.key[key.field.key_offset / 8]);
        if (has_name || task.is_elsewhere()) names.see(task);
      }
    }
    counted_tasks[i] = entries;
  }
}

// Hits that were in progress when recording was switched off still commit: within microseconds, unless their thread is stopped
// or dead.
void Session::State::await_writers() {
  for (int tries = 0; tries < 20; ++tries) {
    bool busy = false;
    for (std::uint32_t i = 0; i < area->ring_count(); ++i) busy = busy || area->is_being_written(i);
    if (!busy) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Switches recording off and restores the text of every process that has the session: processes that live on run untraced.
void Session::State::stop_tracing() {
  socket.reset();
  if (peer_server) peer_server->close();
  end_search();
  if (area) __atomic_store_n(&area->header().tool_gone, 1, __ATOMIC_RELAXED);  // agents send no more requests
  {
    const std::lock_guard lock(changing);  // a thread that adds probes has finished
    if (mail) mail->stop();
    if (!recording.exchange(false)) return;
  }
  area->set_state(shared::SessionState::off);
  await_writers();
  struct stat status {};
  if (::fstat(area->fd(), &status) != 0) return;
  // Children that are forked during a look are found by the next look.
  std::set<pid_t> seen{::getpid()};
  if (is_flushing && control::waits_at_its_end(child)) seen.insert(child);
  constexpr int kMostLooks = 100;
  bool found_new = true;
  for (int looks = 0; found_new && looks < kMostLooks; ++looks) {
    found_new = false;
    for (const pid_t pid : control::processes_mapping(status.st_ino)) {
      if (seen.count(pid) != 0 || target::borrows_memory(pid)) continue;  // restored together with its parent
      seen.insert(pid);
      found_new = true;
      if (!control::is_tool_of(pid, status.st_ino)) let_go.insert(pid);
      let_go_of(pid);
    }
  }
}

void Session::State::let_go_of(pid_t pid) {
  if (attaches) {
    const Status given = control::give_back(pid);
    if (given || !control::has_session(pid)) return;  // it may have ended, or have called execve
    notes.push_back("process " + std::to_string(pid) +
                    " keeps handlers of the tool, without probes: " + given.error().text);
  }
  if (const auto block = control::find_block(pid)) static_cast<void>(control::disarm_running(pid, *block));
}

Result<Session> Session::prepare(const SessionOptions& options) {
  if (options.ring_bytes < shared::kMinRingBytes || options.ring_bytes > shared::kMaxRingBytes)
    return Error{.code = Code::limit, .text = "ring size out of range: allowed are 8K to 1G"};
  auto state = std::make_unique<State>(options);
  state->options.ring_bytes = power_of_two(options.ring_bytes);
  RETURN_IF_ERROR(state->table.prepare(options.definitions));
  state->notes = state->table.notes();
  RETURN_IF_ERROR(state->check_tiers());
  return Session(std::move(state));
}

Status Session::State::plan_for(pid_t pid) {
  plan::FileCache files;
  for (const Probe& probe : table.probes()) files.know(probe.site.file);
  auto hook_note = control::add_library_hook(pid, files, table.planned());
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) notes.push_back(hook_note.take());
  return ok();
}

Status Session::State::make_area() {
  trace::AreaSpec spec{
      .events = {},
      .ring_bytes = options.ring_bytes,
      .more_events = room_for_events(table.probes().size()),
      .more_insns = 8 * kMoreEvents,
      .more_tests = table.probes().size() <= kMoreEvents || options.unseen_thread != 0 ? 8 * kMoreEvents : 0,
      .more_text = 16 * kMoreEvents};
  set_rings(spec);
  for (const Probe& probe : table.probes()) spec.events.push_back(&probe.program);
  spec.switches = table.switches().switches, spec.triggers = table.switches().triggers,
  spec.histograms = table.switches().histograms;
  for (std::size_t i = 0; i < spec.switches.size(); ++i)
    spec.switches[i].at_entry = is_function_entry(table.probes()[i]);
  auto made = trace::Area::create_private(spec);
  if (!made) return made.error();
  area.emplace(made.take());
  area->keep_from_children();
  area->header().mode = (agent ? 0 : shared::kModePreloaded) | (attaches ? shared::kModeAttached : 0) |
                        (is_daemonized() ? shared::kModeDaemonize : 0);
  area->header().first_process = static_cast<std::uint32_t>(is_daemonized() ? options.waiting->pid : 0);
  area->header().known_as = static_cast<std::uint32_t>(options.known_as);
  if (std::any_of(table.probes().begin(), table.probes().end(), shows_symbols) || shows_addresses(table.switches())) {
    std::vector<plan::Site> sites;
    for (const Probe& probe : table.probes()) sites.push_back(probe.site);
    code_maps = std::make_unique<control::CodeMaps>();
    symbols = std::make_unique<SessionSymbols>(*code_maps, std::move(sites));
  }
  armer.emplace(table.planned(), control::ArmOptions{.ends_too = asks_at_end(),
                                                     .is_preloaded = !agent,
                                                     .tier = options.tier,
                                                     .flows = &table.flows(),
                                                     .area = &*area,
                                                     .insists_on_stubs = options.returns == plan::ReturnMode::stub});
  clock.emplace(trace::Clock::start(clock_begin));
  area->header().tick_rate = clock->rate();
  struct stat file {};
  if (::fstat(area->fd(), &file) != 0) return system_error("fstat of the session area", errno);
  const auto tasks = std::make_shared<control::TracedTasks>(file.st_ino);
  names = trace::TaskNames("/proc",
                           [tasks](std::uint32_t tid, bool is_elsewhere) { return tasks->has(tid, is_elsewhere); });
  reader.emplace(*area, *clock, names);
  return ok();
}

Status Session::State::arm(target::Target& target, const std::function<Result<control::Block>()>& load) {
  RETURN_IF_ERROR(plan_for(target.pid()));
  auto block = load();
  if (!block) return block.error();
  const Status begun = catch_resource_exhaustion([&]() -> Status {
    RETURN_IF_ERROR(armer->arm(target, *block));
    return begin({{target.pid(), block->address()}});
  });
  if (begun) return ok();
  static_cast<void>(control::disarm_waiting(target.pid(), block->address()));
  static_cast<void>(control::uninstall_handlers(target, *block));
  return begun;
}

Status Session::State::begin(const std::map<pid_t, Addr>& first) {
  RETURN_IF_ERROR(find_any_armed());
  for (const auto& [pid, block] : first) {
    if (code_maps) code_maps->note(pid);
    learn(control::tasks_of(pid));
  }
  mail.emplace(*area, *armer, table.planned(), agent ? &*agent : nullptr, first, code_maps.get());
  area->set_state(shared::SessionState::recording);
  recording = true;
  return ok();
}

// A session in which no point can be armed would never show anything.
Status Session::State::find_any_armed() const {
  const control::ArmReport& report = armer->report();
  if (!report.armed_events.empty() || report.first_refusal.empty()) return ok();
  return Error{.code = Code::refused, .text = "nothing in the program can be probed: " + report.first_refusal};
}

// A program that is killed while the tool loads the agent has ended as it would have without the tool; run() reports that. The
// program is stopped with all signals masked, so only SIGKILL can have ended it.
Status Session::State::unless_killed(const Error& error) {
  constexpr auto kOnItsWayOut = std::chrono::milliseconds(20);
  const bool killed =
      error.code == Code::killed || error.err == ESRCH || (pidfd && has_ended(pidfd.get(), kOnItsWayOut));
  if (!killed) return error;
  ended_early = Ending{.signalled = true, .code = error.code == Code::killed ? error.signal : SIGKILL};
  return ok();
}

Status Session::State::open_agent() {
  if (!proc_is_ours())
    return Error{.code = Code::refused,
                 .text = "/proc is missing or belongs to another PID namespace",
                 .help = "mount one for this namespace (unshare --mount-proc)"};
  const std::string path = options.agent_path.empty() ? find_agent() : options.agent_path;
  if (path.empty())
    return Error{.code = Code::not_found,
                 .text = "libuprobe.so is neither next to uprobe-run nor where it was installed"};
  auto image = control::AgentImage::open(path);
  if (!image) return image.error();
  agent.emplace(image.take());
  return ok();
}

Status Session::launch(const std::vector<std::string>& argv) {
  auto program = find_program(argv[0]);
  if (!program) return program.error();
  if (control::gains_privileges(*program))
    return Error{.code = Code::refused,
                 .text = "is a set-id program or has capabilities: traced, it would run without them",
                 .where = *program};
  RETURN_IF_ERROR(state_->open_agent());
  const Status launched = state_->launch(*program, argv);
  if (!launched || state_->ended_early) state_->close_sockets();
  return launched;
}

Result<std::unique_ptr<target::PtraceTarget>> Session::State::start(const std::string& program,
                                                                    const std::vector<std::string>& argv) {
  const auto in_parent = [&] {
    if (options.has_guardian)  // first, so that the program is the first child that other threads see
      target::start_guardian(is_daemonized() ? options.waiting->pid : 0);
    if (options.tier != plan::Tier::breakpoint)
      for (const control::FilePoints& file : table.planned().files()) table.flows().begin(file.file);
    raise_own_limits();  // the child has inherited the old ones
    return make_area();
  };
  if (!is_daemonized()) return target::PtraceTarget::launch(program, argv, {.in_parent = in_parent});
  RETURN_IF_ERROR(in_parent());
  return target::PtraceTarget::launch_waiting(options.waiting->pid, options.waiting->line, program);
}

Status Session::State::launch(const std::string& program, const std::vector<std::string>& argv) {
  auto target = start(program, argv);
  if (!target) return is_daemonized() ? Status(target.error()) : unless_killed(target.error());
  if (Status ready = make_ready(**target); !ready)
    return is_daemonized() ? give_up(**target, ready.error()) : unless_killed(ready.error());
  return ended_early ? ok() : serve();
}

// The program has run no instruction: it ends with the exit code that the tool would have had.
Status Session::State::give_up(target::PtraceTarget& target, const Error& error) {
  constexpr auto kOnItsWayOut = std::chrono::milliseconds(20);
  const bool killed = error.err == ESRCH || (pidfd && has_ended(pidfd.get(), kOnItsWayOut));
  if (error.code == Code::killed || killed) return Error{.code = Code::killed, .text = error.text, .signal = SIGKILL};
  target.end(options.waiting->give_up(error));
  return Error{.code = Code::killed, .text = error.text, .signal = SIGKILL};
}

Status Session::State::make_ready(target::PtraceTarget& target) {
  child = target.pid();
  // Where SIGCHLD is ignored (the child has inherited that by now) a child that ends leaves no status. The program is stopped,
  // so it cannot end before this.
  ::signal(SIGCHLD, SIG_DFL);
  pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (!pidfd) return system_error("pidfd_open", errno);
  RETURN_IF_ERROR(open_sockets());
  const auto load = [&] { return control::load_agent(target, *agent, *area, table.planned().size()); };
  RETURN_IF_ERROR(arm(target, load));
  return target.release();
}

Status Session::adopt(control::Preloaded& program) {
  State& s = *state_;
  RETURN_IF_ERROR(s.make_area());
  return s.arm(program.target(), [&] { return program.load(*s.area, s.table.planned().size()); });
}

int Session::child_pid() const { return state_->child; }

namespace {

// Waits until the descriptor is readable.
void wait_for(int event, std::chrono::microseconds limit) {
  pollfd poll_for{.fd = event, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  ::ppoll(&poll_for, 1, &timeout, nullptr);
}

}  // namespace

Result<Ending> Session::run(const RunOptions& options, const Output& output) {
  const auto printer = make_printer(state_->table.probes(), options, output, state_->symbols.get());
  return state_->run(options, *printer);
}

Result<Ending> Session::run(const RunOptions& options, const RecordSink& sink) {
  const auto forwarder = make_forwarder(state_->table.probes(), sink);
  return state_->run(options, *forwarder);
}

void Session::let_program_end() { state_->end_flush(); }

bool Session::is_recording() const { return state_->recording; }

void Session::kill_program() {
  if (state_->pidfd) ::syscall(SYS_pidfd_send_signal, state_->pidfd.get(), SIGKILL, nullptr, 0);
}

Status Session::follow(const control::Preloaded& program, const RunOptions& options, const Output& output) {
  State& s = *state_;
  const auto printer = make_printer(s.table.probes(), options, output, s.symbols.get());
  s.own_recipient = printer.get();
  const auto step = [&] {
    const bool flushes = s.mail->begin_flush();
    if (flushes)
      s.print_settled();
    else
      s.poll();
    printer->end_batch();
    if (flushes) s.mail->end_flush();
  };
  bool deserted = false;
  while (!deserted && !printer->is_broken() && !(options.detach_requested && options.detach_requested())) {
    deserted = program.is_deserted();
    step();
    if (!deserted) wait_for(s.mail->flush_wanted(), s.reader->next_poll());
  }
  if (deserted) s.recording = false;  // there is no process left to take the probes out of
  s.stop_tracing();
  step();
  s.read_all();
  printer->end_batch();
  return ok();
}

}  // namespace uprobe
