// SPDX-License-Identifier: MIT
// The main of a fuzz test: runs every seed, every short prefix of it, then UPROBE_FUZZ_ITERATIONS (default 20,000) mutations.
// The random numbers have a fixed start, so that a failure can be repeated: UPROBE_FUZZ_TRACE=1 prints each iteration before it
// runs, and UPROBE_FUZZ_SEED sets another start.
#include "tests/fuzz/driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

using Random = std::mt19937_64;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

std::size_t below(Random& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// A place in the input, preferably one that is not zero: binary formats are mostly zeros that no reader examines.
std::size_t place(const std::string& input, Random& random, std::size_t limit) {
  std::size_t at = below(random, limit);
  for (int tries = 0; tries < 4 && at < input.size() && input[at] == 0; ++tries) at = below(random, limit);
  return at;
}

// A number that programs often get wrong, of 1, 2, 4 or 8 bytes, at a random place.
void put_number(std::string& input, Random& random) {
  constexpr std::uint64_t kNumbers[] = {0,
                                        1,
                                        7,
                                        0x7f,
                                        0x80,
                                        0xff,
                                        0x7fff,
                                        0xffff,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        0xffffffffffffffff};
  const std::size_t width = std::size_t{1} << below(random, 4);
  if (input.size() < width) return;
  const std::uint64_t number = kNumbers[below(random, std::size(kNumbers))] + below(random, 2);
  const std::size_t at = place(input, random, input.size() - width + 1);
  for (std::size_t i = 0; i < width; ++i) input[at + i] = static_cast<char>(number >> (8 * i));
}

void copy_within(std::string& input, Random& random) {
  const std::size_t from = place(input, random, input.size()), to = place(input, random, input.size());
  const std::size_t size = std::min({below(random, 32), input.size() - from, input.size() - to});
  input.replace(to, size, input.substr(from, size));
}

void change_byte(std::string& input, Random& random) {
  if (input.empty()) return;
  char& byte = input[place(input, random, input.size())];
  byte =
      static_cast<char>(below(random, 2) == 0 ? random() : static_cast<unsigned char>(byte) ^ 1U << below(random, 8));
}

// In formats with offsets a changed length spoils everything after it, so it is rare.
void change_length(std::string& input, Random& random) {
  if (below(random, 2) == 0)
    input.insert(below(random, input.size() + 1), 1, static_cast<char>(random()));
  else
    input.erase(below(random, input.size() + 1), below(random, 8));
}

void mutate(std::string& input, Random& random) {
  switch (below(random, 16)) {
    case 0:
      change_length(input, random);
      break;
    case 1:
    case 2:
      copy_within(input, random);
      break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
      put_number(input, random);
      break;
    default:
      change_byte(input, random);
      break;
  }
}

}  // namespace

int main() {
  const std::vector<std::string> seeds = fuzz_seeds();
  if (seeds.empty()) {
    std::fprintf(stderr, "there is no seed\n");
    return 1;
  }
  for (const std::string& seed : seeds) {
    run(seed);
    for (std::size_t size = 0; size < std::min<std::size_t>(seed.size(), 512); ++size) run(seed.substr(0, size));
  }
  const std::uint64_t iterations = setting("UPROBE_FUZZ_ITERATIONS", 20000);
  const bool is_traced = setting("UPROBE_FUZZ_TRACE", 0) != 0;
  Random random(setting("UPROBE_FUZZ_SEED", 1));
  for (std::uint64_t i = 0; i < iterations; ++i) {
    std::string input = seeds[below(random, seeds.size())];
    for (std::size_t left = 1 + below(random, 8); left != 0; --left) mutate(input, random);
    if (is_traced) std::fprintf(stderr, "%llu\n", static_cast<unsigned long long>(i));
    run(input);
  }
  std::printf("%zu seeds, %llu mutations\n", seeds.size(), static_cast<unsigned long long>(iterations));
  return 0;
}
