// SPDX-License-Identifier: MIT
// The places where the C library makes the system calls that matter, compared with another decoder's.
#include <capstone/capstone.h>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

#include "arch/code/call_patterns.h"
#include "engine/flow/followed_calls.h"
#include "engine/flow/system_calls.h"
#include "tests/elf/made_elf.h"

namespace uprobe::plan {
namespace {

constexpr std::uint64_t kFollowed[] = {
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_execve,      SYS_execveat,      SYS_ptrace,      SYS_prctl,
    SYS_seccomp,      SYS_rt_sigsuspend,  SYS_pselect6,    SYS_ppoll,         SYS_epoll_pwait, 441 /* epoll_pwait2 */,
    SYS_rt_sigreturn, SYS_rt_sigpending,  SYS_sigaltstack, SYS_open,          SYS_openat,      SYS_rt_sigtimedwait,
    SYS_clone3,       SYS_mmap,           SYS_mprotect,    SYS_pkey_mprotect, SYS_signalfd,    SYS_signalfd4,
    SYS_setuid,       SYS_setgid,         SYS_setreuid,    SYS_setregid,      SYS_setresuid,   SYS_setresgid,
    SYS_setgroups,    SYS_capset,         SYS_unshare,     SYS_setns};
constexpr std::uint64_t kClones[] = {SYS_clone, SYS_clone3, SYS_vfork, SYS_fork};

template <std::size_t N>
bool is_one_of(const std::uint64_t (&numbers)[N], std::uint64_t number) {
  return std::find(std::begin(numbers), std::end(numbers), number) != std::end(numbers);
}

// The C library of this very process.
std::string libc_path() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(&::gnu_get_libc_version), &info), 0);
  return info.dli_fname;
}

// `mov $number, %eax` right before `syscall`, as file offset of the latter -> number.
std::map<std::uint64_t, std::uint64_t> loaded_right_before(const elf::ElfFile& file) {
  csh handle = 0;
  EXPECT_EQ(::cs_open(CS_ARCH_X86, CS_MODE_64, &handle), CS_ERR_OK);
  ::cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
  cs_insn* insn = ::cs_malloc(handle);
  std::map<std::uint64_t, std::uint64_t> found;
  for (const elf::Range& range : file.function_ranges()) {
    const auto offset = file.offset_of_address(range.begin);
    if (!offset || *offset + (range.end - range.begin) > file.bytes().size()) continue;
    const std::uint8_t* code = file.bytes().data() + *offset;
    std::size_t left = range.end - range.begin;
    std::uint64_t address = *offset;
    std::optional<std::uint64_t> number;
    while (::cs_disasm_iter(handle, &code, &left, &address, insn)) {
      if (insn->id == X86_INS_SYSCALL && number) found[insn->address] = *number;
      const cs_x86& x86 = insn->detail->x86;
      const bool loads = insn->id == X86_INS_MOV && x86.operands[0].type == X86_OP_REG &&
                         x86.operands[0].reg == X86_REG_EAX && x86.operands[1].type == X86_OP_IMM;
      number = loads ? std::optional<std::uint64_t>(static_cast<std::uint64_t>(x86.operands[1].imm)) : std::nullopt;
    }
  }
  ::cs_free(insn, 1);
  ::cs_close(&handle);
  return found;
}

class CLibrary : public testing::Test {
 protected:
  void SetUp() override {
    auto file = elf::ElfFile::open(libc_path());
    ASSERT_TRUE(file) << file.error().text;
    file_.emplace(file.take());
    const auto sites = system_call_sites(*file_, false);
    for (const SystemCallSite& site : *sites) {
      if (site.role == shared::PointRole::quick_call) {
        loads_.insert(site.offset);
        continue;
      }
      if (site.role == shared::PointRole::open_call)
        opens_.insert(site.offset + shared::kBeforeOpen);
      else
        (site.role == shared::PointRole::system_call ? calls_ : clones_).insert(site.offset);
      ++sites_;
    }
    expected_ = loaded_right_before(*file_);
  }

