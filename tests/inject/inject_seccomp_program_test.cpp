// SPDX-License-Identifier: MIT
// The kernel is the oracle: the same programs are put in force in a child, which makes the calls.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <random>
#include <vector>

#include "arch/shared/kernel.h"
#include "engine/inject/seccomp_program.h"

namespace uprobe::test {
namespace {

using control::answer_of;
using control::FilteredCall;
using Program = std::vector<sock_filter>;

constexpr long kNoCall = 0x1234;  // the kernel has none of this number: allowed, it is ENOSYS
constexpr int kKilled = -1, kNotMade = -2;
constexpr std::uint32_t kNumber = offsetof(seccomp_data, nr), kArguments = offsetof(seccomp_data, args);

sock_filter statement(unsigned code, std::uint32_t k) { return BPF_STMT(static_cast<std::uint16_t>(code), k); }
sock_filter jump(unsigned code, std::uint32_t k, std::size_t yes, std::size_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(code), k, static_cast<std::uint8_t>(yes), static_cast<std::uint8_t>(no));
}
sock_filter load(std::uint32_t offset) { return statement(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter answer(std::uint32_t value) { return statement(BPF_RET | BPF_K, value); }

FilteredCall call_of(const std::array<std::uint64_t, 6>& arguments) {
  FilteredCall call{.number = kNoCall, .arguments = {}};
  std::copy(arguments.begin(), arguments.end(), call.arguments.begin());
  return call;
}

// ---- what the kernel does

// The errno, 0 for none, or kKilled.
int as_seen(std::uint32_t answer) {
  switch (answer & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ERRNO:
      return static_cast<int>(std::min(answer & SECCOMP_RET_DATA, 4095u));
    case SECCOMP_RET_ALLOW:
    case SECCOMP_RET_LOG:
    case SECCOMP_RET_TRACE:
      return ENOSYS;
    default:
      return kKilled;
  }
}

int made(const FilteredCall& call) {
  const auto argument = [&call](std::size_t i) { return static_cast<long>(call.arguments[i].value_or(0)); };
  errno = 0;
  const long result =
      ::syscall(call.number, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5));
  return result == 0 ? 0 : errno;
}

bool put_in_force(Program& program) {
  sock_fprog all{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

// In a child. False: the kernel does not take the program.
bool make_all(Program& program, const std::vector<FilteredCall>& calls, std::size_t first, int* seen) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_CORE, &none);
    if (!put_in_force(program)) ::_exit(1);
    for (std::size_t i = first; i < calls.size(); ++i) __atomic_store_n(seen + i, made(calls[i]), __ATOMIC_RELAXED);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGSYS);
  return !WIFEXITED(status) || WEXITSTATUS(status) == 0;
}

// Makes the calls in one child after the other, each of which begins after the call that killed the one before. Empty: the kernel
// does not take the program.
std::vector<int> ask_kernel(Program program, const std::vector<FilteredCall>& calls) {
  const std::size_t bytes = calls.size() * sizeof(int);
  auto* seen = static_cast<int*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::fill_n(seen, calls.size(), kNotMade);
  std::vector<int> all;
  while (make_all(program, calls, all.size(), seen)) {
    const auto end = static_cast<std::size_t>(std::find(seen, seen + calls.size(), kNotMade) - seen);
    if (end != calls.size()) seen[end] = kKilled;
    all.assign(seen, seen + std::min(end + 1, calls.size()));
    if (all.size() == calls.size()) break;
  }
  ::munmap(seen, bytes);
  return all;
}

// ---- programs by chance

class Chance {
 public:
  explicit Chance(unsigned seed) : engine_(seed) {}
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(engine_() % limit); }
  std::uint32_t number() {
    const std::uint32_t any = static_cast<std::uint32_t>(engine_());
    return below(3) == 0 ? any : any & 15;
  }

 private:
  std::mt19937 engine_;
};

constexpr std::uint32_t kCells = 3;  // of the scratch memory, all of them written first

sock_filter load_by_chance(Chance& chance) {
  switch (chance.below(6)) {
    case 0:
      return statement(BPF_LD | BPF_IMM, chance.number());
    case 1:
      return statement(BPF_LDX | BPF_W | BPF_LEN, 0);
    case 2:
      return statement((chance.below(2) != 0 ? BPF_LD : BPF_LDX) | BPF_MEM, chance.below(kCells));
    case 3:
      return statement(BPF_LDX | BPF_IMM, chance.number());
    default:
      return load(chance.below(12) == 0 ? offsetof(seccomp_data, arch) : kArguments + 4 * chance.below(12));
  }
}

