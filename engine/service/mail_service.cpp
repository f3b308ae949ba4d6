// SPDX-License-Identifier: MIT
#include "engine/service/mail_service.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <utility>

#include "engine/attach/attach.h"
#include "engine/attach/running_handlers.h"
#include "engine/base/exhaustion.h"
#include "engine/base/procfs.h"
#include "engine/base/signal_masked_thread.h"
#include "engine/inject/load.h"
#include "engine/mailbox/futex.h"
#include "engine/mailbox/mail_target.h"
#include "engine/patch/disarm.h"
#include "engine/process/credentials.h"
#include "engine/process/processes.h"
#include "engine/proxy/proxy.h"
#include "engine/service/domain_guard.h"
#include "engine/service/loader_events.h"
#include "engine/target/attachable.h"
#include "engine/target/process_list.h"
#include "engine/trace/task_names.h"

namespace uprobe::control {
namespace {

using shared::MailSlot;
using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kIdlePace = 50ms, kExecPace = 100us;
constexpr std::chrono::microseconds kTurn = 100us;
// The pause between two looks at all processes: this long, and a multiple of the time that one look takes.
constexpr auto kLookPause = 20ms;
constexpr int kLookShare = 5;
// For memory that does not come: where processes of other rights wait as well, and for one request in all.
constexpr std::chrono::milliseconds kPatienceAmongOthers = 100ms, kMostSilence = 2s;
constexpr std::size_t kMostStrangers = 4 * shared::kBells;

// The credentials of the session's first processes. Where the session still waits for its first process: the tool's.
Credentials credentials_of_first(const std::map<pid_t, Addr>& first) {
  auto found = first.empty() ? own_credentials() : credentials_of(first.begin()->first);
  return found ? found.take() : Credentials{};
}

}  // namespace

MailService::MailService(trace::Area& area, Armer& armer, ProbeSet& probes, const AgentImage* agent,
                         const std::map<pid_t, Addr>& first, CodeMaps* maps, const target::EarlierProcesses& earlier,
                         bool notes_mappings, std::unique_ptr<Heartbeat> heartbeat)
    : area_(area),
      armer_(armer),
      probes_(probes),
      agent_(agent),
      maps_(maps),
      earlier_(earlier),
      blocks_([this] { return blocks_in_use(); }),
      exec_([this](auto& target, const Credentials& credentials) { return load(target, credentials); },
            [this](pid_t pid) { return is_ready(pid); }),
      foreign_breakpoints_(armer, blocks_.all()),
      generated_(area, armer, probes, blocks_.all()),
      heartbeat_(std::move(heartbeat)) {
  if (notes_mappings) mappings_.emplace();
  for (const auto& [pid, block] : first) {
    note_mappings(pid);
    blocks_.add(block);
    foreign_breakpoints_.add(pid);
  }
  flush_event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  guard_ = std::make_unique<DomainGuard>(area, credentials_of_first(first), earlier);
  armer_.search_apart([&bell = area.live(0).header().mail_requests] {
    __atomic_fetch_add(&bell, 1, __ATOMIC_RELEASE);
    futex_wake(bell);
  });
  thread_ = start_signal_masked_thread([this] { loop(); }, {SIGCHLD});
}

MailService::~MailService() { stop(); }

void MailService::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  std::uint32_t& bell = area_.live(0).header().mail_requests;
  __atomic_fetch_add(&bell, 1, __ATOMIC_RELEASE);
  futex_wake(bell);
  thread_.join();
  armer_.end_search();
  generated_.end();
  guard_->stop();
  if (heartbeat_) heartbeat_->stop_beating();
}

// Asks each process of the session, as its agent reports. A process that lies gets no other requests served than before.
std::set<Addr> MailService::blocks_in_use() const {
  std::set<Addr> all;
  struct stat status {};
  if (::fstat(area_.fd(), &status) != 0) return blocks_.all();
  for (const pid_t pid : processes_mapping(status.st_ino, earlier_))
    if (const auto block = find_block(pid)) all.insert(*block);
  return all;
}

std::vector<FutexSeen> MailService::bells() const {
  std::vector<FutexSeen> all;
  for (std::size_t part = 0; part < area_.live_count(); ++part) {
    std::uint32_t& bell = area_.live(part).header().mail_requests;
    all.push_back({&bell, __atomic_load_n(&bell, __ATOMIC_ACQUIRE)});
  }
  return all;
}

