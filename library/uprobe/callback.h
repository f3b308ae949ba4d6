// SPDX-License-Identifier: MIT
// Callbacks: functions of a test that run where a probed function of the test's own process begins or returns.
//
//   auto session = libuprobe::Session::attach(
//       {.callbacks = {libuprobe::on_entry("p:price ./libprices.so:price_of",
//                                          [](const char* what, int count) -> std::optional<int> {
//                                            if (count > 1000) return -1;   // price_of() does not run, and returns -1
//                                            return std::nullopt;           // price_of() runs
//                                          }),
//                      libuprobe::on_return("r:paid ./libshop.so:pay", [&](long cents) { total += cents; })}},
//       getpid());
//
// What runs where. The probe is a breakpoint; at a hit the agent, in its signal handler, decides, and lets the thread go on in a *gate*,
// code of this library, in place of the function. So the callback runs in the thread that called the function, after the
// signal handler, as if the function had called it: with the thread's own signal mask and stack, below the function's frame, at a
// point where any function may be called. All registers are put back after it; errno is, too, unless the callback gives a result. What
// the callback changes by the pointers that it gets, it changes for the program.
//
// When it is not called; CallbackCounts has how often, and why:
//   - within a signal handler of the program (the gate looks at the callers, as an exception does), or where the callers cannot be
//     followed to the beginning of the thread;
//   - within a callback: a hit there is an event, and nothing more; so is one on another stack while the thread is in a callback;
//   - in a child of fork, and in programs that children begin;
//   - under a shadow stack, and where less than 16 KiB of the stack are left (Counts::not_called). A stack without a page
//     below it that cannot be read, as some coroutines have, has to have them: where it ends is not to be seen.
// A condition of the definition ("p:price ./libprices.so:price_of count=%si if count > 1000") chooses among events and calls alike.
//
// What a callback may do: what the probed function might do at that place. If that is one of the allocator, it must not allocate, and
// the same holds for functions that are called under locks which the callback wants itself. An exception that leaves it comes to the
// caller as if the function had thrown it (where the compiler has seen that it never throws, the program ends), and the end of the
// thread (pthread_exit, a cancellation) passes it in the same way. A thread that leaves it by longjmp counts as one inside until it
// calls a probed function again on that stack: the end of the session waits for it for ten seconds. It must not stop or destroy the
// session, nor go on in another thread. It runs in several threads at a time if the function does. A failed EXPECT_ of GoogleTest is an
// ordinary failure.
//
// What is refused when the session begins: places that are not the first instruction of a function, or, for a return, functions whose
// returns are not all known; a second callback at a place; functions of the dynamic loader, which the callback itself needs; sessions
// with other processes; processors without XSAVE, and C libraries whose unwinding takes locks (glibc before 2.35, musl).
//
// Each callback is a definition, as those of Options::definitions, so its hits are events too: wait_for() and counts() know them. A function
// that a callback keeps from running has no event at its return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "session.h"

namespace libuprobe {

namespace typed {

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<A...>;
};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const noexcept> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) noexcept> : Signature<R (*)(A...)> {};
template <class R, class... A>
struct Signature<R (*)(A...) noexcept> : Signature<R (*)(A...)> {};

// How many arguments of each kind have been taken.
struct Taken {
  std::size_t integers = 0, floats = 0, words = 0;
};

template <class T>
T from_word(std::uint64_t word) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<std::uint8_t>(word) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(word);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(static_cast<std::underlying_type_t<T>>(word));
  } else {
    static_assert(sizeof(T) <= sizeof word);
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
}

// By the calling convention (System V ABI): six integers and eight floating point numbers are in registers.
template <class T>
T argument(const Call& call, Taken& taken) {
  if constexpr (std::is_lvalue_reference_v<T>) {
    return *argument<std::remove_reference_t<T>*>(call, taken);
  } else {
    using V = std::remove_cv_t<T>;
    static_assert(std::is_integral_v<V> || std::is_enum_v<V> || std::is_pointer_v<V> || std::is_same_v<V, float> ||
                      std::is_same_v<V, double>,
                  "an argument is an integer, an enum, a pointer, a reference, a float or a double: take a struct "
                  "apart, or by pointer");
    static_assert(sizeof(V) <= 8, "an integer has 64 bits at most");
    constexpr bool kIsFloat = std::is_floating_point_v<V>;
    std::size_t& count = kIsFloat ? taken.floats : taken.integers;
    const std::size_t in_registers = kIsFloat ? 8 : 6;
    if (count >= in_registers) return from_word<V>(call.stacked(taken.words++));
    return from_word<V>(kIsFloat ? call.floating(count++) : call.integer(count++));
  }
}

template <class T>
void give(Call& call, const T& value) {
  static_assert(sizeof(T) <= 8, "a result has 64 bits at most");
  if constexpr (std::is_floating_point_v<T>) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, &value, sizeof value);
    call.give_floating(bytes);
  } else if constexpr (std::is_pointer_v<T>) {
    call.give(reinterpret_cast<std::uintptr_t>(value));
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>,
                  "a result is an integer, an enum, a pointer, a float or a double");
    call.give(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
}

template <class F, class... A>
void run(F& function, Call& call, A&&... arguments) {
  using R = decltype(function(std::forward<A>(arguments)...));
  if constexpr (std::is_void_v<R>) {
    function(std::forward<A>(arguments)...);
  } else {
    static_assert(std::is_same_v<R, std::optional<typename R::value_type>>,
                  "a callback returns nothing, or std::optional of what the function returns");
    if (const R result = function(std::forward<A>(arguments)...)) give(call, *result);
  }
}

template <class Arguments>
struct TakesCall : std::false_type {};
template <class... A>
struct TakesCall<std::tuple<Call&, A...>> : std::true_type {};

// Braces evaluate from left to right.
template <class F, class... A>
void apply(F& function, Call& call, std::tuple<A...>*) {
  Taken taken;
  std::tuple<A...> values{argument<A>(call, taken)...};
  std::apply([&](auto&&... all) { run(function, call, std::forward<decltype(all)>(all)...); }, std::move(values));
}
template <class F, class... A>
void apply_with_call(F& function, Call& call, std::tuple<Call&, A...>*) {
  Taken taken;
  std::tuple<A...> values{argument<A>(call, taken)...};
  std::apply([&](auto&&... all) { run(function, call, call, std::forward<decltype(all)>(all)...); }, std::move(values));
}

template <class F>
std::function<void(Call&)> adapt(F function) {
  using Arguments = typename Signature<std::decay_t<F>>::Arguments;
  return [function = std::move(function)](Call& call) mutable {
    if constexpr (TakesCall<Arguments>::value)
      apply_with_call(function, call, static_cast<Arguments*>(nullptr));
    else
      apply(function, call, static_cast<Arguments*>(nullptr));
  };
}

}  // namespace typed

// `function` takes the arguments of the probed function, or the first ones; Call& before them if it wants that. It returns nothing, or an
// std::optional: a value is returned in place of the function, which does not run.
template <class F>
Callback on_entry(std::string definition, F function) {
  return {std::move(definition), false, typed::adapt(std::move(function))};
}

// `function` takes the result of the probed function, after Call& if it wants that. It returns nothing, or an std::optional: a value
// takes the place of the result. The definition gets $retval as a field, unless it has that.
template <class F>
Callback on_return(std::string definition, F function) {
  return {std::move(definition), true, typed::adapt(std::move(function))};
}

}  // namespace libuprobe
