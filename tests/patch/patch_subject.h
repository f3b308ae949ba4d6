// SPDX-License-Identifier: MIT
// A program whose threads call functions with a window of each kind and check the results, while the test changes the text
// under them. It is a forked child: as in a real session, the tool's side is another process.
//
// Each function has a copy of its window, and a counter that both ways to the copy add to: the jump (through a trampoline)
// and the trap (through a handler). While a function is armed, as a breakpoint or a jump, each call is one hit.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "arch/code/window.h"
#include "engine/patch/patch.h"

namespace uprobe::test {

enum class Kind { one, padded, several, short_jump };

// Each returns its argument plus kAdded. `code` bytes are displaced, `size` are changed.
struct Shape {
  Kind kind;
  std::uint8_t code, size;
  std::vector<std::uint8_t> bytes;
};
inline constexpr long kAdded = 0x1001;
inline const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      // mov $0x1001,%eax; add %rdi,%rax; ret
      {Kind::one, 5, 5, {0xb8, 0x01, 0x10, 0, 0, 0x48, 0x01, 0xf8, 0xc3}},
      // jmp over three bytes that are never executed; then the same
      {Kind::padded, 2, 5, {0xeb, 3, 0x0f, 0x0b, 0x90, 0xb8, 0x01, 0x10, 0, 0, 0x48, 0x01, 0xf8, 0xc3}},
      // mov %rdi,%rax; inc %rax; add $0x1000,%rax; ret
      {Kind::several, 6, 5, {0x48, 0x89, 0xf8, 0x48, 0xff, 0xc0, 0x48, 0x05, 0, 0x10, 0, 0, 0xc3}},
      // xor %eax,%eax; add $0x1001,%eax; add %rdi,%rax; ret; five bytes of padding for the long jump
      {Kind::short_jump,
       2,
       2,
       {0x31, 0xc0, 0x05, 0x01, 0x10, 0, 0, 0x48, 0x01, 0xf8, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90}},
  };
  return all;
}

struct Site {
  Kind kind;
  Addr at, copy;
  std::uint8_t size;
  std::array<std::uint8_t, control::kMostPatched> original{}, trap{}, jump{};

  control::Patch patch(const std::array<std::uint8_t, control::kMostPatched>& before,
                       const std::array<std::uint8_t, control::kMostPatched>& after) const {
    return {.at = at, .size = size, .before = before, .after = after};
  }
};

class Subject {
 public:
  static constexpr std::size_t kSites = 128, kThreads = 4, kPage = 4096;

  // `armed`: each function begins as a breakpoint, otherwise unchanged.
  explicit Subject(bool armed) : shared_(new (map(sizeof(Shared), MAP_SHARED)) Shared) {
    text_ = map(kTextBytes, MAP_PRIVATE);
    lay_out();
    if (armed)
      for (const Site& s : sites_) std::memcpy(pointer(s.at), s.trap.data(), 1);
    ::mprotect(text_, kTextBytes, PROT_READ | PROT_EXEC);
    pid_ = ::fork();
    if (pid_ == 0) run();
    while (shared_->running < kThreads && ::waitpid(pid_, nullptr, WNOHANG) == 0) ::usleep(1000);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() {
    if (!waited_) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::munmap(text_, kTextBytes);
    ::munmap(shared_, sizeof(Shared));
  }

  pid_t pid() const { return pid_; }
  const std::vector<Site>& sites() const { return sites_; }
  std::uint64_t hits(std::size_t site) const { return shared_->hits[site].count; }
  std::uint64_t calls(std::size_t site) const {
    std::uint64_t sum = 0;
    for (const auto& thread : shared_->calls) sum += thread[site];
    return sum;
  }
  std::uint64_t wrong_results() const { return shared_->wrong; }
  bool is_alive() {
    int status = 0;
    return !waited_ && ::waitpid(pid_, &status, WNOHANG) == 0;
  }
  // Stops all threads outside of the functions; and lets them go on.
  void pause() {
    shared_->pause = true;
    while (shared_->paused < kThreads && is_alive()) ::usleep(50);
  }
  void go_on() {
    shared_->pause = false;
    while (shared_->paused != 0 && is_alive()) ::usleep(50);
  }
  // Lets it end: its wait status, 0 if all results were right.
  int finish() {
    int status = -1;
    shared_->stop = true;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    return status;
  }

 private:
  static constexpr std::size_t kTextBytes = 16 * kPage, kIslandAt = 8 * kPage, kIslandUnit = 128;
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> count{0};
  };
  struct Shared {
    std::atomic<bool> stop{false}, pause{false};
    std::atomic<unsigned> paused{0};
    std::atomic<unsigned> running{0};
    std::atomic<std::uint64_t> wrong{0};
    Counter hits[kSites];
    std::uint64_t calls[kThreads][kSites] = {};
  };

