// SPDX-License-Identifier: MIT
// The trust domains of a session, and which of its live parts each of them has: at most kMost, the first for the processes that it
// began with.
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
  // Makes a further part and says its number, which is that of the parts before; an Error: there is none to be had.
  using MakePart = std::function<Result<std::size_t>()>;
  explicit Domains(MakePart make_part) : make_part_(std::move(make_part)) {}

  // The part for processes with these credentials, made if there is none yet. The first ones get part 0, which is there already.
  // Code::limit: there are kMost.
  Result<std::size_t> part_for(const Credentials& credentials);
  // Empty ones where no process has asked for the part.
  Credentials domain_of(std::size_t part) const;
  std::size_t count() const;
  // Whether what happens in `from` may decide about `to`: `to` has equal or less privilege.
  bool may_decide(std::size_t from, std::size_t to) const;

 private:
  const MakePart make_part_;
  mutable std::mutex lock_;
  std::vector<Credentials> domains_;
};

}  // namespace uprobe::control