void MailService::loop() {
  bool was_rung = false;
  while (!stop_) {
    const std::vector<FutexSeen> seen = bells();
    serve_all(was_rung);
    const bool is_to_look = has_missed_ || !strangers_.empty();
    const std::chrono::nanoseconds pace = !behind_.empty() ? kExecPace : exec_.waiting() ? exec_.pace() : kIdlePace;
    const auto pause = is_to_look ? std::clamp<std::chrono::nanoseconds>(next_look_ - Clock::now(), 100us, pace) : pace;
    if (!stop_) was_rung = futex_wait_any(seen, pause);
    while (waiting_ != 0) std::this_thread::sleep_for(kTurn);
  }
  exec_.answer_all();
  for (const std::string& why : unheard_.reasons()) note_failure(why);
  for (const auto& request : std::exchange(put_off_, {})) {
    if (!request->why.empty()) note_failure(request->why);
    static_cast<void>(request->thread.answer());
  }
}

// Where the bell rings again and again without an id, another process may be removing the ids.
void MailService::serve_all(bool was_rung) {
  const std::lock_guard lock(work_lock_);
  proxy::limit_patience(area_.live_count() > 1 ? kPatienceAmongOthers : proxy::kPatience);
  take_flush_requests();
  take_put_off();
  look_at_unheard();
  const std::size_t strangers = strangers_.size();
  const auto served = served_;
  take_hints();
  nameless_ = was_rung && served == served_ && strangers == strangers_.size() ? nameless_ + 1 : 0;
  if (nameless_ > 1) has_missed_ = true;
  if ((has_missed_ || !strangers_.empty()) && Clock::now() >= next_look_) look_at_all();
  answer_one_behind();
  exec_.step();
  is_following_ = exec_.waiting();
  if (!is_following_) exec_files_.clear();
  foreign_breakpoints_.step();
  generated_.step();
}

void MailService::take_hints() {
  std::set<std::uint32_t> named;
  for (std::size_t part = 0; part < area_.live_count(); ++part) {
    shared::LiveHeader& live = area_.live(part).header();
    for (std::uint32_t& bell : live.bells)
      if (__atomic_load_n(&bell, __ATOMIC_RELAXED) != 0) named.insert(__atomic_exchange_n(&bell, 0, __ATOMIC_ACQ_REL));
    if (__atomic_exchange_n(&live.bells_missed, 0, __ATOMIC_ACQ_REL) != 0) has_missed_ = true;
  }
  std::set<pid_t> seen;
  for (const std::uint32_t called : named)
    if (!look_for(called, seen) && strangers_.size() < kMostStrangers) strangers_.insert(called);
}

// Whether `called` may name a process that was found: see LiveHeader.
bool MailService::look_for(std::uint32_t called, std::set<pid_t>& seen) {
  const auto number = static_cast<pid_t>(called & ~shared::kBellOfChild);
  if ((called & shared::kBellOfChild) == 0) {
    const pid_t pid = target::is_process(number) ? number : process_of_thread(number);
    return pid != 0 && (!seen.insert(pid).second || look_at(pid));
  }
  bool found = false;
  for (const pid_t child : target::children_of(number)) found = look_at(child) || found;
  return found;
}

// Finds what the hints miss: threads of other PID namespaces have other ids there, and a process may remove bells.
void MailService::look_at_all() {
  const auto begun = Clock::now();
  struct stat status {};
  const bool is_known = ::fstat(area_.fd(), &status) == 0;
  for (const pid_t pid : is_known ? processes_mapping(status.st_ino, earlier_) : std::vector<pid_t>())
    if (pid != ::getpid()) look_at(pid);
  for (const std::uint32_t called : strangers_) refuse(called);
  strangers_.clear();
  has_missed_ = false;
  const auto ended = Clock::now();
  next_look_ = ended + std::max<Clock::duration>(kLookPause, kLookShare * (ended - begun));
}

// Harmless for a thread whose request has been seen.
void MailService::refuse(std::uint32_t called) {
  shared::Notice& notice = area_.header().notices[called % shared::kNotices];
  __atomic_store_n(&notice.refused, called, __ATOMIC_RELEASE);
  __atomic_fetch_add(&notice.refused_count, 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&notice.wake, 1, __ATOMIC_RELEASE);
  futex_wake(notice.wake);
}

