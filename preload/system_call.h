// SPDX-License-Identifier: MIT
// Raw system calls. A comment at each call says why it is safe at that place.
#pragma once

#include "arch/entry/system_call_numbers.h"
#include "arch/shared/system_call.h"
#include "engine/shared/layout.h"

namespace uprobe::agent {

inline long system_call(long number, shared::u64 a = 0, shared::u64 b = 0, shared::u64 c = 0, shared::u64 d = 0,
                        shared::u64 e = 0, shared::u64 f = 0) {
  return shared::make_system_call(number, a, b, c, d, e, f);
}

inline shared::u64 as_word(const void* pointer) { return reinterpret_cast<shared::u64>(pointer); }
// Whether an address is in the code between two labels.
inline bool is_in(shared::u64 address, const shared::u8* begin, const shared::u8* end) {
  return address >= as_word(begin) && address < as_word(end);
}
inline shared::u64 as_word(void (*function)()) { return reinterpret_cast<shared::u64>(function); }

// Queues a signal, with its siginfo, to the calling thread.
inline void queue_to_self(shared::u64 signal, const void* info) {
  const long pid = system_call(kSysGetpid), tid = system_call(kSysGettid);
  system_call(kSysRtTgsigqueueinfo, static_cast<shared::u64>(pid), static_cast<shared::u64>(tid), signal,
              as_word(info));
}

// The caller's task name, 16 bytes.
inline bool get_task_name(shared::u8* name) {
  constexpr shared::u64 kPrGetName = 16;
  return system_call(kSysPrctl, kPrGetName, as_word(name)) == 0;
}

}  // namespace uprobe::agent
