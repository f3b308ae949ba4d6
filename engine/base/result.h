// SPDX-License-Identifier: MIT
// Result<T>: a value or an Error. Tool side only. std::expected is C++23 and does not build with clang 14 and
// libstdc++ 12, hence these lines.
#pragma once

#include <cassert>
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
  killed,          // a signal killed the program before it ran; `err` is the signal
  system,          // a system call failed; the text names it and its errno
};

// One failure. `text` is one line without a full stop. `where` is its subject (a path, a definition); for a definition `column`
// is the byte of `where` under which the caret goes. `help` is one more line: what to do. `err` is the errno of the kernel's
// interface for the same mistake (0: none). `definition` is the index of the definition among those given, from 0 (-1: none of
// them, or unknown).
struct Error {
  Code code = Code::usage;
  std::string text;
  std::string where = {};
  int column = -1;
  std::string help = {};
  int err = 0;
  int definition = -1;
};

// A value or an Error. Never empty; taking the value of an Error is a programming error (assert).
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
  const Error& error() const { return std::get<1>(state_); }
  T take() { return std::move(value()); }

 private:
  T& value() {
    assert(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    assert(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok() { return Unit{}; }

// The error of a failed system call: "open /x: No such file or directory".
Error system_error(std::string what, int err);

}  // namespace uprobe
