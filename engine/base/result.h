// SPDX-License-Identifier: MIT
// Result<T>: a value or an Error. Tool side only. std::expected is C++23 and does not build with clang 14 and
// libstdc++ 12, hence these lines.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace uprobe {

// The kind of a failure; the CLI derives its exit code from it.
enum class Code {
  usage,           // the caller's words are wrong (option, definition)
  not_found,       // a file, symbol or program does not exist
  not_executable,  // a program exists but cannot be run
  refused,         // possible in principle, but not done because it would be unsafe; the text says why
  limit,           // more than a documented limit
  damaged,         // a file or shared memory does not make sense
  killed,          // a signal killed the program before it ran; `signal` says which
  system,          // a system call failed; the text names it and its errno
};

// Whether a refusal may end, and what the caller does then.
enum class Retry {
  never,
  soon,      // another tool, or an execve, is at work in the process for a moment: the same call may succeed
  anew,      // the session that refused has ended: the caller begins again from the start
  join,      // another tool has the process: the caller may become its client
  needless,  // the call would change nothing
};

// One failure. `text` is one line without a full stop. `where` is its subject (a path, a definition); for a definition `column`
// is the byte of `where` under which the caret goes. `help` is one more line: what to do. `err` is the errno of the system
// call that failed, or of the kernel's interface for the same mistake (0: none). `definition` is the index of the definition among those given, from 0 (-1: none of
// them, or unknown).
struct Error {
  Code code = Code::usage;
  std::string text;
  std::string where = {};
  int column = -1;
  std::string help = {};
  int err = 0;
  int definition = -1;
  Retry retry = Retry::never;
  int signal = 0;  // with Code::killed
};

// Ends the program with the error's text on standard error: a value was taken from a failed Result.
[[noreturn]] void taken_from_failed(const Error& error);
// The same for the error of a Result that has a value.
[[noreturn]] void error_of_success();

// A value or an Error. Never empty. Taking the value of a failed one, or the error of another one, is a programming error and ends
// the program, in release builds too.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const {
    if (state_.index() != 1) error_of_success();
    return *std::get_if<1>(&state_);
  }
  T take() { return std::move(value()); }

 private:
  T& value() {
    if (state_.index() != 0) taken_from_failed(*std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    if (state_.index() != 0) taken_from_failed(*std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok() { return Unit{}; }

// RETURN_IF_ERROR(call): returns the call's Error from the calling function, or goes on.
#define RETURN_IF_ERROR(...) RETURN_IF_ERROR_AS(RETURN_IF_ERROR_NAME(__COUNTER__), __VA_ARGS__)
#define RETURN_IF_ERROR_NAME(number) RETURN_IF_ERROR_JOIN(tried_, number)
#define RETURN_IF_ERROR_JOIN(name, number) name##number
#define RETURN_IF_ERROR_AS(name, ...)                                \
  do {                                                               \
    if (const auto name = (__VA_ARGS__); !name) return name.error(); \
  } while (false)

// The error of a failed system call: "open /x: No such file or directory".
Error system_error(std::string what, int err);

}  // namespace uprobe