  // In the function syscall().
  bool is_generic(std::uint64_t offset) const {
    const auto generic = file_->find_any("syscall");
    const std::uint64_t address = file_->address_of_offset(offset).value_or(0);
    return generic && address >= generic->address && address < generic->address + generic->size;
  }

  std::optional<elf::ElfFile> file_;
  std::set<std::uint64_t> calls_, clones_;
  std::set<std::uint64_t> opens_;  // calls whose point is on the instruction before
  std::set<std::uint64_t> loads_;  // instructions before calls that are points themselves
  std::size_t sites_ = 0;
  std::map<std::uint64_t, std::uint64_t> expected_;
};

TEST_F(CLibrary, TheOnesOfTheseNumbersAndNoOthers) {
  std::set<std::uint64_t> numbers;
  for (const auto& [offset, number] : expected_) {
    EXPECT_EQ(calls_.count(offset) + opens_.count(offset), is_one_of(kFollowed, number) || is_generic(offset) ? 1U : 0U)
        << number << " at " << std::hex << offset;
    EXPECT_EQ(clones_.count(offset + 2), is_one_of(kClones, number) ? 1U : 0U)
        << number << " at " << std::hex << offset;
    if (is_one_of(kFollowed, number)) numbers.insert(number);
  }
  EXPECT_GE(numbers.size(), 10U) << "the other decoder found next to nothing";
}

TEST_F(CLibrary, EachPlaceIsASyscallInstructionAndThereOnce) {
  EXPECT_EQ(sites_, calls_.size() + clones_.size() + opens_.size());
  const auto bytes = file_->bytes();
  const auto is_syscall = [&](std::uint64_t offset) {
    return offset + 2 <= bytes.size() && bytes[offset] == 0x0f && bytes[offset + 1] == 0x05;
  };
  for (const std::uint64_t offset : calls_) EXPECT_TRUE(is_syscall(offset)) << std::hex << offset;
  for (const std::uint64_t offset : clones_) EXPECT_TRUE(is_syscall(offset - 2)) << std::hex << offset;
  EXPECT_FALSE(clones_.empty());
}

TEST_F(CLibrary, OpenIsWatchedOneInstructionEarlier) {
  EXPECT_FALSE(opens_.empty());
  for (const std::uint64_t offset : opens_) {
    const std::uint8_t* code = file_->bytes().data() + offset - shared::kBeforeOpen;
    EXPECT_TRUE(code[0] == 0xb8 || code[0] == 0xba || code[0] == 0xbf) << std::hex << offset;
    EXPECT_TRUE(code[5] == 0x0f && code[6] == 0x05) << std::hex << offset;
    const auto found = expected_.find(offset);
    const std::uint64_t number = found != expected_.end() ? found->second : SYS_openat;
    EXPECT_TRUE(number == SYS_open || number == SYS_openat) << std::hex << offset;
  }
}

// All of rt_sigprocmask and rt_sigaction, mmap and mprotect in glibc but those of getcontext and its kin.
TEST_F(CLibrary, CallsOfSignalsAndMappingsHaveAPointBefore) {
  std::set<std::uint64_t> before, context;
  for (const char* name : {"getcontext", "setcontext", "swapcontext"}) {
    const auto symbol = file_->find_any(name);
    ASSERT_TRUE(symbol);
    for (const auto& [offset, number] : expected_) {
      const std::uint64_t address = file_->address_of_offset(offset).value_or(0);
      if (address >= symbol->address && address < symbol->address + symbol->size) context.insert(offset);
    }
  }
  EXPECT_EQ(context.size(), 3U);
  for (const auto& [offset, number] : expected_)
    if (is_quick_call(static_cast<std::uint32_t>(number)) && context.count(offset) == 0) before.insert(offset);
  EXPECT_GE(before.size(), 10U);
  for (const std::uint64_t offset : before) {
    EXPECT_EQ(loads_.count(offset - 5), 1U) << std::hex << offset;
    EXPECT_EQ(calls_.count(offset), 1U) << std::hex << offset;
  }
  for (const std::uint64_t offset : context) EXPECT_EQ(loads_.count(offset - 5), 0U) << std::hex << offset;
  // Before the call in pthread_create another instruction stands between the number's load and the call.
  EXPECT_GT(loads_.size(), before.size());
}

