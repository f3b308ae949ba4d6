// SPDX-License-Identifier: MIT
// Scores candidates by edit distance after cheap filters: most of 50,000 names are rejected by their length alone.
#include "engine/names/near_names.h"

#include <algorithm>

namespace uprobe::elf {
namespace {

constexpr std::size_t kMaxWanted = 256;   // a longer name is hardly a misspelling
constexpr std::size_t kMinContained = 4;  // many names contain shorter texts
constexpr unsigned kFar = UINT32_MAX;
constexpr unsigned kStep = 1000;  // between two edit distances; substrings are ranked by length below it

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view last_part(std::string_view name) {
  const std::size_t colons = name.rfind("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

}  // namespace

NearNames::NearNames(std::string_view wanted)
    : wanted_(wanted.substr(0, kMaxWanted)), has_scope_(wanted.find("::") != std::string_view::npos) {
  std::transform(wanted_.begin(), wanted_.end(), wanted_.begin(), lower);
  limit_ = std::max(1U, std::min(static_cast<unsigned>(wanted_.size() / 3), 8U));
  for (auto& row : rows_) row.resize(wanted_.size() + 1);
}

// Optimal string alignment distance; gives up (kFar) as soon as it must be over the limit.
unsigned NearNames::distance(std::string_view candidate) {
  const std::size_t width = wanted_.size();
  const std::size_t difference = candidate.size() > width ? candidate.size() - width : width - candidate.size();
  if (difference > limit_) return kFar;
  auto& [current, above, above2] = rows_;
  for (std::size_t j = 0; j <= width; ++j) current[j] = static_cast<unsigned>(j);
  for (std::size_t i = 1; i <= candidate.size(); ++i) {
    above2.swap(above);
    above.swap(current);
    current[0] = static_cast<unsigned>(i);
    unsigned least = current[0];
    for (std::size_t j = 1; j <= width; ++j) {
      const bool same = candidate[i - 1] == wanted_[j - 1];
      unsigned cost = std::min({above[j] + 1, current[j - 1] + 1, above[j - 1] + (same ? 0U : 1U)});
      if (i > 1 && j > 1 && candidate[i - 1] == wanted_[j - 2] && candidate[i - 2] == wanted_[j - 1])
        cost = std::min(cost, above2[j - 2] + 1);
      current[j] = cost;
      least = std::min(least, cost);
    }
    if (least > limit_) return kFar;
  }
  return current[width] <= limit_ ? current[width] : kFar;
}

unsigned NearNames::score(std::string_view candidate) {
  lower_.resize(candidate.size());
  std::transform(candidate.begin(), candidate.end(), lower_.begin(), lower);
  unsigned steps = distance(lower_);
  if (!has_scope_) steps = std::min(steps, distance(last_part(lower_)));
  if (steps != kFar) return steps * kStep;
  const bool contains = wanted_.size() >= kMinContained && lower_.find(wanted_) != std::string::npos;
  const bool contained = lower_.size() >= kMinContained && wanted_.find(lower_) != std::string::npos;
  if (!contains && !contained) return kFar;
  const auto extra = static_cast<unsigned>(contains ? lower_.size() - wanted_.size() : wanted_.size() - lower_.size());
  return (limit_ + 1) * kStep + std::min(extra, kStep - 1);
}

void NearNames::offer(std::string_view candidate) {
  const unsigned found = wanted_.empty() ? kFar : score(candidate);
  if (found != kFar) near_.push_back(Scored{found, candidate});
}

std::vector<std::string> NearNames::best(std::size_t most) const {
  std::vector<Scored> sorted = near_;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  sorted.resize(std::min(sorted.size(), most));
  std::vector<std::string> names;
  for (const Scored& one : sorted) names.emplace_back(one.name);
  return names;
}

}  // namespace uprobe::elf
