// SPDX-License-Identifier: MIT
#include "engine/process/mapped_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>

namespace uprobe::control {

MappedMemory::~MappedMemory() {
  for (const auto& [at, bytes] : places_)
    static_cast<void>(target_.system_call(SYS_munmap, {at.value, bytes, 0, 0, 0, 0}));
}

Result<Addr> MappedMemory::map(std::uint64_t bytes, int protection, int flags, const std::string& what, Addr wish) {
  auto place = target::map_memory(target_, wish, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0, what);
  if (place) places_.emplace_back(*place, bytes);
  return place;
}

Result<Addr> MappedMemory::map_scratch(std::uint64_t bytes) {
  return map(bytes, PROT_READ | PROT_WRITE, 0, "scratch memory");
}

}  // namespace uprobe::control
