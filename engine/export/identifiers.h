// SPDX-License-Identifier: MIT
// Names for formats in which a name has to be an identifier. Names come from files and recordings, and may contain any bytes.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace uprobe::format {

// Letters, digits and underlines, no digit first; every other character is an underline.
std::string identifier(std::string_view name);

// Gives each name an identifier of its own: `a`, and for the next name that would be the same, `a_2`.
class Identifiers {
 public:
  std::string take(std::string_view name);

 private:
  std::set<std::string> taken_;
};

}  // namespace uprobe::format