  static std::uint8_t* map(std::size_t bytes, int flags) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<std::uint8_t*>(at);
  }
  static std::uint64_t word(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  static std::uint8_t* pointer(Addr at) { return reinterpret_cast<std::uint8_t*>(at.value); }

  // Functions at distances that no line of a cache divides, and one over each end of a page.
  void lay_out() {
    std::size_t at = 0;
    for (std::size_t i = 0; i < kSites; ++i) {
      const Shape& shape = shapes()[i % shapes().size()];
      const std::size_t left = kPage - at % kPage;
      if (left > 4 && left < 80) at += left - (shape.kind == Kind::short_jump ? 1 : 1 + i / shapes().size() % 4);
      add(shape, Addr{word(text_) + at}, i);
      at += 61;
    }
    ASSERT_LT(at, kIslandAt);
  }

  void add(const Shape& shape, Addr at, std::size_t index) {
    std::memcpy(pointer(at), shape.bytes.data(), shape.bytes.size());
    Site site{shape.kind, at, Addr{word(text_) + kIslandAt + index * kIslandUnit}, shape.size, {}, {}, {}};
    const Addr trampoline = site.copy + kIslandUnit / 2;
    const auto copy = arch::displace_window({shape.bytes.data(), shape.code}, at, site.copy);
    ASSERT_TRUE(copy && copy->bytes.size() <= kIslandUnit / 2);
    std::memcpy(pointer(site.copy), copy->bytes.data(), copy->bytes.size());
    count_and_go_on(pointer(trampoline), index, site.copy);
    std::memcpy(site.original.data(), shape.bytes.data(), shape.size);
    site.trap = site.original, site.trap[0] = 0xcc;
    const Addr long_jump = shape.kind == Kind::short_jump ? at + (shape.bytes.size() - 5) : at;
    std::array<std::uint8_t, 5> jump = jump_from(long_jump, trampoline);
    if (shape.kind == Kind::short_jump) {
      std::memcpy(pointer(long_jump), jump.data(), jump.size());
      jump = {0xeb, static_cast<std::uint8_t>(long_jump - (at + 2)), 0, 0, 0};
    }
    site.jump = jump;
    sites_.push_back(site);
  }
  static std::array<std::uint8_t, 5> jump_from(Addr at, Addr to) {
    std::array<std::uint8_t, 5> jump = {0xe9};
    const auto distance = static_cast<std::int32_t>(to.value - (at.value + 5));
    std::memcpy(jump.data() + 1, &distance, 4);
    return jump;
  }
  // At the entry of a function r11 and the flags are free.
  void count_and_go_on(std::uint8_t* to, std::size_t index, Addr copy) {
    const std::uint8_t code[] = {0x49, 0xbb, 0,    0,   0, 0, 0, 0, 0, 0,  // movabs $counter,%r11
                                 0xf0, 0x49, 0xff, 0x03};                  // lock incq (%r11)
    const std::uint64_t counter = word(&shared_->hits[index].count);
    std::memcpy(to, code, sizeof code);
    std::memcpy(to + 2, &counter, sizeof counter);
    const auto jump = jump_from(Addr{word(to) + sizeof code}, copy);
    std::memcpy(to + sizeof code, jump.data(), jump.size());
  }

  // A trap at a function is always a hit: its point is never removed.
  static void on_trap(int, siginfo_t*, void* context) {
    greg_t& ip = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    for (std::size_t i = 0; i < self_->sites_.size(); ++i) {
      if (self_->sites_[i].at.value + 1 != static_cast<std::uint64_t>(ip)) continue;
      ++self_->shared_->hits[i].count;
      ip = static_cast<greg_t>(self_->sites_[i].copy.value);
      return;
    }
    ::_exit(3);
  }

  [[noreturn]] void run() {
    self_ = this;
    ::alarm(300);
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGTRAP, &action, nullptr);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([this, i] { call_all(i); });
    for (std::thread& t : threads) t.join();
    ::_exit(shared_->wrong == 0 ? 0 : 2);
  }

  void wait_if_paused() {
    if (!shared_->pause) return;
    ++shared_->paused;
    while (shared_->pause) ::usleep(50);
    --shared_->paused;
  }

  void call_all(std::size_t thread) {
    ++shared_->running;
    for (long x = static_cast<long>(thread); !shared_->stop; ++x, wait_if_paused())
      for (std::size_t i = 0; i < kSites; ++i) {
        const auto function = reinterpret_cast<long (*)(long)>(sites_[i].at.value);
        ++shared_->calls[thread][i];
        if (function(x) != x + kAdded) ++shared_->wrong;
      }
  }

  static inline Subject* self_ = nullptr;  // in the child
  Shared* shared_;
  std::uint8_t* text_ = nullptr;
  std::vector<Site> sites_;
  pid_t pid_ = 0;
  bool waited_ = false;
};

}  // namespace uprobe::test