// False: it is not in the session, or may not be inspected, or its mailbox was empty.
bool MailService::look_at(pid_t pid, bool is_its_turn) {
  auto member = open_member(area_, pid);
  shared::Mailbox box{};
  const Status seen = member ? member->files.read(member->mailbox(), &box, sizeof box) : Status(member.error());
  if (!seen) return note_silence(pid, seen.error()), false;
  unheard_.forget(pid);
  const auto process = std::make_shared<const Member>(member.take());
  bool found = false;
  for (std::size_t i = 0; i < shared::kMailSlots; ++i) {
    if (!has_request(box.slots[i])) continue;
    if (is_its_turn ? found : is_behind(process->part)) {
      behind_.emplace(pid, process->part);
      found = true;
      break;
    }
    answer(process, process->mailbox() + offsetof(shared::Mailbox, slots) + i * sizeof(MailSlot));
    found = true;
  }
  served_ += found ? 1 : 0;
  return found;
}

// A process that asks for nothing loses nothing: only one that rings is looked at.
void MailService::note_silence(pid_t pid, const Error& error) {
  if (error.err != ETIMEDOUT) return unheard_.forget(pid);
  const std::string why = procfs::called(pid) + ": " + error.text;
  if (unheard_.add(pid, why, Clock::now())) note_failure(why);
}

void MailService::look_at_unheard() {
  const auto begun = Clock::now();
  const std::vector<pid_t> due = unheard_.due(begun);
  for (const pid_t pid : due) look_at(pid);
  if (!due.empty()) unheard_.have_been_looked_at(begun, Clock::now());
}

void MailService::take_flush_requests() {
  for (std::size_t part = 0; part < area_.live_count(); ++part) {
    const std::uint32_t now = __atomic_load_n(&area_.live(part).header().flush_requests, __ATOMIC_SEQ_CST);
    if (std::exchange(flush_requests_[part], now) != now) ::eventfd_write(flush_event_.get(), 1);
  }
}

void MailService::note_mappings(pid_t pid, bool is_new) {
  if (mappings_) mappings_->note(pid, is_new);
}

void MailService::note_name(pid_t pid) { note_name(pid, procfs::read(pid, "status")); }

void MailService::note_name(pid_t pid, const Result<std::string>& status) {
  foreign_breakpoints_.add(pid);
  if (maps_ != nullptr) maps_->note(pid);
  note_mappings(pid);
  seen_.add(tasks_of(pid, status));
}

// Loads the agent into a program that execve has just started.
Status MailService::load(target::PtraceTarget& target, const Credentials& credentials) {
  const pid_t pid = target.pid();
  note_mappings(pid, true);
  const auto status = target.status();
  note_name(pid, status);
  const std::string name = status ? procfs::name_in(*status) : std::string();
  SeenExec exec{.pid = pid,
                .ns = trace::TaskNames::now_ns(),
                .comm = name.empty() ? procfs::name_of(pid) : name,
                .exe = procfs::link(pid, "exe")};
  const auto hook_note = add_library_hook(target, files_, probes_);
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) note_failure(*hook_note);
  const std::uint64_t blocked = target.signal_mask();
  const auto part = guard_->part_for(credentials);
  if (!part) return part.error();
  auto block = load_agent(target, *agent_, area_, probes_.block_needs(), *part);
  if (!block) return block.error();
  guard_->has_come(target.pid());
  blocks_.add(block->address());
  Status armed = catch_resource_exhaustion([&] { return armer_.arm(target, *block); });
  if (armed) return armer_.keep(block.take()), seen_.add(std::move(exec)), ok();
  static_cast<void>(disarm_waiting(target.pid(), block->address()));
  static_cast<void>(uninstall_handlers(target, *block));
  static_cast<void>(target.set_signal_mask(blocked));
  return armed;
}

Status MailService::prepare_for(pid_t pid) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  target::RunningTarget running(files.take());
  const auto hook_note = add_library_hook(running, files_, probes_);
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) note_failure(*hook_note);
  armer_.look_ahead(running);
  return ok();
}

