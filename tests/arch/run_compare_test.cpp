// SPDX-License-Identifier: MIT
// Every row of the allow-list, run in its place and displaced from the same random states, and compared.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/io.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "arch/code/classify.h"
#include "tests/arch/hex.h"
#include "tests/arch/insn_table.h"

namespace uprobe::arch::test {
namespace {

constexpr int kStates = 6;
constexpr int kManyStates = 40;  // enough to see every condition both ways, and every system call

class Compare : public testing::TestWithParam<InsnGroup> {};

// Counts over all the states of one row.
struct Seen {
  bool falls_through = false;
  bool target = false;
  unsigned signals = 0;
};

void run_row(Machine& machine, const InsnRow& row, Random& random, Seen& seen) {
  const auto insn = from_hex(row.bytes);
  ASSERT_TRUE(can_displace(insn, {})) << row.text << ": " << can_displace(insn, {}).error().text;
  const bool has_many = row.scene == Scene::branch || row.scene == Scene::system_call;
  const int states = has_many ? kManyStates : kStates;
  for (int i = 0; i < states; ++i) {
    const Comparison result = machine.compare(insn, row.scene, random, row.loose);
    ASSERT_EQ(result.difference, "") << row.text << " (" << to_hex(machine.aimed()) << ") from " << std::hex
                                     << result.from << " to " << result.to;
    const int signal = result.native.signal.number;
    const bool may_be_illegal = row.scene == Scene::fault || row.scene == Scene::may_fault;
    ASSERT_TRUE(signal != SIGILL || may_be_illegal) << row.text << ": the processor lacks it, but has " << row.feature;
    ASSERT_TRUE(signal != 0 || row.scene != Scene::fault) << row.text << " is there to fault";
    if (signal != 0) {
      ++seen.signals;
      continue;
    }
    seen.falls_through |= result.native.arrived == kAfter;
    seen.target |= result.native.arrived >= kTarget;
  }
}

// A condition that was seen only one way has not been tested, nor a branch that never arrived.
void check_arrivals(const InsnRow& row, const Seen& seen) {
  if (row.scene != Scene::branch) return;
  const auto decoded = decode_fully(from_hex(row.bytes), {});
  const bool conditional = decoded->flow == Flow::jump_if || decoded->flow == Flow::loop;
  EXPECT_EQ(seen.falls_through, conditional) << row.text;
  EXPECT_TRUE(seen.target || seen.signals > 0) << row.text;
}

// vaes and vpclmulqdq have an encoding that AVX-512 alone brought, and processors without that.
bool is_here(const InsnRow& row) {
  const bool has_evex = std::string_view(row.bytes).starts_with("62");
  return has_feature(row.feature) && (!has_evex || has_feature("avx512vl"));
}

TEST_P(Compare, NativeAndDisplacedAgree) {
  Machine machine;
  Random random(2024);
  std::map<std::string, unsigned> lacking;
  unsigned ran = 0;
  for (const InsnRow& row : GetParam().rows) {
    if (!is_here(row)) {
      ++lacking[row.feature];
      continue;
    }
    Seen seen;
    run_row(machine, row, random, seen);
    if (HasFatalFailure()) continue;
    check_arrivals(row, seen);
    ++ran;
  }
  std::cout << GetParam().name << ": " << ran << " instructions compared";
  for (const auto& [feature, count] : lacking) std::cout << ", " << count << " without " << feature;
  std::cout << '\n';
  if (ran == 0) GTEST_SKIP() << "none of them here";
}

INSTANTIATE_TEST_SUITE_P(Groups, Compare, testing::ValuesIn(kInsnGroups),
                         [](const auto& group) { return std::string(group.param.name); });

// int f(): 1 when the transaction committed, 2 when it aborted. Written once and run often: a transaction that fetches
// code written just before it aborts.
struct TransactionCode {
  static constexpr std::size_t kCopy = 0x800;
  std::uint8_t* page = static_cast<std::uint8_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

  ~TransactionCode() { munmap(page, 4096); }

