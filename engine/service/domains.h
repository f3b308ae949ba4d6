// SPDX-License-Identifier: MIT
// The trust domains of a session and the live part of each: at most kMost. The first part is for the processes with which the
// session began.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/process/credentials.h"

namespace uprobe::control {

class Domains {
 public:
  static constexpr std::size_t kMost = 16;
  // Of one real user but root: in a user namespace of its own a process can give itself any number of different credentials.
  static constexpr std::size_t kMostOfUser = 5;
  // Makes a further part and returns its number, which is the number of parts so far. An Error: none can be made.
  using MakePart = std::function<Result<std::size_t>()>;
  explicit Domains(MakePart make_part) : make_part_(std::move(make_part)) {}

  // The part for processes with these credentials, made if it does not exist. The first credentials get part 0, which always
  // exists. Code::limit: all kMost parts are in use, or kMostOfUser for the user.
  Result<std::size_t> part_for(const Credentials& credentials);
  // The credentials of a part; empty where no process has asked for it.
  Credentials domain_of(std::size_t part) const;
  std::size_t count() const;
  // Whether events in `from` may decide about `to`: true if `to` has equal or less privilege.
  bool may_decide(std::size_t from, std::size_t to) const;

 private:
  const MakePart make_part_;
  mutable std::mutex lock_;
  std::vector<Credentials> domains_;
};

}  // namespace uprobe::control
