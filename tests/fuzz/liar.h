// SPDX-License-Identifier: MIT
// A process that lies to the tool, for mailbox_fuzz and page_fuzz: a child of the fuzzer that answers commands as its part of
// an input says, and overwrites the tool's input while the tool reads it.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/shared/mailbox.h"

namespace uprobe::test {

using shared::MailSlot;
using shared::MailState;

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// ---- the child's actions

inline constexpr std::size_t kMostActions = 64;

enum class Act : std::uint8_t { obey, say, fail, scribble_box, scribble_block, misnumber, abandon, say_place };
inline constexpr std::uint8_t kActs = 8;

struct Action {
  Act act;
  std::uint16_t where;
  std::uint64_t value;
};

// Shared by parent and child.
struct Stage {
  std::uint32_t round;    // futex: an input begins
  std::uint32_t is_over;  // the tool has finished it
  std::uint32_t ended;    // the newest round that has ended
  std::uint32_t count;
  Action actions[kMostActions];
};

// The means of the process's lies.
struct Lies {
  std::span<MailSlot> slots;
  std::span<std::uint8_t> box, block;  // memory that it overwrites
  const std::uint32_t* wake;           // by which the tool wakes it
  std::uint32_t* bell = nullptr;       // by which it wakes the tool
  std::vector<std::uint64_t> places;   // addresses that it claims to have got
};

// The tool puts breakpoints at the system calls of every mapped file, and there is no agent here to make the calls: code in
// memory of no file makes them.
using SystemCall = long (*)(long number, ...);
inline SystemCall make_system_call() {
  // mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10; mov %r9,%r8; mov 8(%rsp),%r9; syscall; ret
  constexpr std::uint8_t kBytes[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d,
                                     0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
  void* const at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "no memory");
  std::memcpy(at, kBytes, sizeof kBytes);
  return reinterpret_cast<SystemCall>(at);
}

class Liar {
 public:
  Liar(Stage& stage, Lies lies) : stage_(stage), lies_(std::move(lies)) {}