TEST(SystemCalls, TheInstructionBeforeACallLoadsAConstant) {
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_TRUE(arch::is_load_before_call(Bytes{0xb8, 14, 0, 0, 0}));              // mov $14,%eax
  EXPECT_TRUE(arch::is_load_before_call(Bytes{0x41, 0xba, 8, 0, 0, 0}));         // mov $8,%r10d
  EXPECT_TRUE(arch::is_load_before_call(Bytes{0x48, 0xc7, 0xc0, 14, 0, 0, 0}));  // mov $14,%rax
  EXPECT_TRUE(arch::is_load_before_call(Bytes{0x48, 0x8d, 0x35, 1, 2, 3, 4}));   // lea d(%rip),%rsi
  EXPECT_FALSE(arch::is_load_before_call(Bytes{0xbb, 14, 0, 0, 0}));             // %ebx, which the call leaves alone
  EXPECT_FALSE(arch::is_load_before_call(Bytes{0x41, 0xbc, 14, 0, 0, 0}));       // %r12d
  EXPECT_FALSE(arch::is_load_before_call(Bytes{0x48, 0x8d, 0xb5, 1, 2, 3, 4}));  // lea d(%rbp),%rsi
  EXPECT_FALSE(arch::is_load_before_call(Bytes{0x31, 0xc0}));                    // xor %eax,%eax
  EXPECT_FALSE(arch::is_load_before_call(Bytes{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}));  // movabs
}

TEST_F(CLibrary, TheFunctionThatMakesAnyCallIsThere) {
  EXPECT_TRUE(std::any_of(calls_.begin(), calls_.end(), [&](std::uint64_t offset) { return is_generic(offset); }));
}

// mov $2,%r12d; call; mov %r12,%rax; syscall: fopen in musl. And by a register that the callee does not save.
TEST(SystemCalls, ANumberMayComeByAnotherRegister) {
  const std::vector<std::uint8_t> kept = {0x41, 0xbc, 2, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x4c, 0x89, 0xe0, 0x0f, 0x05};
  const auto found = arch::number_before(kept, 14);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, 2U);
  EXPECT_EQ(found->position, 0U);
  EXPECT_TRUE(found->outlives_calls);

  const std::vector<std::uint8_t> lost = {0xbf, 13, 0, 0, 0, 0x89, 0xf8, 0x0f, 0x05};  // mov $13,%edi; mov %edi,%eax
  const auto other = arch::number_before(lost, 7);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->number, 13U);
  EXPECT_FALSE(other->outlives_calls);

  const std::vector<std::uint8_t> to_r8 = {0x41, 0x89, 0xd8};  // mov %ebx,%r8d
  EXPECT_FALSE(arch::copied_to_number(to_r8));
  const std::vector<std::uint8_t> unrelated = {0xbb, 13, 0, 0, 0, 0x4c, 0x89, 0xe0, 0x0f, 0x05};  // %ebx, %r12
  EXPECT_FALSE(arch::number_before(unrelated, 8));
}

TEST(SystemCalls, ANumberMayComeFromMemory) {
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_TRUE(arch::loads_number_from_memory(Bytes{0x8b, 0x00}));                  // mov (%rax),%eax
  EXPECT_TRUE(arch::loads_number_from_memory(Bytes{0x8b, 0x03}));                  // mov (%rbx),%eax
  EXPECT_TRUE(arch::loads_number_from_memory(Bytes{0x48, 0x63, 0x47, 0x0c}));      // movslq 0xc(%rdi),%rax
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x8b, 0xc3}));                 // mov %ebx,%eax
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x44, 0x8b, 0x00}));           // mov (%rax),%r8d
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x8b, 0x05, 1, 0, 0, 0}));     // mov 1(%rip),%eax
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x48, 0x8b, 0x44, 0x24, 8}));  // mov 8(%rsp),%rax
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x89, 0x03}));                 // mov %eax,(%rbx)
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{0x8b}));
  EXPECT_FALSE(arch::loads_number_from_memory(Bytes{}));
}

