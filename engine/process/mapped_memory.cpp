// SPDX-License-Identifier: MIT
#include "engine/process/mapped_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <utility>

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

Result<std::vector<Addr>> MappedMemory::map_all(std::span<const Wanted> wanted) {
  std::vector<target::SystemCall> calls;
  calls.reserve(wanted.size());
  for (const Wanted& one : wanted)
    calls.push_back(target::map_call(one.wish, one.bytes, one.protection, MAP_PRIVATE | MAP_ANONYMOUS | one.flags));
  RETURN_IF_ERROR(target_.system_calls(calls));
  std::vector<Addr> places;
  places.reserve(wanted.size());
  Status done = ok();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    auto place = target::mapped_by(calls[i], wanted[i].what);
    if (!place && done) done = place.error();
    if (!place) continue;
    places.push_back(*place);
    places_.emplace_back(*place, wanted[i].bytes);
  }
  return done ? Result<std::vector<Addr>>(std::move(places)) : done.error();
}

Result<Addr> MappedMemory::map_scratch(std::uint64_t bytes) {
  return map(bytes, PROT_READ | PROT_WRITE, 0, "scratch memory");
}

}  // namespace uprobe::control
