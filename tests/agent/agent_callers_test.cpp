// SPDX-License-Identifier: MIT
// Which callers may return through a stub: by the unwind information of this program and of its libraries.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "preload/callers.h"
#include "tests/agent/agent_in_test.h"

extern "C" const char bare_code[], bare_code_end[];
// A call without a description: .cfi_startproc is missing.
asm(R"(
        .text
        .globl bare_code, bare_code_end
        .p2align 6
        nop
        .skip 64, 0x90
bare_code:
        call bare_code_end
bare_code_end:
        ret
        .skip 64, 0x90
)");

namespace uprobe::test {
namespace {

using shared::CodeFile;

class Callers : public testing::Test {
 protected:
  Callers() : block_(empty_block()), files_(code_files_of(block_)) {
    install_agent_handlers();
    list_own_code(block_);
  }
  bool may(u64 address) { return agent::may_return_by_stub(block_, address); }

  shared::ProcessBlock& block_;
  CodeFile* files_;
};

[[gnu::noinline]] u64 caller() { return reinterpret_cast<u64>(__builtin_return_address(0)); }

TEST_F(Callers, WhatACompilerHasMadeIsDescribed) {
  EXPECT_TRUE(may(caller()));
  EXPECT_TRUE(may(reinterpret_cast<u64>(&dl_iterate_phdr) + 1));
}

TEST_F(Callers, WhatHasNoDescriptionIsNot) {
  EXPECT_FALSE(may(word_of(bare_code_end)));
  block_.any_caller = 1;
  EXPECT_TRUE(may(word_of(bare_code_end)));
}

TEST_F(Callers, GeneratedCodeBelongsToNoFile) {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_FALSE(may(word_of(page) + 16));
  ::munmap(page, 4096);
  EXPECT_FALSE(may(word_of(page) + 16));
}

TEST_F(Callers, TheCallIsWhatCounts) {
  const u64 here = caller();
  CodeFile& file = files_[0];
  file.begin = here, file.end = here + 64;
  EXPECT_FALSE(may(here));
  file.begin = here - 1, file.end = here;
  EXPECT_TRUE(may(here));
}

TEST_F(Callers, WhatDoesNotStandThereAnyMoreIsNotBelieved) {
  const u64 here = caller();
  const u64 header = files_[0].unwind_header;
  for (const u64 wrong : {u64{0}, u64{4096}, header + 4, ~u64{0} - 4, word_of(bare_code)}) {
    files_[0].unwind_header = wrong;
    EXPECT_FALSE(may(here)) << wrong;
  }
  files_[0].unwind_header = header;
  EXPECT_TRUE(may(here));
}

// All reads of a damaged table are checked.
TEST_F(Callers, DamagedTablesAreReadWithCare) {
  const u64 here = caller();
  std::vector<u32> table(512, 0x80808080);
  files_[0].unwind_header = word_of(table.data());
  for (const u32 count : {0U, 1U, 7U, 500U, ~0U}) {
    table[0] = 0x3b031b01, table[2] = count;
    EXPECT_FALSE(may(here)) << count;
  }
}

}  // namespace
}  // namespace uprobe::test
