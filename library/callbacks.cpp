// SPDX-License-Identifier: MIT
#include "library/callbacks.h"

#include <sys/random.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <chrono>

#include "engine/shared/trigger.h"
#include "library/system_call.h"

// glibc 2.35 and later: unwinders ask it for tables, without a lock.
extern "C" int _dl_find_object(void*, void*) __attribute__((weak));

namespace libuprobe {
namespace {

using uprobe::arch::CallbackFrame;
using uprobe::arch::ExtendedState;

uprobe::shared::CallbackGate g_gate{};
std::atomic<Callbacks*> g_callbacks{nullptr};
std::atomic<std::uint64_t> g_inside{0};  // threads between the gate and a callback's end

// The frame of the callback that the thread runs, 0: none. The model keeps the access from allocating.
[[gnu::tls_model("initial-exec")]] thread_local std::uint64_t t_running = 0;

[[gnu::tls_model("initial-exec")]] thread_local bool t_is_left_out = false;

// A thread that has left a callback by longjmp counts as one inside until it calls a probed function again.
constexpr std::chrono::seconds kMostPatience{10};

std::uint64_t address_of(const CallbackFrame& frame) { return reinterpret_cast<std::uintptr_t>(&frame); }

// A frame that the thread has left by longjmp lies below its stack pointer now.
bool is_in_callback(const CallbackFrame& frame) { return t_running != 0 && frame.entry.caller_sp < t_running; }

enum class Place { ordinary, signal, unsure };

struct Walk {
  std::uint64_t address = 1;
  std::uint32_t frames = 0;
  bool found_signal = false;
};

// An interrupted frame is the only one whose address is that of an instruction which has not run yet.
_Unwind_Reason_Code look(_Unwind_Context* context, void* of) {
  constexpr std::uint32_t kMostFrames = 100'000;
  Walk& walk = *static_cast<Walk*>(of);
  int is_interrupted = 0;
  walk.address = _Unwind_GetIPInfo(context, &is_interrupted);
  walk.found_signal = is_interrupted != 0;
  return walk.found_signal || ++walk.frames == kMostFrames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// The outermost frame of a thread has no return address, which the walk shows as 0. One that ends elsewhere has met code without
// tables, and a signal handler may be beyond it.
Place place_of_thread() {
  Walk walk;
  _Unwind_Backtrace(look, &walk);
  if (walk.found_signal) return Place::signal;
  return walk.address == 0 ? Place::ordinary : Place::unsure;
}

Error cannot(std::string why) { return Error{.text = "callbacks cannot be called here: " + std::move(why)}; }

Status prepare_gate() {
  if (&_dl_find_object == nullptr)
    return cannot("unwinding takes locks in this C library (glibc 2.35 and later takes none)");
  if (uprobe::arch::has_shadow_stack()) return cannot("the process has a shadow stack");
  const std::uint64_t bytes = uprobe::arch::extended_state_bytes();
  if (bytes == 0) return cannot("the processor has no XSAVE");
  uprobe::arch::uprobe_callback_state_bytes = bytes;
  static_cast<void>(place_of_thread());  // what the unwinder does once, it does here
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
    if (kept.at_return && kept.definition.find("$retval") == std::string::npos) kept.definition += " retval=$retval";
  }
  g_callbacks = made.get();
  return made;
}

Callbacks::~Callbacks() { end(); }

void Callbacks::end() {
  Callbacks* self = this;
  if (!g_callbacks.compare_exchange_strong(self, nullptr)) return;
  const std::uint64_t own = t_running != 0 ? 1 : 0;
  const auto deadline = std::chrono::steady_clock::now() + kMostPatience;
  while (g_inside > own && std::chrono::steady_clock::now() < deadline) system_call(SYS_sched_yield);
  if (g_inside <= own) return;
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

bool Callbacks::dispatch(CallbackFrame& frame, ExtendedState& state) {
  if (t_running != 0 && !is_in_callback(frame)) {
    t_running = 0;  // left by longjmp
    g_inside.fetch_sub(1);
  }
  g_inside.fetch_add(1);  // before the look: end() waits for what it finds here
  Callbacks* const all = g_callbacks;
  bool leaves = false;
  if (all != nullptr && all->process_ == current_process() && frame.entry.number < all->all_.size())
    leaves = all->enter(*all->all_[frame.entry.number], frame, state);
  g_inside.fetch_sub(1);
  return leaves;
}

void Callbacks::leave_out_thread() { t_is_left_out = true; }

bool Callbacks::enter(Known& known, CallbackFrame& frame, ExtendedState& state) {
  if (t_is_left_out) return false;
  if (is_in_callback(frame)) return ++known.nested, false;
  const std::uint64_t before = t_running;
  t_running = address_of(frame);
  const int error = errno;
  const Place place = place_of_thread();
  bool leaves = false;
  errno = error;
  if (place == Place::ordinary)
    leaves = run(known, frame, state);
  else
    ++(place == Place::signal ? known.in_signal : known.unsure);
  t_running = before;
  return leaves;
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

// A callback must not throw: there is no frame that could take it.
extern "C" bool uprobe_callback_dispatch(uprobe::arch::CallbackFrame* frame,
                                         uprobe::arch::ExtendedState* state) noexcept {
  return libuprobe::Callbacks::dispatch(*frame, *state);
}