// No other process is served while one is stopped, so it is refused rather than stopped for long.
Status MailService::take_in(pid_t pid, bool trusts_filters, const std::function<bool()>& is_wanted) {
  constexpr auto kPatience = 100ms;
  RETURN_IF_ERROR(prepare_for(pid));
  auto process = target::StoppedProcess::hold(pid, kPatience);
  if (!process) return process.error();
  const auto found = find_agent(pid);
  if (!is_wanted() || is_in_session(pid, found))
    return Error{
        .code = Code::refused, .text = "is another process now, or already in the session", .retry = Retry::soon};
  Status taken = catch_resource_exhaustion([&]() -> Status {
    const auto part = guard_->part_for(pid);
    if (!part) return part.error();
    const auto filters = judge_filters(**process, trusts_filters);
    if (!filters) return filters.error();
    if (const std::string note = describe(pid, *filters); !note.empty()) filtered_.insert(note);
    auto block = attach_agent(**process, found, *filters, *agent_, area_, probes_.block_needs(), *part);
    if (!block) return block.error();
    guard_->has_come(pid);
    blocks_.add(block->address());
    note_name(pid);
    RETURN_IF_ERROR(armer_.arm(**process, *block));
    return lead_handlers_back(**process, *block);
  });
  (*process)->let_go();
  if (!taken) static_cast<void>(give_back(pid));
  if (taken) generated_.look_now();
  return taken;
}

void MailService::note_failure(const std::string& why) {
  failures_.insert("a library or program is not probed: " + why);
}

// Serves a copy, made after the request was seen to be complete.
void MailService::answer(const std::shared_ptr<const Member>& process, Addr at) {
  std::uint32_t called = 0;
  const Status seen = process->files.read(at + offsetof(MailSlot, called), &called, sizeof called);
  if (!seen) return note_silence(process->files.pid(), seen.error());
  const auto request = std::make_shared<Request>(area_, process, at, called);
  MailSlot& slot = request->slot;
  if (!request->thread.has_request() || !process->files.read(at, &slot, sizeof slot) || !request->thread.begin())
    return;
  serve_and_finish(request);
}

void MailService::serve_and_finish(const std::shared_ptr<Request>& request) {
  const std::size_t part = request->process->part;
  const auto begun = Clock::now();
  if (area_.live_count() > 1) request->thread.limit_patience(turns_.patience(part, begun));
  request->is_put_off = false;
  const Status served = blocks_.contains(Addr{request->slot.block})
                            ? catch_resource_exhaustion([&] { return serve(request); })
                            : Status(Error{.code = Code::damaged, .text = "a malformed request"});
  request->why = served ? std::string() : served.error().text;
  const bool is_silent = !served && served.error().err == ETIMEDOUT;
  if (is_silent && !request->is_over(kMostSilence))
    static_cast<void>(put_off(request));
  else if (!served)
    note_failure(request->why);
  if (!request->is_put_off) static_cast<void>(request->thread.answer());
  const auto ended = Clock::now();
  turns_.charge(part, ended, ended - begun, request->thread.waited_in_vain());
}

// Where all processes have the same rights they wait for one another.
bool MailService::is_behind(std::size_t part) const {
  return area_.live_count() > 1 && turns_.is_behind(part, Clock::now());
}

bool MailService::is_ready(const Request& request) const {
  return FileSearch::is_done(request.files.jobs) || is_late(request.files);
}

// Those whose files have been looked into.
void MailService::take_put_off() {
  for (const auto& request : std::exchange(put_off_, {})) {
    if (!request->process->lives() || !request->thread.still_waits()) continue;
    if (is_ready(*request) && !is_behind(request->process->part))
      serve_and_finish(request);
    else
      put_off_.push_back(request);
  }
}

// Of the part whose debt is the smallest.
void MailService::answer_one_behind() {
  const auto of_process = [this](const auto& one) { return turns_.behind_until(one.second); };
  const auto of_request = [this](const auto& one) {
    return is_ready(*one) ? turns_.behind_until(one->process->part) : Clock::time_point::max();
  };
  const auto process = std::ranges::min_element(behind_, {}, of_process);
  const auto request = std::ranges::min_element(put_off_, {}, of_request);
  const bool has_process = process != behind_.end(), has_ready = request != put_off_.end() && is_ready(**request);
  if (has_ready && (!has_process || of_request(*request) < of_process(*process))) {
    const auto chosen = *request;
    put_off_.erase(request);
    serve_and_finish(chosen);
  } else if (has_process) {
    const pid_t pid = process->first;
    behind_.erase(process);
    look_at(pid, true);
  }
}

// What has been looked into may have been forgotten for other files by now; and the process may map further ones all the time. The
// thread itself waits for ten seconds, and would ask no more then; after less, files that are not known are left out.
bool MailService::has_to_wait(FileWait& wait, target::Target& target) {
  constexpr unsigned kMostRounds = 4;
  constexpr auto kPatience = 5s;
  if (is_late(wait)) return false;
  if (!FileSearch::is_done(wait.jobs)) return true;
  armer_.take_found();
  if (wait.rounds++ == 0) wait.until = Clock::now() + kPatience;
  wait.jobs = wait.rounds <= kMostRounds ? armer_.search_first(target) : FileSearch::Jobs();
  return !wait.jobs.empty();
}

