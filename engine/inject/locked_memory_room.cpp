// SPDX-License-Identifier: MIT
// The process itself reads its limit and raises it, since the tool needs CAP_SYS_RESOURCE for another user's.
#include "engine/inject/locked_memory_room.h"

#include <sys/syscall.h>

namespace uprobe::control {

LockedMemoryRoom::LockedMemoryRoom(target::Target& target, Addr scratch) : target_(target), scratch_(scratch) {
  const auto asked = target.system_call(SYS_prlimit64, {0, RLIMIT_MEMLOCK, 0, scratch.value, 0, 0});
  if (!asked || *asked != 0 || !target.read(scratch, &before_, sizeof before_)) return;
  const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
  is_raised_ =
      ::prlimit(target.pid(), RLIMIT_MEMLOCK, &none, nullptr) == 0 || set({before_.rlim_max, before_.rlim_max});
}

LockedMemoryRoom::~LockedMemoryRoom() {
  const rlimit nothing{};
  if (is_raised_) set(before_);
  static_cast<void>(target_.write(scratch_, &nothing, sizeof nothing));
}

bool LockedMemoryRoom::set(const rlimit& limit) {
  if (!target_.write(scratch_, &limit, sizeof limit)) return false;
  const auto done = target_.system_call(SYS_prlimit64, {0, RLIMIT_MEMLOCK, scratch_.value, 0, 0, 0});
  return done && *done == 0;
}

}  // namespace uprobe::control
