// SPDX-License-Identifier: MIT
// The four functions that compilers call on their own, also in freestanding code. Byte loops: `rep movs` depends on DF,
// which belongs to the application.
#include <cstddef>

extern "C" {

__attribute__((visibility("hidden"))) void* memcpy(void* to, const void* from, std::size_t n) {
  auto* d = static_cast<unsigned char*>(to);
  const auto* s = static_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < n; ++i) d[i] = s[i];
  return to;
}

__attribute__((visibility("hidden"))) void* memset(void* to, int value, std::size_t n) {
  auto* d = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < n; ++i) d[i] = static_cast<unsigned char>(value);
  return to;
}

__attribute__((visibility("hidden"))) void* memmove(void* to, const void* from, std::size_t n) {
  auto* d = static_cast<unsigned char*>(to);
  const auto* s = static_cast<const unsigned char*>(from);
  if (d <= s) return memcpy(to, from, n);
  while (n-- != 0) d[n] = s[n];
  return to;
}

__attribute__((visibility("hidden"))) int memcmp(const void* a, const void* b, std::size_t n) {
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  for (std::size_t i = 0; i < n; ++i)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

}  // extern "C"