bool MailService::is_late(const FileWait& wait) const { return wait.rounds != 0 && Clock::now() >= wait.until; }

bool MailService::is_ready(pid_t pid) {
  FileWait& wait = exec_files_[pid];
  if (!FileSearch::is_done(wait.jobs) && !is_late(wait)) return false;
  auto files = target::ProcessFiles::open(pid);
  if (!files) return true;
  target::RunningTarget program(files.take());
  if (has_to_wait(wait, program)) return false;
  exec_files_.erase(pid);
  return true;
}

void MailService::search_ahead(pid_t pid) {
  constexpr std::chrono::milliseconds kPatience = 10s, kMoment = 5ms;
  auto files = target::ProcessFiles::open(pid);
  if (!files) return;
  target::RunningTarget running(files.take());
  FileWait wait;
  const auto deadline = Clock::now() + kPatience;
  while (alone([&] { return has_to_wait(wait, running); }) && Clock::now() < deadline)
    std::this_thread::sleep_for(kMoment);
}

Notes MailService::notes() const {
  Notes notes = exec_.notes();
  for (const std::string& note : guard_->notes()) notes.insert(note);
  notes.insert(left_);
  notes.insert(filtered_);
  notes.insert(failures_);
  notes.insert(generated_.notes());
  return notes;
}

// The round's number is taken before anything is read.
bool MailService::begin_flush() {
  eventfd_t count = 0;
  if (::eventfd_read(flush_event_.get(), &count) != 0) return false;
  __atomic_store_n(&area_.header().flush_begun, ++flush_round_, __ATOMIC_SEQ_CST);
  return true;
}

void MailService::end_flush() {
  std::uint32_t& done = area_.header().flush_done;
  __atomic_store_n(&done, flush_round_, __ATOMIC_SEQ_CST);
  futex_wake(done);
}

Status MailService::serve(const std::shared_ptr<Request>& asked) {
  Request& request = *asked;
  const MailSlot& slot = request.slot;
  auto requester = find_requester(area_, *request.process, request.at, slot);
  if (!requester) return requester.error();
  const auto kind = static_cast<shared::MailKind>(slot.kind);
  if (kind == shared::MailKind::leave_me) return let_go(request, requester->pid);
  if (kind == shared::MailKind::leave_one) return let_go_of_other(asked, *requester);
  if (kind == shared::MailKind::credentials_changed) return guard_->look_at(requester->pid), ok();
  if (kind == shared::MailKind::process_begins) {
    note_mappings(requester->pid, true);
    seen_.add(tasks_of(requester->pid));
    return tell_process(request.process->files, Addr{slot.block});
  }
  const bool mapped = kind == shared::MailKind::code_mapped, writable = kind == shared::MailKind::code_writable;
  const bool is_of_code =
      mapped || writable || kind == shared::MailKind::libraries_changed || kind == shared::MailKind::sequence_aborted;
  if (!is_of_code) return serve_exec(asked, *requester);
  note_name(requester->pid);
  MailTarget target(request.process->files, request.thread);
  const Changed range{Addr{slot.path}, Addr{slot.folder}};
  if (kind == shared::MailKind::sequence_aborted)
    return armer_.bar(target, Addr{slot.block}, {Addr{slot.path}, Addr{slot.folder}},
                      [&] { return threads_of(requester->pid).size(); });
  if (writable) return armer_.take_jumps(target, Addr{slot.block}, range);
  if (mapped && armer_.has_nothing_to_arm(target, Addr{slot.block}, range)) return ok();
  if (has_to_wait(request.files, target)) return put_off(asked);
  return armer_.arm(target, Addr{slot.block}, mapped ? range : Changed{});
}

// Removes the handlers as well, where no other thread can be on its way to them.
Status MailService::let_go(Request& request, pid_t pid) {
  const MailSlot& slot = request.slot;
  const bool is_alone = threads_of(pid).size() == 1;
  generated_.let_go(pid);
  const Addr block_address{slot.block};
  Status out = is_alone ? disarm_waiting(pid, block_address) : disarm_running(pid, block_address);
  if (!out) return out;
  note_left(pid);
  if (slot.path == 0 || !is_alone) return ok();
  MailTarget target(request.process->files, request.thread);
  auto block = Block::read(target, block_address);
  if (!block) return block.error();
  return uninstall_handlers(target, *block);
}

