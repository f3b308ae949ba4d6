// SPDX-License-Identifier: MIT
#include "library/callbacks.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <chrono>

#include "engine/shared/trigger.h"
#include "engine/spec/condition.h"
#include "library/system_call.h"

// glibc 2.35 and later: unwinders ask it for tables, without a lock.
extern "C" int _dl_find_object(void*, void*) __attribute__((weak));

namespace libuprobe {
namespace {

using uprobe::arch::CallbackFrame;
using uprobe::arch::ExtendedState;

uprobe::shared::CallbackGate g_gate{};
std::atomic<Callbacks*> g_callbacks{nullptr};
std::atomic<std::int64_t> g_inside{0};

// What a thread is about. The model keeps the access from allocating.
struct Thread {
  std::uint64_t running = 0;  // the frame of the callback that it runs, 0: none
  std::uint64_t base = 0;     // of the stack on which it does
  std::uint64_t walking = 0;  // the frame whose callers it looks at, 0: none
  bool is_left_out = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Thread t_thread;

// A thread that has left a callback by longjmp counts as one inside until it calls a probed function again.
constexpr std::chrono::seconds kMostPatience{10};

std::uint64_t address_of(const CallbackFrame& frame) { return reinterpret_cast<std::uintptr_t>(&frame); }

// What the unwinder itself calls. A frame that a handler has left by longjmp lies below the stack pointer now.
bool is_in_walk(const CallbackFrame& frame) {
  return t_thread.walking != 0 && frame.entry.caller_sp < t_thread.walking;
}

// What ends by an exception, or with the thread, is left as ever.
class Inside {
 public:
  Inside() { g_inside.fetch_add(1); }
  ~Inside() { g_inside.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

class Running {
 public:
  Running(const CallbackFrame& frame, std::uint64_t base) {
    t_thread.running = address_of(frame);
    t_thread.base = base;
  }
  ~Running() { t_thread.running = 0; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

enum class Place { ordinary, signal, callback, unsure };

// The callers of a hit.
struct Walk {
  std::uint64_t address = 1;  // of the outermost frame; 0: the thread begins there
  std::uint64_t base = 0;     // of the stack: where its outermost frame ends
  std::uint32_t frames = 0, gates = 0;
  bool found_signal = false;
};

// An interrupted frame is the only one whose address is that of an instruction which has not run yet. The first gate is that of the hit.
_Unwind_Reason_Code look(_Unwind_Context* context, void* of) {
  constexpr std::uint32_t kMostFrames = 100'000;
  Walk& walk = *static_cast<Walk*>(of);
  int is_interrupted = 0;
  walk.address = _Unwind_GetIPInfo(context, &is_interrupted);
  walk.base = _Unwind_GetCFA(context);
  walk.found_signal = is_interrupted != 0;
  if (walk.address == uprobe::arch::address_in_gate()) ++walk.gates;
  const bool is_enough = walk.found_signal || walk.gates > 1 || ++walk.frames == kMostFrames;
  return is_enough ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

Walk walk_from(const CallbackFrame& frame) {
  const std::uint64_t before = t_thread.walking;
  t_thread.walking = address_of(frame);
  const int error = errno;
  Walk walk;
  _Unwind_Backtrace(look, &walk);
  errno = error;
  t_thread.walking = walk.found_signal ? before : 0;  // a handler may have interrupted another walk
  return walk;
}

// The outermost frame of a thread has no return address, which the walk shows as 0. One that ends elsewhere has met code without
// tables, and a signal handler may be beyond it. On another stack than the callback's nothing tells whether that has been left.
Place place_of(const Walk& walk) {
  if (walk.found_signal) return Place::signal;
  if (walk.gates > 1) return Place::callback;
  if (walk.address != 0) return Place::unsure;
  return t_thread.running != 0 && walk.base != t_thread.base ? Place::callback : Place::ordinary;
}

// Other threads are not in the child.
void begin_child() { g_inside = t_thread.running != 0 ? 1 : 0; }

Error cannot(std::string why) { return Error{.text = "callbacks cannot be called here: " + std::move(why)}; }

Status prepare_gate() {
  if (&_dl_find_object == nullptr)
    return cannot("unwinding takes locks in this C library (glibc 2.35 and later takes none)");
  if (uprobe::arch::has_shadow_stack()) return cannot("the process has a shadow stack");
  const std::uint64_t bytes = uprobe::arch::extended_state_bytes();
  if (bytes == 0) return cannot("the processor has no XSAVE");
  uprobe::arch::uprobe_callback_state_bytes = bytes;
  Walk walk;
  _Unwind_Backtrace(look, &walk);  // what the unwinder does once, it does here
  static const int known = ::pthread_atfork(nullptr, nullptr, begin_child);
  if (known != 0) return cannot("no memory for a handler of fork");
  if (::getrandom(&g_gate.cookie, sizeof g_gate.cookie, 0) != sizeof g_gate.cookie) return cannot("no random number");
  g_gate.cookie |= 1;
  g_gate.entry = reinterpret_cast<std::uintptr_t>(&uprobe::arch::uprobe_callback_gate);
  return Nothing{};
}

}  // namespace

Result<std::unique_ptr<Callbacks>> Callbacks::make(const std::vector<Callback>& all) {
  if (all.size() > uprobe::shared::kMostCallbacks)
    return Error{.text = "a session has " + std::to_string(uprobe::shared::kMostCallbacks) + " callbacks at most"};
  if (const Status ready = all.empty() ? Status(Nothing{}) : prepare_gate(); !ready) return ready.error();
  std::unique_ptr<Callbacks> made(new Callbacks);
  for (const Callback& one : all) {
    made->all_.push_back(std::make_unique<Known>());
    Callback& kept = made->all_.back()->callback = one;
    if (kept.at_return && kept.definition.find("$retval") == std::string::npos)
      kept.definition = uprobe::spec::with_words(kept.definition, " retval=$retval");
  }
  g_callbacks = made.get();
  return made;
}

Callbacks::~Callbacks() { end(); }

void Callbacks::end() {
  Callbacks* self = this;
  if (!g_callbacks.compare_exchange_strong(self, nullptr)) return;
  const std::int64_t own = t_thread.running != 0 ? 1 : 0;
  const auto deadline = std::chrono::steady_clock::now() + kMostPatience;
  while (inside() > own && std::chrono::steady_clock::now() < deadline) system_call(SYS_sched_yield);
  if (inside() <= own) return;
  for (auto& known : all_) static_cast<void>(known.release());  // a thread may still use them
}

std::string Callbacks::words() const {
  return std::to_string(all_.size()) + "," + std::to_string(reinterpret_cast<std::uintptr_t>(&g_gate)) + "," +
         std::to_string(g_gate.cookie);
}

std::vector<std::string> Callbacks::definitions() const {
  std::vector<std::string> texts;
  texts.reserve(all_.size());
  for (const auto& known : all_) texts.push_back(known->callback.definition);
  return texts;
}

std::vector<CallbackCounts> Callbacks::counts() const {
  std::vector<CallbackCounts> counts;
  counts.reserve(all_.size());
  for (const auto& known : all_)
    counts.push_back(
        {.called = known->called, .in_signal = known->in_signal, .unsure = known->unsure, .nested = known->nested});
  return counts;
}

// A hit of an earlier session may arrive late: its cookie is another one.
bool Callbacks::dispatch(CallbackFrame& frame, ExtendedState& state) {
  const Inside inside;  // before the look: end() waits for what it finds here
  Callbacks* const all = g_callbacks;
  const std::uint64_t number = uprobe::shared::number_in(frame.entry.mark);
  if (all == nullptr || all->process_ != current_process() || number >= all->all_.size()) return false;
  if (frame.entry.mark != uprobe::shared::callback_mark(number, g_gate.cookie)) return false;
  return all->enter(*all->all_[number], frame, state);
}

std::int64_t Callbacks::inside() { return g_inside; }

void Callbacks::leave_out_thread() { t_thread.is_left_out = true; }

bool Callbacks::enter(Known& known, CallbackFrame& frame, ExtendedState& state) {
  if (t_thread.is_left_out) return false;
  if (is_in_walk(frame)) return ++known.nested, false;
  const Walk walk = walk_from(frame);
  switch (place_of(walk)) {
    case Place::signal:
      return ++known.in_signal, false;
    case Place::callback:
      return ++known.nested, false;
    case Place::unsure:
      return ++known.unsure, false;
    case Place::ordinary:
      break;
  }
  if (t_thread.running != 0) g_inside.fetch_sub(1);  // left by longjmp
  const Running running(frame, walk.base);
  return run(known, frame, state);
}

bool Callbacks::run(Known& known, CallbackFrame& frame, ExtendedState& state) {
  const int error = errno;
  ++known.called;
  Call call(&frame, &state, known.callback.at_return);
  known.callback.run(call);
  errno = call.has_result_ ? call.error_.value_or(error) : error;
  if (!call.has_result_ || call.is_return_) return false;
  uprobe::arch::return_at_once(frame);
  return true;
}

std::uint64_t Call::integer(std::size_t n) const {
  CallbackFrame& frame = *static_cast<CallbackFrame*>(frame_);
  if (is_return_) return uprobe::arch::result_of(frame);
  return n < uprobe::arch::kIntegersInRegisters ? uprobe::arch::integer_argument(frame, n) : 0;
}

std::uint64_t Call::floating(std::size_t n) const {
  const auto& state = *static_cast<const ExtendedState*>(state_);
  if (is_return_) return uprobe::arch::vector_word(state, 0);
  return n < uprobe::arch::kFloatsInRegisters ? uprobe::arch::vector_word(state, n) : 0;
}

std::uint64_t Call::stacked(std::size_t n) const {
  return is_return_ ? 0 : uprobe::arch::stack_argument(*static_cast<const CallbackFrame*>(frame_), n);
}

void Call::give(std::uint64_t result) {
  uprobe::arch::result_of(*static_cast<CallbackFrame*>(frame_)) = result;
  has_result_ = true;
}

void Call::give_floating(std::uint64_t bytes) {
  uprobe::arch::set_vector_result(*static_cast<ExtendedState*>(state_), bytes);
  has_result_ = true;
}

}  // namespace libuprobe

// An exception passes the gate to the caller of the probed function.
extern "C" bool uprobe_callback_dispatch(uprobe::arch::CallbackFrame* frame, uprobe::arch::ExtendedState* state) {
  return libuprobe::Callbacks::dispatch(*frame, *state);
}
