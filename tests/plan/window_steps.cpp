// SPDX-License-Identifier: MIT
// Single-steps a program and compares every possible window in it, and in the libraries that it loads, with its real control
// flow: only the instruction before may ever lead strictly inside a window, and none to padding that a window would use.
// Stricter still, in functions with known flow every arrival that is no return must be among the known ones.
//
//   window_steps STEPS PROGRAM [ARGUMENT...]    0: nothing wrong, 1: violations, which are printed
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "arch/code/scan.h"
#include "engine/elf/elf_file.h"
#include "engine/flow/flow.h"
#include "engine/plan/window.h"

namespace uprobe {
namespace {

// A mapped file and the bytes that every window in it would cover.
class Module {
 public:
  explicit Module(elf::ElfFile file) : file_(std::move(file)), flow_(file_) {
    for (const plan::SweptFunction& function : flow_.functions()) plan_function(function);
  }

  const elf::ElfFile& file() const { return file_; }
  const plan::FileFlow& flow() const { return flow_; }
  bool is_inside(std::uint64_t address) const { return bit(inside_, address); }
  bool is_dead(std::uint64_t address) const { return bit(dead_, address); }
  std::size_t windows() const { return windows_; }

  // Length of the instruction; 0 if there is none.
  unsigned length_at(std::uint64_t address) {
    if (address >= lengths_.size()) lengths_.resize(address + 1);
    if (lengths_[address] == 0) {
      arch::Scanned insn;
      if (arch::scan(flow_.bytes_at(address), Addr{address}, insn)) lengths_[address] = insn.length;
    }
    return lengths_[address];
  }

  // Whether a call ends at the address.
  bool is_after_call(std::uint64_t address) const {
    for (unsigned back = 2; back <= arch::kMaxInsnBytes; ++back) {
      arch::Scanned insn;
      if (!arch::scan(flow_.bytes_at(address - back), Addr{address - back}, insn) || insn.length != back) continue;
      if (insn.leads == arch::Leads::call || insn.leads == arch::Leads::call_indirect) return true;
    }
    return false;
  }

 private:
  static bool bit(const std::vector<bool>& bits, std::uint64_t at) { return at < bits.size() && bits[at]; }
  static void set(std::vector<bool>& bits, std::uint64_t begin, std::uint64_t end) {
    if (bits.size() < end) bits.resize(end);
    for (; begin < end; ++begin) bits[begin] = true;
  }

  void plan_function(const plan::SweptFunction& function) {
    const plan::WindowClaims none;
    for (std::uint64_t at = function.range.begin; at < function.range.end; ++at) {
      if (!flow_.is_start(at)) continue;
      const plan::Window window = plan::plan_window(flow_, at, none);
      if (!window.is_jump()) continue;
      ++windows_;
      set(inside_, window.begin() + 1, at + window.length);
      set(dead_, at + window.code_length, at + window.length);
      if (window.kind == plan::WindowKind::short_jump) set(dead_, window.padding, window.padding + plan::kJumpBytes);
    }
  }

  elf::ElfFile file_;
  plan::FileFlow flow_;
  std::vector<bool> inside_, dead_;
  std::vector<std::uint8_t> lengths_;
  std::size_t windows_ = 0;
};

struct Mapping {
  std::uint64_t begin = 0, end = 0, bias = 0;
  Module* module = nullptr;
};

class Watch {
 public:
  explicit Watch(pid_t pid) : pid_(pid) {}

  // Checks the place where control is now, after `before`.
  void arrive(std::uint64_t before, std::uint64_t now, bool is_excused) {
    Mapping* here = find(now);
    if (here == nullptr || here->module == nullptr) return;
    Module& module = *here->module;
    const std::uint64_t address = now - here->bias;
    if (module.is_dead(address)) complain("padding is executed", module, address, before);
    const bool is_in_order = before == now || (before >= here->begin && before < here->end &&
                                               before + module.length_at(before - here->bias) == now);
    if (is_in_order || is_excused) return;
    ++arrivals_;
    if (module.is_inside(address)) complain("an arrival inside a window", module, address, before);
    const auto function = module.flow().function_at(address);
    if (!function || !function->is_known() || module.flow().is_arrival(address)) return;
    if (!module.is_after_call(address)) complain("an arrival that is not known", module, address, before);
  }