sock_filter sum_by_chance(Chance& chance) {
  constexpr unsigned kOperations[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR,
                                      BPF_AND, BPF_XOR, BPF_LSH, BPF_RSH, BPF_NEG};
  const unsigned operation = kOperations[chance.below(std::size(kOperations))];
  if (operation == BPF_NEG) return statement(BPF_ALU | BPF_NEG, 0);
  const bool is_shift = operation == BPF_LSH || operation == BPF_RSH;
  if (!is_shift && chance.below(2) != 0) return statement(BPF_ALU | operation | BPF_X, 0);
  const std::uint32_t k = is_shift ? chance.below(32) : operation == BPF_DIV ? chance.number() | 1 : chance.number();
  return statement(BPF_ALU | operation | BPF_K, k);
}

sock_filter jump_by_chance(Chance& chance, std::size_t left) {
  constexpr unsigned kConditions[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
  const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(left, 200));
  const unsigned by = chance.below(3) == 0 ? BPF_X : BPF_K;
  if (chance.below(8) == 0) return statement(BPF_JMP | BPF_JA, chance.below(most));
  return jump(BPF_JMP | kConditions[chance.below(4)] | by, chance.number(), chance.below(most), chance.below(most));
}

sock_filter step_by_chance(Chance& chance, std::size_t left) {
  switch (chance.below(8)) {
    case 0:
    case 1:
      return load_by_chance(chance);
    case 2:
    case 3:
    case 4:
      return sum_by_chance(chance);
    case 5:
      return statement(chance.below(2) != 0 ? BPF_ST : BPF_STX, chance.below(kCells));
    case 6:
      return statement(BPF_MISC | (chance.below(2) != 0 ? BPF_TAX : BPF_TXA), 0);
    default:
      return left > 1 ? jump_by_chance(chance, left) : load_by_chance(chance);
  }
}

// Any call but kNoCall is allowed. The end shows twelve bits of the accumulator.
Program program_by_chance(Chance& chance) {
  Program program = {load(kNumber), jump(BPF_JMP | BPF_JEQ | BPF_K, kNoCall, 1, 0), answer(SECCOMP_RET_ALLOW)};
  for (std::uint32_t cell = 0; cell < kCells; ++cell) program.push_back(statement(BPF_ST, cell));
  program.push_back(load(kArguments + 8 * chance.below(6)));
  for (std::size_t left = 6 + chance.below(40); left != 0; --left) program.push_back(step_by_chance(chance, left));
  if (chance.below(4) == 0) program.push_back(answer(chance.below(2) != 0 ? SECCOMP_RET_ALLOW : SECCOMP_RET_TRACE));
  program.push_back(statement(BPF_ALU | BPF_RSH | BPF_K, chance.below(20)));
  program.push_back(statement(BPF_ALU | BPF_AND | BPF_K, 0xfff));
  program.push_back(statement(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO));
  program.push_back(statement(BPF_RET | BPF_A, 0));
  return program;
}

std::vector<FilteredCall> calls_by_chance(Chance& chance) {
  std::vector<FilteredCall> calls;
  for (int i = 0; i < 12; ++i) {
    std::array<std::uint64_t, 6> arguments{};
    for (std::uint64_t& argument : arguments)
      argument = chance.number() | std::uint64_t{chance.below(2) != 0 ? chance.number() : 0} << 32;
    calls.push_back(call_of(arguments));
  }
  return calls;
}

TEST(SeccompProgramTest, AnswersAsTheKernelDoes) {
  std::size_t taken = 0, killed = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    Chance chance(seed);
    const Program program = program_by_chance(chance);
    const auto calls = calls_by_chance(chance);
    const auto seen = ask_kernel(program, calls);
    if (seen.empty()) continue;
    ++taken;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(as_seen(answer_of(program, calls[i])), seen.at(i)) << "seed " << seed << ", call " << i;
      killed += seen[i] == kKilled ? 1 : 0;
    }
  }
  EXPECT_GT(taken, 300u) << "the kernel takes most of these programs";
  EXPECT_GT(killed, 10u) << "some divide by zero";
}

// What is not known may be anything: the answer is that of the worst case.
TEST(SeccompProgramTest, IsNeverMilderWhereArgumentsAreUnknown) {
  std::size_t stricter = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    Chance chance(seed);
    const Program program = program_by_chance(chance);
    for (const FilteredCall& known : calls_by_chance(chance)) {
      FilteredCall unknown = known;
      for (auto& argument : unknown.arguments)
        if (chance.below(2) != 0) argument.reset();
      const std::uint32_t exact = answer_of(program, known), worst = answer_of(program, unknown);
      EXPECT_FALSE(control::is_allowed(worst) && !control::is_allowed(exact)) << "seed " << seed;
      stricter += control::is_allowed(exact) && !control::is_allowed(worst) ? 1 : 0;
    }
  }
  EXPECT_GT(stricter, 0u) << "some of them hang on what is unknown";
}

