#include "engine/control/mail_service.h"

#include <limits.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "engine/base/exhaustion.h"
#include "engine/base/quiet_thread.h"
#include "engine/control/attach.h"
#include "engine/control/futex.h"
#include "engine/control/hooks.h"
#include "engine/control/load.h"
#include "engine/control/mail_target.h"
#include "engine/control/processes.h"
#include "engine/control/running_handlers.h"

namespace uprobe::control {
namespace {

using shared::MailSlot;
using shared::MailState;
using namespace std::chrono_literals;

constexpr std::chrono::microseconds kIdlePace = 50ms, kExecPace = 200us, kTurn = 100us;

bool change(MailSlot& slot, MailState from, MailState to) {
  auto expected = static_cast<std::uint32_t>(from);
  return __atomic_compare_exchange_n(&slot.state, &expected, static_cast<std::uint32_t>(to), false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

}  // namespace

MailService::MailService(trace::Area& area, Armer& armer, ProbeSet& probes, const AgentImage* agent,
                         const std::map<pid_t, Addr>& first, CodeMaps* maps)
    : area_(area),
      armer_(armer),
      probes_(probes),
      agent_(agent),
      maps_(maps),
      exec_([this](auto& target) { return load(target); }),
      beside_(armer, blocks_) {
  for (const auto& [pid, block] : first) {
    blocks_.insert(block);
    beside_.add(pid);
  }
  flush_event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // A thread of its own: planning a large library may keep the other one busy for long.
  pulse_.emplace(area.header().tool_pulse);
  thread_ = start_quiet_thread([this] { loop(); }, {SIGCHLD});
}

MailService::~MailService() { stop(); }

void MailService::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  __atomic_fetch_add(&area_.header().mail_requests, 1, __ATOMIC_RELEASE);
  futex_wake(area_.header().mail_requests);
  thread_.join();
  pulse_.reset();
}

void MailService::loop() {
  std::uint32_t& requests = area_.header().mail_requests;
  while (!stop_) {
    const std::uint32_t seen = __atomic_load_n(&requests, __ATOMIC_ACQUIRE);
    serve_all();
    if (!stop_) futex_wait(requests, seen, exec_.waiting() ? kExecPace : kIdlePace);
    while (waiting_ != 0) std::this_thread::sleep_for(kTurn);
  }
  exec_.answer_all();
}

void MailService::serve_all() {
  const std::lock_guard lock(work_lock_);
  for (std::uint32_t i = 0; i < shared::kMailSlots; ++i) {
    MailSlot& slot = area_.mail(i);
    if (change(slot, MailState::request, MailState::working)) answer(slot);
    forget_abandoned(slot);
  }
  exec_.step();
  beside_.step();
}

void MailService::note_name(pid_t pid) {
  beside_.add(pid);
  if (maps_ != nullptr) maps_->note(pid);
  auto name = read_file("/proc/" + std::to_string(pid) + "/comm");
  if (!name || name->empty()) return;
  name->pop_back();  // the newline
  const std::lock_guard lock(names_lock_);
  names_.emplace_back(pid, name.take());
}

std::vector<std::pair<pid_t, std::string>> MailService::take_names() {
  const std::lock_guard lock(names_lock_);
  return std::exchange(names_, {});
}

// The agent gets into a program that execve has just started.
Status MailService::load(target::PtraceTarget& target) {
  note_name(target.pid());
  const auto hook_note = add_library_hook(target.pid(), files_, probes_);
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) failures_.insert(*hook_note);
  const std::uint64_t blocked = target.signal_mask();
  auto block = load_agent(target, *agent_, area_, probes_.size());
  if (!block) return block.error();
  blocks_.insert(block->address());
  const Status armed = survive_exhaustion([&] { return armer_.arm(target, *block); });
  if (armed) return ok();
  static_cast<void>(disarm(target.pid(), block->address()));
  static_cast<void>(uninstall_handlers(target, *block));
  static_cast<void>(target.set_signal_mask(blocked));
  return armed;
}

Status MailService::prepare_for(pid_t pid) {
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  target::RunningTarget running(files.take());
  const auto hook_note = add_library_hook(pid, files_, probes_);
  if (!hook_note) return hook_note.error();
  if (!hook_note->empty()) failures_.insert(*hook_note);
  armer_.look_ahead(running);
  return ok();
}

// Nobody else is served while it is held: rather refused than held for long.
Status MailService::take_in(pid_t pid, const std::function<bool()>& is_wanted) {
  constexpr auto kPatience = 100ms;
  if (Status prepared = prepare_for(pid); !prepared) return prepared;
  auto process = target::HeldProcess::hold(pid, kPatience);
  if (!process) return process.error();
  const auto found = find_agent(pid);
  if (!is_wanted() || is_in_session(pid, found))
    return Error{.code = Code::refused, .text = "has changed meanwhile", .err = EBUSY};
  const Status taken = survive_exhaustion([&]() -> Status {
    auto block = attach_agent(**process, found, *agent_, area_, probes_.size());
    if (!block) return block.error();
    blocks_.insert(block->address());
    note_name(pid);
    if (Status armed = armer_.arm(**process, *block); !armed) return armed;
    return lead_handlers_back(**process, *block);
  });
  (*process)->let_go();
  if (!taken) static_cast<void>(give_back(pid));
  return taken;
}

void MailService::answer(MailSlot& slot) {
  if (slot.kind == static_cast<std::uint32_t>(shared::MailKind::flush)) {
    const std::lock_guard lock(flush_lock_);
    if (flushing_.insert(&slot).second) flush_requests_.push_back(&slot);
    ::eventfd_write(flush_event_.get(), 1);
    return;
  }
  if (Status served = survive_exhaustion([&] { return serve(slot); }); !served) failures_.insert(served.error().text);
  if (about_to_exec_.count(&slot) == 0) finish(slot);
}

// An asker that gave up meanwhile has left the slot to us.
void MailService::finish(MailSlot& slot) {
  if (!change(slot, MailState::working, MailState::done)) __atomic_store_n(&slot.state, 0, __ATOMIC_RELEASE);
  futex_wake(slot.state);
}

// Whoever gave up waiting for a flush, or for another thread's execve, keeps the slot until that is through.
void MailService::forget_abandoned(MailSlot& slot) {
  const std::lock_guard lock(flush_lock_);
  if (flushing_.count(&slot) == 0 && about_to_exec_.count(&slot) == 0)
    change(slot, MailState::abandoned, MailState::free);
}

std::vector<std::string> MailService::notes() const {
  std::vector<std::string> notes = exec_.notes();
  for (const std::string& name : left_)
    notes.push_back("a process named " + name +
                    " is traced by another of the traced programs: from then on it runs untraced");
  for (const std::string& failure : failures_) notes.push_back("a library or program goes unprobed: " + failure);
  return notes;
}

std::vector<MailSlot*> MailService::take_flushes() {
  const std::lock_guard lock(flush_lock_);
  eventfd_t count = 0;
  ::eventfd_read(flush_event_.get(), &count);
  return std::exchange(flush_requests_, {});
}

void MailService::flushed(MailSlot& slot) {
  const std::lock_guard lock(flush_lock_);
  flushing_.erase(&slot);
  if (change(slot, MailState::working, MailState::done)) futex_wake(slot.state);
}

Status MailService::serve(MailSlot& slot) {
  auto asker = find_asker(area_, slot, static_cast<std::uint32_t>(&slot - &area_.mail(0)));
  if (!asker) return asker.error();
  const auto kind = static_cast<shared::MailKind>(slot.kind);
  if (kind == shared::MailKind::leave_me) return let_go(slot, asker->pid);
  if (kind == shared::MailKind::leave_one) return let_go_of_other(slot, *asker);
  const bool mapped = kind == shared::MailKind::code_mapped, writable = kind == shared::MailKind::code_writable;
  if (!mapped && !writable && kind != shared::MailKind::libraries_changed) return serve_exec(slot, *asker);
  auto files = target::ProcessFiles::open(asker->pid);
  if (!files) return files.error();
  note_name(asker->pid);
  MailTarget target(files.take(), slot);
  const Changed range{Addr{slot.path}, Addr{slot.folder}};
  if (writable) return armer_.take_jumps(target, Addr{slot.block}, range);
  return armer_.arm(target, Addr{slot.block}, mapped ? range : Changed{});
}

// The handlers go as well where no other thread can be on its way to them.
Status MailService::let_go(MailSlot& slot, pid_t pid) {
  if (Status out = disarm(pid, Addr{slot.block}); !out) return out;
  note_left(pid);
  auto files = target::ProcessFiles::open(pid);
  if (slot.path == 0 || !files || threads_of(pid).size() != 1) return ok();
  MailTarget target(files.take(), slot);
  auto block = Block::read(target, Addr{slot.block});
  if (!block) return block.error();
  return uninstall_handlers(target, *block);
}

Status MailService::let_go_of_other(const MailSlot& slot, const Asker& asker) {
  const pid_t pid = process_called(area_, asker, static_cast<pid_t>(slot.path));
  if (pid == 0) return ok();  // none of ours
  const auto block = find_block(pid);
  if (block && disarm(pid, *block)) note_left(pid);
  return ok();
}

void MailService::note_left(pid_t pid) {
  const auto name = read_file("/proc/" + std::to_string(pid) + "/comm");
  left_.insert(name && !name->empty() ? name->substr(0, name->size() - 1) : "?");
}

Status MailService::serve_exec(MailSlot& slot, const Asker& asker) {
  if (agent_ == nullptr) return ok();
  if (slot.kind == static_cast<std::uint32_t>(shared::MailKind::exec_failed)) {
    exec_.failed(asker.tid);
    return ok();
  }
  auto files = target::ProcessFiles::open(asker.pid);
  if (!files) return files.error();
  // A forked child has not been seen yet, and what it has recorded is from before.
  if (maps_ != nullptr) maps_->note(asker.pid);
  std::string path(PATH_MAX, '\0');
  std::size_t bytes = 0;  // up to the end of a page at a time: the path may end right before unmapped memory
  while (bytes < path.size()) {
    const std::uint64_t at = slot.path + bytes;
    const std::size_t step = std::min<std::size_t>(4096 - at % 4096, path.size() - bytes);
    if (!files->read(Addr{at}, path.data() + bytes, step)) break;
    bytes += step;
    if (path.find('\0') < bytes) break;
  }
  path.resize(std::min(path.find('\0'), bytes));
  const auto still_asks = [this, &slot, asker] {
    const auto now = find_asker(area_, slot, static_cast<std::uint32_t>(&slot - &area_.mail(0)));
    return now && now->pid == asker.pid && now->tid == asker.tid;
  };
  const auto answer = [this, &slot] { about_to_exec_.erase(&slot), finish(slot); };
  const auto forget = [this, &slot] {
    about_to_exec_.erase(&slot);
    __atomic_store_n(&slot.state, 0, __ATOMIC_RELEASE);
  };
  if (!exec_.begins({asker.pid, asker.tid, path, static_cast<int>(slot.folder)}, {still_asks, answer, forget}))
    about_to_exec_.insert(&slot);
  return ok();
}

}  // namespace uprobe::control