// mov $14,%eax; mov $8,%r8d; mov %r8,%r10; syscall: rt_sigprocmask in gcc's sanitizers. In `mov $2,%eax` after a byte that only
// looks like the prefix of the former (jmp +0x41) the number counts.
TEST(SystemCalls, AnotherRegistersNumberIsNotTheCalls) {
  const std::vector<std::uint8_t> size_too = {0xb8, 14, 0, 0, 0, 0x41, 0xb8, 8, 0, 0, 0, 0x4d, 0x89, 0xc2, 0x0f, 0x05};
  const auto found = arch::number_before(size_too, 14);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, 14U);
  const std::vector<std::uint8_t> alone = {0xeb, 0x41, 0xb8, 2, 0, 0, 0, 0x0f, 0x05};
  const auto other = arch::number_before(alone, 7);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->number, 2U);
}

// A file with the bytes of a call only inside other instructions need not be read as a whole.
TEST(SystemCalls, TheQuickLookKnowsInstructions) {
  const std::string path = testing::TempDir() + "quick_look";
  const auto may_have = [&](const std::vector<std::uint8_t>& code) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(code.data()), static_cast<std::streamsize>(code.size()));
    return may_have_followed_calls(path, 0, code.size());
  };
  EXPECT_TRUE(may_have({0xb8, 9, 0, 0, 0, 0x0f, 0x05}));                           // mov $9,%eax; syscall
  EXPECT_TRUE(may_have({0xb8, 9, 0, 0, 0, 0x74, 2, 0x89, 0xd8, 0x0f, 0x05}));      // a branch in between
  EXPECT_FALSE(may_have({0xb8, 9, 0, 0, 0, 0xbb, 0x0f, 0x05, 0, 0, 0xc3}));        // mov $0x50f,%ebx
  EXPECT_FALSE(may_have({0xb8, 9, 0, 0, 0, 0x8b, 0x0f, 0x05, 1, 0, 0, 0, 0xc3}));  // mov (%rdi),%ecx; add $1,%eax
  EXPECT_FALSE(may_have({0xb8, 8, 0, 0, 0, 0x0f, 0x05}));                          // lseek
  std::remove(path.c_str());
}

// Other processes wait while the tool examines a file.
TEST(SystemCalls, AFileMadeOfCallsIsRefused) {
  constexpr std::uint8_t kCall[] = {0xb8, SYS_rt_sigaction, 0, 0, 0, 0x0f, 0x05};
  constexpr std::size_t kCalls = 20'000, kSize = elf::MadeElf::kCode + kCalls * sizeof kCall;
  elf::MadeElf made;
  made.segment().p_filesz = made.segment().p_memsz = kSize;
  auto bytes = made.bytes();
  bytes.resize(elf::MadeElf::kCode);
  for (std::size_t i = 0; i < kCalls; ++i) bytes.insert(bytes.end(), std::begin(kCall), std::end(kCall));
  const auto file = elf::ElfFile::parse("input", bytes);
  ASSERT_TRUE(file) << file.error().text;
  const auto sites = system_call_sites(*file, false);
  ASSERT_FALSE(sites);
  EXPECT_EQ(sites.error().code, Code::limit);
}

TEST(SystemCalls, TheEndOfAProcessIsFollowedOnDemand) {
  const auto file = elf::ElfFile::open(libc_path());
  ASSERT_TRUE(file);
  EXPECT_GT(system_call_sites(*file, true)->size(), system_call_sites(*file, false)->size());
}

}  // namespace
}  // namespace uprobe::plan