// ---- answers by hand

// Allows kNoCall where the third argument has bit 2, else kills.
Program kills_without_bit() {
  return {load(kArguments + 16), jump(BPF_JMP | BPF_JSET | BPF_K, 4, 0, 1), answer(SECCOMP_RET_ALLOW),
          answer(SECCOMP_RET_KILL_PROCESS)};
}

TEST(SeccompProgramTest, LooksAtKnownArguments) {
  EXPECT_TRUE(control::is_allowed(answer_of(kills_without_bit(), call_of({0, 0, 4, 0, 0, 0}))));
  EXPECT_EQ(answer_of(kills_without_bit(), call_of({4, 4, 3, 4, 4, 4})), SECCOMP_RET_KILL_PROCESS);
  FilteredCall unknown = call_of({});
  unknown.arguments[2].reset();
  EXPECT_EQ(answer_of(kills_without_bit(), unknown), SECCOMP_RET_KILL_PROCESS);
  unknown.arguments[2] = 4, unknown.arguments[0].reset();
  EXPECT_TRUE(control::is_allowed(answer_of(kills_without_bit(), unknown)));
}

TEST(SeccompProgramTest, KnowsTheMachineAndNotThePlaceOfTheCall) {
  const Program by_machine = {load(offsetof(seccomp_data, arch)),
                              jump(BPF_JMP | BPF_JEQ | BPF_K, shared::kAuditArch, 0, 1), answer(SECCOMP_RET_LOG),
                              answer(SECCOMP_RET_TRAP)};
  EXPECT_EQ(answer_of(by_machine, call_of({})), SECCOMP_RET_LOG);
  const Program by_place = {load(offsetof(seccomp_data, instruction_pointer)),
                            jump(BPF_JMP | BPF_JEQ | BPF_K, 0x1000, 0, 1), answer(SECCOMP_RET_ALLOW),
                            answer(SECCOMP_RET_ERRNO | EPERM)};
  EXPECT_EQ(answer_of(by_place, call_of({})), SECCOMP_RET_ERRNO | EPERM);
}

TEST(SeccompProgramTest, OrdersAnswersAsTheKernelDoes) {
  constexpr std::uint32_t kByStrictness[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP,
                                             SECCOMP_RET_ERRNO,        SECCOMP_RET_USER_NOTIF,  SECCOMP_RET_TRACE,
                                             SECCOMP_RET_LOG,          SECCOMP_RET_ALLOW};
  for (std::size_t i = 1; i < std::size(kByStrictness); ++i) {
    EXPECT_EQ(control::stricter_answer(kByStrictness[i], kByStrictness[i - 1]), kByStrictness[i - 1]);
    EXPECT_EQ(control::stricter_answer(kByStrictness[i - 1], kByStrictness[i]), kByStrictness[i - 1]);
    EXPECT_EQ(control::is_allowed(kByStrictness[i]), i >= 6);
  }
}

TEST(SeccompProgramTest, TakesAnythingForAProgram) {
  const FilteredCall call = call_of({});
  EXPECT_EQ(answer_of(Program{}, call), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(answer_of(Program{load(kNumber)}, call), SECCOMP_RET_KILL_PROCESS) << "it has no end";
  EXPECT_EQ(answer_of(Program{statement(BPF_JMP | BPF_JA, 0xffffffff), answer(SECCOMP_RET_ALLOW)}, call),
            SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(answer_of(Program{load(62), answer(SECCOMP_RET_ALLOW)}, call), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(answer_of(Program{statement(BPF_ST, 16), answer(SECCOMP_RET_ALLOW)}, call), SECCOMP_RET_KILL_PROCESS);
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    Chance chance(seed);
    Program program;
    for (std::uint32_t left = 1 + chance.below(30); left != 0; --left)
      program.push_back({static_cast<std::uint16_t>(chance.below(256)), static_cast<std::uint8_t>(chance.below(8)),
                         static_cast<std::uint8_t>(chance.below(8)), chance.number()});
    static_cast<void>(answer_of(program, call));
  }
}

// Each condition doubles the paths: 2^1000 of them.
TEST(SeccompProgramTest, GivesUpWhereThereAreTooManyPaths) {
  Program program;
  for (int i = 0; i < 1000; ++i) {
    program.push_back(load(kArguments));
    program.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(i), 0, 0));
  }
  program.push_back(answer(SECCOMP_RET_ALLOW));
  FilteredCall unknown{.number = kNoCall, .arguments = {}};
  EXPECT_EQ(answer_of(program, unknown), SECCOMP_RET_KILL_PROCESS);
  EXPECT_TRUE(control::is_allowed(answer_of(program, call_of({}))));
}

}  // namespace
}  // namespace uprobe::test