  // Writes it and its copy; poisons the original xbegin unless that is to run.
  void write(bool displaced) const {
    // xbegin +11; xend; mov $1,%eax; ret; nops; mov $2,%eax; ret
    const auto original = from_hex("c7f80b000000 0f01d5 b801000000c3 9090 b802000000c3");
    std::memcpy(page, original.data(), original.size());
    const auto from = reinterpret_cast<std::uint64_t>(page);
    const auto copy = displace(original, Addr{from}, Addr{from + kCopy});
    std::memcpy(page + kCopy, copy->data(), copy->size());
    if (displaced) std::memset(page, 0xcc, 6);
  }
  unsigned count_commits(bool displaced) const {
    const auto function = reinterpret_cast<int (*)()>(page + (displaced ? kCopy : 0));
    unsigned committed = 0;
    for (int i = 0; i < 1000; ++i) committed += function() == 1;
    return committed;
  }
};

TEST(Transaction, CommitsDisplaced) {
  if (!has_feature("rtm")) GTEST_SKIP() << "no transactions here";
  const TransactionCode native;
  const TransactionCode copied;
  ASSERT_TRUE(native.page != MAP_FAILED && copied.page != MAP_FAILED);
  native.write(false);
  copied.write(true);
  const unsigned as_it_stands = native.count_commits(false);
  const unsigned displaced = copied.count_commits(true);
  std::cout << as_it_stands << " of 1000 committed where they stood, " << displaced << " displaced\n";
  // A processor may be told to abort every transaction.
  EXPECT_EQ(as_it_stands > 0, displaced > 0);
}

// With the permission the instructions work, displaced as well. 0x80 is the port that no device listens to.
TEST(InputOutput, WorksDisplacedWherePermitted) {
  if (ioperm(0x80, 1, 1) != 0) GTEST_SKIP() << "no permission for a port";
  Machine machine;
  Random random(7);
  constexpr unsigned kRax = 1;
  for (const char* insn : {"e6 80", "e4 80"}) {
    const Comparison result = machine.compare(from_hex(insn), Scene::data, random, kRax);
    EXPECT_EQ(result.difference, "") << insn;
    EXPECT_EQ(result.native.signal.number, 0) << insn;
    EXPECT_EQ(result.native.arrived, kAfter) << insn;
  }
  ioperm(0x80, 1, 0);
  const Comparison forbidden = machine.compare(from_hex("e6 80"), Scene::data, random);
  EXPECT_EQ(forbidden.difference, "");
  EXPECT_EQ(forbidden.native.signal.number, SIGSEGV);
}

// After iopl(3) the kernel treats cli and sti as nops; it reads the byte at the fault.
TEST(InputOutput, InterruptFlagInstructionsWorkDisplacedWherePermitted) {
  if (iopl(3) != 0) GTEST_SKIP() << "no permission to raise the I/O privilege";
  Machine machine;
  Random random(7);
  for (const char* insn : {"fa", "fb"}) {
    const Comparison result = machine.compare(from_hex(insn), Scene::data, random);
    EXPECT_EQ(result.difference, "") << insn;
    // Kernels before 5.5 ran them, others pretend to: neither faults.
    EXPECT_EQ(result.native.signal.number, 0) << insn;
  }
  iopl(0);
}

// The siginfo of an instruction that exists to fault; the harness compares it with the displaced one.
TEST(Faults, AreOfTheRightKind) {
  struct Row {
    const char* insn;
    int signal;
    int code;
    bool has_address;  // si_addr is the instruction's, else 0
  };
  Machine machine;
  Random random(7);
  for (const Row& row : {Row{"0f 0b", SIGILL, ILL_ILLOPN, true}, Row{"0f b9 03", SIGILL, ILL_ILLOPN, true},
                         Row{"f4", SIGSEGV, SI_KERNEL, false}, Row{"0f 22 d8", SIGSEGV, SI_KERNEL, false},
                         Row{"ec", SIGSEGV, SI_KERNEL, false}}) {
    const Comparison result = machine.compare(from_hex(row.insn), Scene::data, random);
    EXPECT_EQ(result.difference, "") << row.insn;
    EXPECT_EQ(result.native.signal.number, row.signal) << row.insn;
    EXPECT_EQ(result.native.signal.code, row.code) << row.insn;
    EXPECT_EQ(result.native.signal.address, row.has_address ? result.from : 0) << row.insn;
  }
}

TEST(AllowList, EveryRowHasAnInstruction) {
  std::set<std::string> tried;
  for (const auto& group : kInsnGroups)
    for (const auto& row : group.rows) {
      const auto decoded = decode_fully(from_hex(row.bytes), {});
      ASSERT_TRUE(decoded) << row.text;
      ASSERT_EQ(decoded->length, from_hex(row.bytes).size()) << row.text;
      tried.insert(allow_list_row(*decoded));
    }
  for (const auto& row : allow_list_rows()) EXPECT_TRUE(tried.count(row)) << row;
}

}  // namespace
}  // namespace uprobe::arch::test
