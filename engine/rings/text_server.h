// SPDX-License-Identifier: MIT
// Gives out one text over a unix socket, by HTTP/1.0 (http.h), to any number of clients of the same user: kMostScrapers at a time.
//
// A thread of its own talks with the clients. It asks for a new text by a flag, which another thread sees when it likes: that one
// waits for nothing but the exchange of a pointer. A client for which no new text comes within kTextPatience gets the last one. Whatever a client sends or does not
// send, it is there for a few seconds at most, and where there are too many the one that has not asked yet has to leave.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/ipc/path_socket.h"

namespace uprobe {

inline constexpr std::size_t kMostScrapers = 16;
inline constexpr std::chrono::milliseconds kTextPatience{1000};
inline constexpr std::chrono::milliseconds kTextPace{250};  // a new text is made no more often

class TextServer {
 public:
  // Makes the socket (make_path_socket); `first` is the text until there is another one. Clients that connect wait until serve().
  static Result<TextServer> open(const std::string& path, std::string first);
  TextServer(TextServer&&) noexcept = default;
  TextServer& operator=(TextServer&&) = delete;
  // Gives clients that are there the last text, which takes a moment at most, and removes the socket.
  ~TextServer();

  // Call once. May throw std::system_error if no thread can be made.
  void serve();
  // Whether clients wait for a new text. For the thread that calls put().
  bool is_wanted();
  void put(std::string text);

  // What both threads use.
  struct Shared {
    std::mutex lock;
    std::shared_ptr<const std::string> text;  // under the lock, as is the next one
    std::uint64_t made = 0;                   // texts so far
    std::atomic<bool> is_wanted = false, is_ending = false;
    Fd bell;  // an eventfd of the tool alone: there is a new text
  };

 private:
  explicit TextServer(PathSocket socket) : socket_(std::move(socket)) {}

  PathSocket socket_;
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
  std::chrono::steady_clock::time_point next_{};
  std::thread thread_;
};

}  // namespace uprobe
