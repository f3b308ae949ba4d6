// SPDX-License-Identifier: MIT
// The process is made and awaited by a thread that does nothing else, so that it can use that thread's errno.
#include "engine/proxy/proxy.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>

#include "engine/base/procfs.h"
#include "engine/base/roles.h"
#include "engine/base/signal_masked_thread.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace uprobe::proxy {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Number = std::atomic<std::uint32_t>;

constexpr std::chrono::milliseconds kLittlePatience = 100ms;  // for a while after an order was left
constexpr auto kWhile = 60s;
constexpr auto kMostPatience = 3s;  // with one that gets on, or that the kernel does not let run

constexpr std::size_t kMostLeft = 64, kMostInsisting = 128;  // of all users
constexpr std::size_t kMostOfUser = 4;

template <class Id>
class LockedSet {
 public:
  void add(Id id) {
    const std::lock_guard lock(lock_);
    ids_.insert(id);
  }
  void remove(Id id) {
    const std::lock_guard lock(lock_);
    if (const auto one = ids_.find(id); one != ids_.end()) ids_.erase(one);
  }
  bool has(Id id) { return count(id) != 0; }
  std::size_t count(Id id) {
    const std::lock_guard lock(lock_);
    return ids_.count(id);
  }
  std::size_t size() {
    const std::lock_guard lock(lock_);
    return ids_.size();
  }

 private:
  std::mutex lock_;
  std::multiset<Id> ids_;
};

// The proxies. (Both sets stay for ever: threads that await a proxy's end outlive main().)
LockedSet<pid_t>& living() {
  static auto& all = *new LockedSet<pid_t>;
  return all;
}
// The users of orders that were left and have not come back.
LockedSet<uid_t>& silent() {
  static auto& all = *new LockedSet<uid_t>;
  return all;
}
// The processes that they were for.
LockedSet<pid_t>& silent_ones() {
  static auto& all = *new LockedSet<pid_t>;
  return all;
}
std::atomic<Clock::time_point> impatient_until{Clock::time_point::min()};

void wait_for_change(Number& number, std::uint32_t old, const timespec* how_long) {
  ::syscall(SYS_futex, &number, FUTEX_WAIT_PRIVATE, old, how_long, nullptr, 0);
}
void wake(Number& number) { ::syscall(SYS_futex, &number, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

// A thread's half and its proxy's. The thread that awaits the proxy's end has it too.
struct Lane {
  Number asked{0}, done{0};          // the last order
  std::shared_ptr<Order> order;      // the proxy's from `asked` to `done`
  std::atomic<bool> is_left{false};  // by its thread: the proxy ends
  std::atomic<bool> has_ended{false};
  std::atomic<Clock::time_point> crowded_until{Clock::time_point::min()};
  Owner owner{0};                      // of the last order
  std::atomic<bool> is_silent{false};  // its user is among the silent ones
  std::atomic<pid_t> pid{0};
  const pid_t tool = ::getpid();
  alignas(16) std::array<char, 65536> stack;
};

// Whether something is the case soon, for a thread that stays awake until then. Where other threads wait for the processor each
// sched_yield lasts as long as they may run. There the two halves sleep, since the kernel lets a thread that is woken run soon.
template <class Condition>
bool is_soon(Lane& lane, const Condition& is_the_case) {
  constexpr int kMostLooks = 50;
  constexpr Clock::duration kCrowded = 200us, kFor = 1s;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    if (is_the_case()) return true;
    const auto before = Clock::now();
    if (before < lane.crowded_until.load(std::memory_order_relaxed)) return false;
    ::syscall(SYS_sched_yield);
    const auto after = Clock::now();
    if (after - before > kCrowded) lane.crowded_until.store(after + kFor, std::memory_order_relaxed);
  }
  return is_the_case();
}

// ---- in the proxy

class ToolsDescriptors : public Place {
 public:
  explicit ToolsDescriptors(pid_t tool) : tool_(static_cast<int>(::syscall(SYS_pidfd_open, tool, 0))) {}
  int descriptor(int of_the_tool) override {
    return static_cast<int>(::syscall(SYS_pidfd_getfd, tool_, of_the_tool, 0));
  }

 private:
  const int tool_;
};

void await_order(Lane& lane, std::uint32_t last) {
  const auto has_come = [&] { return lane.asked.load(std::memory_order_acquire) != last; };
  if (is_soon(lane, has_come)) return;
  while (!has_come()) wait_for_change(lane.asked, last, nullptr);
}

// Signals of the tool's process group are not for it.
void begin(const Lane& lane) {
  ::syscall(SYS_prctl, PR_SET_NAME, kProxyName, 0, 0, 0);
  ::syscall(SYS_setpgid, 0, 0);
  constexpr int kMostKnown = 4096;  // for a kernel without the call (Linux 5.9)
  if (::syscall(SYS_close_range, 0U, ~0U, 0U) != 0)
    for (int fd = 0; fd < kMostKnown; ++fd) ::syscall(SYS_close, fd);
  ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::syscall(SYS_getppid) != lane.tool) ::syscall(SYS_exit, 0);
}

int serve(void* of) {
  Lane& lane = *static_cast<Lane*>(of);
  begin(lane);
  ToolsDescriptors place(lane.tool);
  int made = -1;  // by the last order
  for (std::uint32_t last = 0; !lane.is_left; lane.done.store(last, std::memory_order_release), wake(lane.done)) {
    await_order(lane, last);
    last = lane.asked.load(std::memory_order_acquire);
    if (made >= 0) ::syscall(SYS_close, made);
    if (lane.is_left) break;
    lane.order->carry_out(place);
    made = lane.order->made;
  }
  ::syscall(SYS_exit, 0);
  return 0;
}

