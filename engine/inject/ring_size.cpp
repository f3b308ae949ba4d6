// SPDX-License-Identifier: MIT
#include "engine/inject/ring_size.h"

#include <sys/resource.h>
#include <unistd.h>

#include "engine/inject/load.h"
#include "engine/inject/memory_room.h"
#include "engine/trace/reader.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kMost = 8u << 20, kLeast = 1u << 20;
constexpr std::uint64_t kMostTogether = 1u << 30;
constexpr std::uint64_t kOtherBytes = 1u << 20;  // of the same file, about

bool is_within(rlim_t limit, std::uint64_t bytes) { return limit == RLIM_INFINITY || bytes <= limit; }

bool fits(pid_t pid, std::uint64_t together) {
  rlimit space{}, file{};
  const bool has_limits = ::prlimit(pid, RLIMIT_AS, nullptr, &space) == 0 && ::getrlimit(RLIMIT_FSIZE, &file) == 0;
  return has_limits && is_within(space.rlim_cur, kAddressShare * 2 * (together + kOtherBytes)) &&
         is_within(file.rlim_cur, together + kOtherBytes) && has_memory_for(pid, together);
}

}  // namespace

std::uint64_t usual_ring_bytes(pid_t pid, std::uint32_t rings) {
  std::uint64_t bytes = kMost;
  while (bytes > kLeast && bytes * rings > kMostTogether) bytes /= 2;
  while (bytes > kLeast && !fits(pid, bytes * rings)) bytes /= 2;
  return bytes;
}

std::uint64_t usual_pending_bytes() {
  constexpr std::uint64_t kLeastPending = 4u << 20;
  std::uint64_t bytes = trace::ReaderOptions().pending_bytes;
  while (bytes > kLeastPending && !has_memory_for(::getpid(), bytes)) bytes /= 2;
  return bytes;
}

}  // namespace uprobe::control
