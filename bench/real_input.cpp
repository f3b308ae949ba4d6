// SPDX-License-Identifier: MIT
// Input for the compiler in bench/real_work.py: everyday C++, mostly the standard library's headers. It is fixed: two runs must
// agree on how often the compiler allocates.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace {
std::map<std::string, std::vector<std::size_t>> index_of(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<std::size_t>> index;
  for (std::size_t i = 0; i < words.size(); ++i) index[words[i]].push_back(i);
  return index;
}
}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (const auto& [word, places] : index_of(words)) std::cout << word << ' ' << places.size() << '\n';
}