// ---- the thread that makes it

// Called by whichever of the two threads sees last that the proxy has ended and that its order was left.
void forgive(Lane& lane) {
  if (!lane.has_ended || !lane.is_silent.exchange(false)) return;
  silent().remove(lane.owner.user);
  silent_ones().remove(lane.owner.pid);
}

void await_end(const std::shared_ptr<Lane>& lane) {
  const pid_t pid = ::clone(serve, lane->stack.data() + lane->stack.size(), CLONE_VM, lane.get());
  lane->pid = pid;
  if (pid > 0) living().add(pid);
  while (pid > 0 && ::waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  if (pid > 0) living().remove(pid);
  lane->has_ended = true;
  wake(lane->done);
  forgive(*lane);
}

std::shared_ptr<Lane> start() {
  auto lane = std::make_shared<Lane>();
  try {
    start_signal_masked_thread([lane] { await_end(lane); }).detach();
  } catch (const std::system_error&) {
    return nullptr;
  }
  return lane;
}

// ---- its thread's half

void leave(Lane& lane) {
  lane.is_left = true;
  lane.asked.fetch_add(1, std::memory_order_release);
  wake(lane.asked);
}

class OwnLane {
 public:
  OwnLane() = default;
  OwnLane(const OwnLane&) = delete;
  OwnLane& operator=(const OwnLane&) = delete;
  ~OwnLane() { forget(); }

  // Null: there is none.
  std::shared_ptr<Lane> get() {
    const bool is_gone =
        lane_ != nullptr && (lane_->has_ended || lane_->tool != ::getpid());  // it stayed with the parent
    if (is_gone) lane_ = nullptr;
    if (lane_ == nullptr) lane_ = start();
    return lane_;
  }
  void forget() {
    if (lane_ != nullptr) leave(*lane_);
    lane_ = nullptr;
  }

 private:
  std::shared_ptr<Lane> lane_;
};

// Whether the proxy would go on if a processor were free. One that a signal has stopped is not held by the user.
bool wants_to_run(pid_t pid) {
  if (pid == 0) return true;  // it is being made
  const auto status = procfs::read(pid, "status");
  const auto state = status ? procfs::field(*status, "State").value_or("") : std::string_view();
  if (state.starts_with('T')) ::kill(pid, SIGCONT);
  return state.starts_with('R') || state.starts_with('T');
}

thread_local std::chrono::milliseconds t_patience = kPatience;
thread_local bool t_insists = false;

Clock::duration patience() {
  return Clock::now() < impatient_until.load() ? std::min(kLittlePatience, t_patience) : t_patience;
}

// Waits for the proxy to be done with the order.
bool await_done(Lane& lane, const Order& order, std::uint32_t number) {
  constexpr timespec kLook{0, 10'000'000};
  const auto is_done = [&] { return lane.done.load(std::memory_order_acquire) == number; };
  if (is_soon(lane, is_done)) return true;
  const auto allowed = patience(), most = 10 * allowed;
  std::uint32_t steps = order.steps;
  const auto begun = Clock::now();
  for (auto since = begun; !is_done();) {
    if (lane.has_ended) return is_done();
    wait_for_change(lane.done, number - 1, &kLook);
    const auto now = Clock::now();
    if (order.steps != steps) steps = order.steps, since = now;
    const bool is_over = now - since > allowed || now - begun > most;
    if (now - begun > kMostPatience || (is_over && !wants_to_run(lane.pid))) return is_done();
  }
  return true;
}

bool is_held_up(Owner owner) {
  if (silent().size() >= (t_insists ? kMostInsisting : kMostLeft)) return true;
  const std::size_t of_user = silent().count(owner.user);
  if (of_user == 0) return false;
  return owner.pid == 0 || silent_ones().has(owner.pid) || (of_user >= kMostOfUser && !t_insists);
}

void take_made(const Lane& lane, Order& order) {
  if (order.made < 0) return;
  const Fd proxy(static_cast<int>(::syscall(SYS_pidfd_open, lane.pid.load(), 0)));
  order.taken = Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, proxy.get(), order.made, 0)));
}

}  // namespace

Outcome carry_out(const std::shared_ptr<Order>& order, Owner owner) {
  thread_local OwnLane own;
  if (is_held_up(owner)) return Outcome::silent;
  const auto lane = own.get();
  if (lane == nullptr) return Outcome::impossible;
  lane->order = order, lane->owner = owner;
  const std::uint32_t number = lane->asked.fetch_add(1, std::memory_order_release) + 1;
  wake(lane->asked);
  if (await_done(*lane, *order, number)) return take_made(*lane, *order), lane->order = nullptr, Outcome::done;
  if (lane->pid < 0) return Outcome::impossible;
  silent().add(owner.user);
  silent_ones().add(owner.pid);
  impatient_until = Clock::now() + kWhile;
  lane->is_silent = true;
  own.forget();
  forgive(*lane);
  return Outcome::silent;
}

void insist() { t_insists = true; }

void limit_patience(std::chrono::milliseconds patience) { t_patience = patience; }

bool is_own(pid_t pid) { return living().has(pid); }

}  // namespace uprobe::proxy
