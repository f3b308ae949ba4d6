// SPDX-License-Identifier: MIT
// Starts a program, writes jumps into all windows for which its own code has room, each to a copy of the replaced instructions
// and back, and lets it run: it has to behave as always. No probe, no trampoline: only the windows and their copies.
//
//   window_apply SEED PROGRAM [ARGUMENT...]    SEED 0: at every function's start, else at random places everywhere.
//                                              Exit code: the program's; the counts go to stderr
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "arch/code/window.h"
#include "engine/elf/elf_file.h"
#include "engine/plan/window.h"

namespace uprobe {
namespace {

constexpr std::uint64_t kCopyBytes = 64UL << 20;
constexpr std::uint64_t kBelow = 256UL << 20;       // a position-independent program, where nothing else is mapped
constexpr std::uint64_t kFixedCopies = 0x20000000;  // above a program at fixed addresses and its heap

// The distance from the addresses of the file to those of the program.
std::uint64_t bias_of(pid_t pid, const elf::ElfFile& file) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    char access[8] = {};
    if (line.find(file.path()) == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx", &begin, &end, access, &offset) != 4 || access[2] != 'x') continue;
    return begin - file.address_of_offset(offset).value_or(begin);
  }
  return 0;
}

// Makes the stopped program map memory: one system call in place of its next instruction.
bool map_copies(pid_t pid, std::uint64_t address) {
  user_regs_struct before{}, call{};
  ptrace(PTRACE_GETREGS, pid, nullptr, &before);
  const long code = ptrace(PTRACE_PEEKTEXT, pid, before.rip, nullptr);
  ptrace(PTRACE_POKETEXT, pid, before.rip, (code & ~0xffffL) | 0x050f);
  call = before;
  call.rax = SYS_mmap;
  call.rdi = address;
  call.rsi = kCopyBytes;
  call.rdx = PROT_READ | PROT_WRITE | PROT_EXEC;
  call.r10 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  call.r8 = ~0UL;
  call.r9 = 0;
  call.orig_rax = ~0UL;
  ptrace(PTRACE_SETREGS, pid, nullptr, &call);
  ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr);
  waitpid(pid, nullptr, 0);
  ptrace(PTRACE_GETREGS, pid, nullptr, &call);
  ptrace(PTRACE_POKETEXT, pid, before.rip, code);
  ptrace(PTRACE_SETREGS, pid, nullptr, &before);
  return call.rax == address;
}

std::vector<std::uint64_t> choose_places(const plan::FileFlow& flow, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint64_t> places;
  for (const plan::SweptFunction& function : flow.functions()) {
    std::uint64_t wait = seed == 0 ? 0 : random() % 6;
    for (std::uint64_t at = function.range.begin; at < function.range.end; ++at) {
      if (!flow.is_start(at) || wait-- != 0) continue;
      places.push_back(at);
      wait = seed == 0 ? UINT64_MAX : 4 + random() % 8;
    }
  }
  return places;
}

class Patch {
 public:
  Patch(pid_t pid, const plan::FileFlow& flow, std::uint64_t bias, std::uint64_t copies)
      : flow_(flow), bias_(bias), copies_(copies) {
    memory_ = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  }
  ~Patch() { close(memory_); }
  Patch(const Patch&) = delete;
  Patch& operator=(const Patch&) = delete;

  bool run(const std::vector<std::uint64_t>& places) {
    plan::WindowClaims claims;
    for (const std::uint64_t place : places) claims.add_place(place);
    for (const std::uint64_t place : places) {
      const plan::Window window = plan::plan_window(flow_, place, claims);
      ++counts_[static_cast<std::size_t>(window.kind)];
      claims.take(window);
      if (window.is_jump() && !apply(window)) return false;
    }
    std::fprintf(stderr, "one %zu, padded %zu, several %zu, short %zu, in front %zu, none %zu, refused %zu\n",
                 counts_[0], counts_[1], counts_[2], counts_[3], counts_[4], counts_[5], counts_[6]);
    return counts_[2] != 0 && write(copies_, text_.data(), text_.size());
  }

 private:
  bool apply(const plan::Window& window) {
    const std::uint64_t to = copies_ + text_.size();
    if (!copy(window.address, window.code_length, Addr{})) return false;
    const std::uint64_t front = copies_ + text_.size();
    if (window.prefix_window != 0 && !copy(window.begin(), window.prefix_window, Addr{to})) return false;
    // A thread that comes into the middle dies of a breakpoint.
    const std::vector<std::uint8_t> nothing(window.prefix_window + window.length, 0xcc);
    if (!write(window.begin() + bias_, nothing.data(), nothing.size())) return false;
    if (window.prefix_window != 0) return jump(window.begin(), front);
    if (window.kind != plan::WindowKind::short_jump) return jump(window.address, to);
    const std::uint8_t near_jump[] = {
        0xeb, static_cast<std::uint8_t>(window.padding - (window.address + plan::kShortJumpBytes))};
    return jump(window.padding, to) && write(window.address + bias_, near_jump, sizeof near_jump);
  }

  // Appends the copy of the instruction at `from`; it goes on at `next`, or after it.
  bool copy(std::uint64_t from, std::size_t bytes, Addr next) {
    const Addr to{copies_ + text_.size()};
    const auto made = arch::displace_window(flow_.bytes_at(from).first(bytes), Addr{from + bias_}, to, next);
    if (!made || text_.size() + made->bytes.size() > kCopyBytes) return false;
    text_.insert(text_.end(), made->bytes.begin(), made->bytes.end());
    return true;
  }

  bool jump(std::uint64_t from, std::uint64_t to) {
    std::uint8_t bytes[plan::kJumpBytes] = {0xe9};
    const auto distance = static_cast<std::int32_t>(to - (from + bias_ + sizeof bytes));
    std::memcpy(bytes + 1, &distance, sizeof distance);
    return write(from + bias_, bytes, sizeof bytes);
  }

  bool write(std::uint64_t address, const void* bytes, std::size_t size) {
    return pwrite(memory_, bytes, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
  }

  const plan::FileFlow& flow_;
  std::uint64_t bias_, copies_;
  int memory_ = -1;
  std::vector<std::uint8_t> text_;
  std::size_t counts_[7] = {};
};

int run_patched(pid_t pid, const char* path, unsigned seed) {
  auto file = elf::ElfFile::open(path);
  if (!file) return 125;
  const plan::FileFlow flow(*file);
  const std::uint64_t bias = bias_of(pid, *file);
  const std::uint64_t copies = bias == 0 ? kFixedCopies : bias - kBelow;
  if (!map_copies(pid, copies)) return 125;
  if (!Patch(pid, flow, bias, copies).run(choose_places(flow, seed))) return 125;
  ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace uprobe

int main(int argc, char** argv) {
  char path[PATH_MAX];
  if (argc < 3 || realpath(argv[2], path) == nullptr) return 125;
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execv(path, argv + 2);
    _exit(127);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 125;
  ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_EXITKILL);
  return uprobe::run_patched(pid, path, static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)));
}
