// SPDX-License-Identifier: MIT
// Shared by the tests of the agent: a process block of this very process, the agent's real handlers, memory with
// holes.
#pragma once

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "engine/shared/agent_header.h"
#include "preload/agent.h"

namespace uprobe::test {

using shared::u16;
using shared::u32;
using shared::u64;
using shared::u8;

inline constexpr std::size_t kPage = 4096;

inline u64 word_of(const void* pointer) { return reinterpret_cast<u64>(pointer); }
inline u64 word_of(void (*function)()) { return reinterpret_cast<u64>(function); }

// By which the agent unwinds; empty.
struct UnwindTables {
  shared::CodeFile files[shared::kCodeFiles];
  shared::UnwindRow rows[shared::kUnwindRows];
};
// Both are part of one object.
inline void place_unwind_tables(shared::ProcessBlock& block, const UnwindTables& tables) {
  block.code_file_offset = static_cast<u32>(word_of(tables.files) - word_of(&block));
  block.unwind_offset = static_cast<u32>(word_of(tables.rows) - word_of(&block));
}

// The process's one block, empty but for the data of a test.
inline shared::ProcessBlock& empty_block() {
  static struct {
    shared::ProcessBlock head;
    shared::ThreadEntry threads[shared::kThreadEntries];
    u32 hash[2];  // of no points
    UnwindTables unwinding;
  } tables;
  std::memset(&tables, 0, sizeof tables);
  shared::ProcessBlock& block = tables.head;
  place_unwind_tables(block, tables.unwinding);
  block.thread_offset = offsetof(decltype(tables), threads);
  block.hash_offset = offsetof(decltype(tables), hash);
  block.hash_bits = 1;
  block.magic = shared::kBlockMagic;
  block.pid = static_cast<u32>(::getpid());
  agent::uprobe_block = &block;
  return block;
}

inline shared::CodeFile* code_files_of(shared::ProcessBlock& block) {
  return agent::at_offset<shared::CodeFile>(&block, block.code_file_offset);
}

// Lists the code of this process in the block, as the tool does.
inline void list_own_code(shared::ProcessBlock& block) {
  const auto add = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& to = *static_cast<shared::ProcessBlock*>(data);
    u64 header = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) header = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      const u64 begin = info->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0)
        code_files_of(to)[to.code_file_count++] = {begin, begin + part.p_memsz, header};
    }
    return 0;
  };
  ::dl_iterate_phdr(add, &block);
}

inline void install(int signal, void (*entry)()) {
  const shared::KernelSigaction action{word_of(entry), shared::kAgentSaFlags, word_of(agent::uprobe_restorer), 0};
  ASSERT_EQ(::syscall(SYS_rt_sigaction, signal, &action, nullptr, 8), 0);
}

// Whether rdtsc faults here after a program has asked for that (PR_SET_TSC): some virtual machines execute it nevertheless.
inline bool clock_can_fault() {
  static const bool can = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      ::syscall(SYS_prctl, 26 /* PR_SET_TSC */, 2 /* PR_TSC_SIGSEGV */, 0, 0, 0);
      __builtin_ia32_rdtsc();
      ::_exit(0);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFSIGNALED(status);
  }();
  return can;
}

// Installed as load.cpp installs them in a target.
inline void install_agent_handlers() {
  install(SIGTRAP, agent::uprobe_trap_entry);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) install(signal, agent::uprobe_fault_entry);
}

// Pages between two that cannot be read.
class HoleyMemory {
 public:
  explicit HoleyMemory(std::size_t pages) : bytes_(pages * kPage) {
    void* at = ::mmap(nullptr, bytes_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = static_cast<u8*>(at) + kPage;
    EXPECT_EQ(::mprotect(begin_, bytes_, PROT_READ | PROT_WRITE), 0);
  }
  HoleyMemory(const HoleyMemory&) = delete;
  HoleyMemory& operator=(const HoleyMemory&) = delete;
  ~HoleyMemory() { ::munmap(begin_ - kPage, bytes_ + 2 * kPage); }

  u8* begin() const { return begin_; }
  u8* end() const { return begin_ + bytes_; }
  // `bytes` at the end of the readable memory.
  u64 put_at_end(const void* bytes, std::size_t size) const {
    std::memcpy(end() - size, bytes, size);
    return word_of(end() - size);
  }

 private:
  std::size_t bytes_;
  u8* begin_;
};

}  // namespace uprobe::test
