// SPDX-License-Identifier: MIT
// "Did you mean": the names of a list that are most similar to a misspelt one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace uprobe::elf {

// Offer every candidate, then ask for the best. A candidate is near when it differs by at most a third of the wanted
// characters (insertion, deletion, replacement or swap of neighbours, capitals ignored), or when one contains the
// other. A wanted name without "::" is also compared with the last part of a C++ name.
class NearNames {
 public:
  explicit NearNames(std::string_view wanted);

  // The text is kept as a view: it must live until best() has returned.
  void offer(std::string_view candidate);
  // Best first, no two equal; the same whatever the order of the offers was.
  std::vector<std::string> best(std::size_t most) const;

 private:
  struct Scored {
    unsigned score;
    std::string_view name;
    auto operator<=>(const Scored&) const = default;
  };
  unsigned score(std::string_view candidate);
  unsigned distance(std::string_view candidate);

  std::string wanted_;  // lower case
  bool has_scope_;
  unsigned limit_;  // largest distance that is near
  std::vector<Scored> near_;
  std::string lower_;  // scratch, so that an offer does not allocate
  std::vector<unsigned> rows_[3];
};

}  // namespace uprobe::elf