  [[noreturn]] void live() {
    for (std::uint32_t seen = 0;;) {
      while (load(stage_.round) == seen) wait(stage_.round, seen, 1'000'000'000);
      seen = load(stage_.round);
      next_ = 0, slot_ = nullptr;
      while (load(stage_.is_over) == 0) look();
      end_round();
      __atomic_store_n(&stage_.ended, seen, __ATOMIC_RELEASE);
    }
  }

 private:
  static std::uint32_t load(const std::uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

  void wait(const std::uint32_t& word, std::uint32_t value, long nanoseconds) {
    const long limit[] = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    system_call_(SYS_futex, &word, static_cast<long>(FUTEX_WAIT), static_cast<unsigned long>(value), limit, 0L, 0L);
  }
  void look() {
    const std::uint32_t before = load(*lies_.wake);
    bool was_asked = false;
    for (MailSlot& slot : lies_.slots) {
      const std::uint32_t word = load(slot.answered.word);
      if (shared::state_of(word) != MailState::command) continue;
      if (shared::number_of(word) == number_ && &slot == slot_) continue;
      slot_ = &slot, number_ = shared::number_of(word), was_asked = true;
      while (!answer(slot, next())) {
      }
    }
    if (was_asked) return;
    wait(*lies_.wake, before, 300'000);
    if (next_ < stage_.count && is_scribble(stage_.actions[next_].act)) do_scribble(next());
  }
  // After its last action the thread says that it has left.
  Action next() { return next_ < stage_.count ? stage_.actions[next_++] : Action{Act::abandon, 0, 0}; }
  static bool is_scribble(Act act) { return act == Act::scribble_box || act == Act::scribble_block; }
  void do_scribble(const Action& action) {
    const std::span<std::uint8_t> over = action.act == Act::scribble_box ? lies_.box : lies_.block;
    if (over.size() > sizeof action.value)
      std::memcpy(&over[action.where % (over.size() - sizeof action.value)], &action.value, sizeof action.value);
  }
  // True: it has said a word.
  bool answer(MailSlot& slot, const Action& action) {
    switch (action.act) {
      case Act::obey:
        return say(slot, obey(slot), 1);
      case Act::say:
        return say(slot, action.value, 1);
      case Act::fail:
        return say(slot, 0 - action.value % 4096, 1);
      case Act::say_place:
        return say(slot, lies_.places[action.where % lies_.places.size()] + (action.value & 0xffff000), 1);
      case Act::misnumber:
        say(slot, action.value, 2 + static_cast<std::uint32_t>(action.value));
        return false;
      case Act::scribble_box:
      case Act::scribble_block:
        return do_scribble(action), false;
      case Act::abandon:
        break;
    }
    return put(slot, shared::turn(number_, MailState::left)), true;
  }
  bool say(MailSlot& slot, std::uint64_t result, std::uint32_t steps) {
    slot.result = result;
    put(slot, shared::turn(shared::number_after(number_, steps), MailState::result));
    return true;
  }
  void put(MailSlot& slot, std::uint32_t word) {
    __atomic_store_n(&slot.asked.word, word, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot.asked.check, word, __ATOMIC_SEQ_CST);
    if (lies_.bell == nullptr) return;
    __atomic_fetch_add(lies_.bell, 1, __ATOMIC_SEQ_CST);
    system_call_(SYS_futex, lies_.bell, static_cast<long>(FUTEX_WAKE), 1L, 0L, 0L, 0L);
  }
  // Only harmless commands: memory at free addresses, or over its own, and files.
  std::uint64_t obey(const MailSlot& slot) {
    const std::uint64_t* c = slot.command;
    const bool is_new = c[0] == SYS_mmap && (c[4] & MAP_FIXED) == 0;
    const bool is_change = (c[0] == SYS_mmap && !is_new) || c[0] == SYS_munmap || c[0] == SYS_madvise;
    if (is_new && (c[2] > 1 << 24 || count_ == std::size(taken_))) return 0 - std::uint64_t{ENOMEM};
    if (is_change && !is_taken(c[1], c[2])) return 0 - std::uint64_t{EINVAL};
    if (!is_new && !is_change && c[0] != SYS_openat && c[0] != SYS_close) return 0;
    const long result = system_call_(static_cast<long>(c[0]), c[1], c[2], c[3], c[4], c[5], c[6]);
    if (is_new && result > 0) taken_[count_++] = {static_cast<std::uint64_t>(result), c[2]};
    return static_cast<std::uint64_t>(result);
  }
  bool is_taken(std::uint64_t at, std::uint64_t bytes) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (at - taken_[i].at < taken_[i].bytes && bytes <= taken_[i].bytes - (at - taken_[i].at)) return true;
    return false;
  }
  void end_round() {
    while (count_ != 0) --count_, system_call_(SYS_munmap, taken_[count_].at, taken_[count_].bytes, 0L, 0L, 0L, 0L);
    system_call_(SYS_close_range, 20L, 1L << 20, 0L, 0L, 0L, 0L);
  }

  Stage& stage_;
  Lies lies_;
  const SystemCall system_call_ = make_system_call();
  const MailSlot* slot_ = nullptr;
  std::uint32_t number_ = 0, next_ = 0;
  struct Taken {
    std::uint64_t at, bytes;
  };
  Taken taken_[32] = {};
  std::size_t count_ = 0;
};

// ---- memory

inline void* map_fixed(std::uint64_t at, std::size_t bytes, int protection, int flags, int fd, std::uint64_t offset) {
  void* const wanted = reinterpret_cast<void*>(at);
  void* const got = ::mmap(wanted, bytes, protection, flags | MAP_FIXED_NOREPLACE, fd, static_cast<off_t>(offset));
  require(got == wanted, "a place in memory is taken");
  return got;
}

template <class T>
T* share(std::size_t bytes = sizeof(T)) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "no memory");
  return static_cast<T*>(at);
}

// The parent's memory, mapped in the child at another address too.
inline void show_at(const void* memory, std::size_t bytes, std::uint64_t at) {
  void* const got = ::mremap(const_cast<void*>(memory), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  require(got == reinterpret_cast<void*>(at), "memory that cannot be shared");
}

// The code of a file, link address 0 at `at`.
inline void map_code(const elf::ElfFile& subject, std::uint64_t at) {
  const int file = ::open(subject.path().c_str(), O_RDONLY | O_CLOEXEC);
  for (const elf::Segment& s : subject.segments()) {
    if (!s.executable) continue;
    const std::uint64_t skew = s.address % 4096;
    map_fixed(at + s.address - skew, s.file_bytes + skew, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, s.offset - skew);
  }
  ::close(file);
}

}  // namespace uprobe::test