  bool is_system_call(std::uint64_t now) { return has_opcode(now, 0x05); }
  // Some virtual machines execute the next instruction as well when they emulate a stepped cpuid.
  bool is_cpuid(std::uint64_t now) { return has_opcode(now, 0xa2); }

  int report(std::size_t steps) const {
    std::size_t windows = 0;
    for (const auto& [path, module] : modules_) windows += module == nullptr ? 0 : module->windows();
    std::printf("%zu steps, %zu arrivals, %zu windows in %zu files, %zu violations\n", steps, arrivals_, windows,
                modules_.size(), violations_);
    return violations_ == 0 && arrivals_ != 0 && windows != 0 ? 0 : 1;
  }
  bool has_failed_often() const { return violations_ > 50; }

 private:
  Mapping* find(std::uint64_t address) {
    if (last_ != nullptr && address >= last_->begin && address < last_->end) return last_;
    for (int attempt = 0; attempt < 2; ++attempt) {
      auto after = mappings_.upper_bound(address);
      if (after != mappings_.begin() && address < (--after)->second.end) return last_ = &after->second;
      if (attempt == 0) read_maps();
    }
    return nullptr;
  }

  void read_maps() {
    last_ = nullptr;
    mappings_.clear();
    std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin = 0, end = 0, offset = 0;
      char access[8] = {}, path[512] = {};
      if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %511[^\n]", &begin, &end, access, &offset, path) < 4)
        continue;
      if (access[2] != 'x') continue;
      Mapping mapping{.begin = begin, .end = end};
      if (path[0] == '/') mapping.module = module_of(path);
      if (mapping.module != nullptr)
        mapping.bias = begin - mapping.module->file().address_of_offset(offset).value_or(begin);
      mappings_[begin] = mapping;
    }
  }

  Module* module_of(const std::string& path) {
    const auto known = modules_.find(path);
    if (known != modules_.end()) return known->second.get();
    auto file = elf::ElfFile::open(path);
    auto& made = modules_[path];
    if (file) made = std::make_unique<Module>(file.take());
    return made.get();
  }

  // Of two bytes, the first of them 0f.
  bool has_opcode(std::uint64_t at, std::uint8_t second) {
    const Mapping* here = find(at);
    if (here == nullptr || here->module == nullptr) return false;
    const auto bytes = here->module->flow().bytes_at(at - here->bias);
    return bytes.size() >= 2 && bytes[0] == 0x0f && bytes[1] == second;
  }

  void complain(const char* what, const Module& module, std::uint64_t address, std::uint64_t before) {
    ++violations_;
    std::printf("%s: %s at %#lx, from %#lx\n", what, module.file().path().c_str(), address, before);
  }

  pid_t pid_;
  std::map<std::uint64_t, Mapping> mappings_;
  std::map<std::string, std::unique_ptr<Module>> modules_;
  Mapping* last_ = nullptr;
  std::size_t arrivals_ = 0, violations_ = 0;
};

std::uint64_t register_of(pid_t pid, std::size_t offset) {
  return static_cast<std::uint64_t>(ptrace(PTRACE_PEEKUSER, pid, offset, nullptr));
}

int step_through(pid_t pid, std::size_t most) {
  Watch watch(pid);
  std::uint64_t before = 0;
  bool is_excused = true;  // the first instruction; after sigreturn and cpuid
  std::size_t steps = 0;
  int signal = 0;
  for (; steps < most && !watch.has_failed_often(); ++steps) {
    if (ptrace(PTRACE_SINGLESTEP, pid, nullptr, signal) != 0) break;
    int status = 0;
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) break;
    signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    const std::uint64_t now = register_of(pid, offsetof(user, regs.rip));
    watch.arrive(before, now, is_excused);
    is_excused = watch.is_cpuid(now) ||
                 (watch.is_system_call(now) && register_of(pid, offsetof(user, regs.rax)) == SYS_rt_sigreturn);
    before = now;
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, __WALL);
  return watch.report(steps);
}

}  // namespace
}  // namespace uprobe

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 2;
  ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_EXITKILL);
  return uprobe::step_through(pid, std::strtoul(argv[1], nullptr, 10));
}
