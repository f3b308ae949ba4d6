// SPDX-License-Identifier: MIT
#include "engine/service/domains.h"

#include <algorithm>
#include <string>

namespace uprobe::control {

Result<std::size_t> Domains::part_for(const Credentials& credentials) {
  const std::lock_guard lock(lock_);
  const auto found =
      std::ranges::find_if(domains_, [&](const Credentials& known) { return is_same_domain(known, credentials); });
  if (found != domains_.end()) return static_cast<std::size_t>(found - domains_.begin());
  if (domains_.size() == kMost)
    return Error{.code = Code::limit,
                 .text = "the session already has processes of " + std::to_string(kMost) + " different credentials"};
  const std::uint32_t user = credentials.uids[0];
  const auto of_user = std::ranges::count_if(domains_, [user](const Credentials& c) { return c.uids[0] == user; });
  if (user != 0 && static_cast<std::size_t>(of_user) >= kMostOfUser)
    return Error{.code = Code::limit,
                 .text = "the session already has processes of " + std::to_string(kMostOfUser) +
                         " different credentials of this user"};
  if (!domains_.empty()) {
    const auto part = make_part_();
    if (!part) return part.error();
    if (*part != domains_.size()) return Error{.code = Code::damaged, .text = "the session's parts are out of order"};
  }
  domains_.push_back(credentials);
  return domains_.size() - 1;
}

Credentials Domains::domain_of(std::size_t part) const {
  const std::lock_guard lock(lock_);
  return part < domains_.size() ? domains_[part] : Credentials{};
}

std::size_t Domains::count() const {
  const std::lock_guard lock(lock_);
  return domains_.size();
}

bool Domains::may_decide(std::size_t from, std::size_t to) const {
  const std::lock_guard lock(lock_);
  return from < domains_.size() && to < domains_.size() && is_within(domains_[to], domains_[from]);
}

}  // namespace uprobe::control