// No thread of the process stands in the agent then. A debugger that steps a thread out of the agent would leave it a trap flag: the
// kernel takes that for the program's own after each iretq and popf that is stepped. Where a child of vfork runs in the process's
// memory the process does not stop before the child has called execve, for which the child may need the tool: the request waits.
Status MailService::let_go_of_other(const std::shared_ptr<Request>& asked, const Requester& requester) {
  constexpr auto kPatience = 1s;
  Request& request = *asked;
  const pid_t pid = process_called(area_, requester, static_cast<pid_t>(request.slot.path));
  // A request to leave a process alone must not be a way to hide it from the tool. The kernel will refuse the call as well.
  if (pid == 0 || !may_trace(requester.pid, pid) || !has_session(pid)) return ok();
  if (target::borrows_memory(requester.pid)) return let_go_of_parent(pid);
  const bool is_late = request.is_over(kPatience);
  if (!is_late && target::lends_memory(pid)) return put_off(asked);
  const auto block = find_block(pid);
  if (block && has_stubs(pid, *block))
    return refuse_tracer(request, pid, " keeps its probes", "functions return by stubs, which have to stay");
  generated_.let_go(pid);
  const Status given = give_back_apart(pid, 200ms);
  if (given || !has_session(pid)) return note_left(pid), ok();
  if (!is_late && target::lends_memory(pid)) return put_off(asked);
  return refuse_tracer(request, pid, " has lost its probes", given.error().text);
}

Status MailService::refuse_tracer(const Request& request, pid_t pid, const std::string& what, const std::string& why) {
  left_.insert(procfs::called(pid) + what + ", and another of the traced programs may not trace it: " + why);
  const std::uint64_t refused = shared::kMayNotTrace;
  return request.process->files.write(request.at + offsetof(MailSlot, folder), &refused, sizeof refused);
}

// A child in the memory of the process that it will trace, as LeakSanitizer's, knows what it does: the process is not given back, since
// that would take the child's memory away as well.
Status MailService::let_go_of_parent(pid_t pid) {
  generated_.let_go(pid);
  if (const auto block = find_block(pid); block && disarm_running(pid, *block)) note_left(pid);
  return ok();
}

Status MailService::put_off(const std::shared_ptr<Request>& asked) {
  asked->is_put_off = true;
  put_off_.push_back(asked);
  return ok();
}

void MailService::note_left(pid_t pid) {
  const std::string name = procfs::name_of(pid);
  left_.insert("a process named " + (name.empty() ? "?" : name) +
               " is traced by another of the traced programs: from then on it runs untraced");
}

// A child in its parent's memory (vfork) has recorded under the parent's ids, and only this request shows its own.
void MailService::note_caller(const Request& request, const Requester& requester) {
  shared::TaskWords words{};
  constexpr std::size_t kWords = offsetof(shared::ProcessBlock, process_word);
  if (!request.process->files.read(Addr{request.slot.block} + kWords, &words, sizeof words)) return;
  if (auto task = task_named_by(words, requester.tid)) seen_.add(std::vector{std::move(*task)});
}

Status MailService::serve_exec(const std::shared_ptr<Request>& request, const Requester& requester) {
  const MailSlot& slot = request->slot;
  if (agent_ == nullptr) return ok();
  if (slot.kind == static_cast<std::uint32_t>(shared::MailKind::exec_failed)) {
    exec_.failed(requester.tid);
    return ok();
  }
  // This may be a forked child that is seen for the first time: note its mappings before its earlier records are read.
  if (maps_ != nullptr) maps_->note(requester.pid);
  note_mappings(requester.pid);
  note_caller(*request, requester);
  const std::string path = path_at(request->process->files, Addr{slot.path});
  const auto still_asks = [this, request, requester] {
    if (!request->process->lives() || !request->thread.still_waits()) return false;
    const auto now = find_requester(area_, *request->process, request->at, request->slot);
    return now && now->pid == requester.pid && now->tid == requester.tid;
  };
  const auto answer = [request] { static_cast<void>(request->thread.answer()); };
  is_following_ = true;  // before the thread proceeds
  request->is_put_off =
      !exec_.begins({requester.pid, requester.tid, path, static_cast<int>(slot.folder)}, {still_asks, answer, [] {}});
  return ok();
}

}  // namespace uprobe::control
