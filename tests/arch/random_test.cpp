// SPDX-License-Identifier: MIT
// Random instructions from random states, in their place and displaced. Each batch runs in a child, so that an instruction that
// kills or hangs its process is an error of that batch alone. UPROBE_FUZZ_ITERATIONS sets their number (default 100,000),
// UPROBE_FUZZ_SEED the start of the random numbers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include "arch/code/classify.h"
#include "tests/arch/hex.h"
#include "tests/arch/machine.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UPROBE_HAS_SHADOW_MEMORY
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UPROBE_HAS_SHADOW_MEMORY
#endif

namespace uprobe::arch::test {
namespace {

constexpr unsigned kBatch = 2000;
constexpr unsigned kBatchSeconds = 60;
constexpr std::uint64_t kBatchesOfSeed = 1'000'000;

unsigned long setting(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 0);
}

// Instructions that would disturb the harness, reach the kernel or a hypervisor, wait, go on as 32-bit code, or never give the
// same result twice. The table has a row for each.
bool is_unfit(std::string_view mnemonic) {
  static const std::set<std::string_view> kUnfit = {
      "popf",     "popfq",  "rdtsc",    "rdtscp", "rdpru",   "rdrand", "rdseed", "wrfsbase", "wrgsbase",
      "wrpkru",   "xbegin", "monitorx", "mwaitx", "umwait",  "tpause", "lfs",    "lgs",      "lss",
      "umonitor", "int",    "syscall",  "vmcall", "vmmcall", "iret",   "iretd",  "iretq",    "uiret"};
  return kUnfit.count(mnemonic) != 0;
}

// A REX prefix also counts without an effect, before other prefixes.
bool is_prefix(std::uint8_t byte) {
  if ((byte & 0xf0) == 0x40) return true;
  static constexpr std::uint8_t kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
  return std::find(std::begin(kPrefixes), std::end(kPrefixes), byte) != std::end(kPrefixes);
}

// fs addresses the thread's own memory, 67 the low addresses with the harness; but eip is as good as rip there.
bool has_unfit_prefix(const Decoded& insn) {
  for (unsigned i = 0; i < insn.length && is_prefix(insn.bytes[i]); ++i)
    if (insn.bytes[i] == 0x64 || (insn.bytes[i] == 0x67 && insn.base != Base::eip)) return true;
  return false;
}

bool loads_segment(const Decoded& insn) {
  if (insn.mnemonic == "mov") return insn.opcode == 0x8e;
  return insn.mnemonic == "pop" && (insn.opcode == 0xa1 || insn.opcode == 0xa9);
}

bool is_fit(const Decoded& insn) {
  if (insn.is_far || is_unfit(insn.mnemonic) || has_unfit_prefix(insn) || loads_segment(insn)) return false;
  return !(insn.has_memory && insn.base == Base::none);  // an absolute address
}

// Random bytes, in which the first bytes of rare encodings are as likely as others.
std::array<std::uint8_t, kMaxInsnBytes> random_bytes(Random& random) {
  std::array<std::uint8_t, kMaxInsnBytes> bytes;
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  std::size_t at = 0;
  if (random() % 3 == 0) bytes[at++] = std::array<std::uint8_t, 5>{0x66, 0xf2, 0xf3, 0xf0, 0x67}[random() % 5];
  switch (random() % 8) {
    case 0:
      bytes[at] = static_cast<std::uint8_t>(0x40 | random() % 16);
      bytes[at + 1] = 0x0f;
      break;
    case 1:
      bytes[at] = 0x0f;
      break;
    case 2:
      bytes[at] = 0x0f;
      bytes[at + 1] = random() % 2 == 0 ? 0x38 : 0x3a;
      break;
    case 3:
      bytes[0] = 0xc4;
      bytes[1] = static_cast<std::uint8_t>((bytes[1] & 0xe0) | (1 + random() % 3));
      break;
    case 4:
      bytes[0] = 0x62;
      bytes[1] = static_cast<std::uint8_t>((bytes[1] & 0xf0) | (1 + random() % 6));
      bytes[2] |= 4;
      break;
    case 5:
      bytes[at] = 0xff;
      break;
    default:
      break;
  }
  return bytes;
}

struct Counts {
  unsigned compared = 0;
  unsigned signalled = 0;
};

// One instruction; false when it differs.
bool try_one(Machine& machine, Random& random, Counts& counts) {
  const auto bytes = random_bytes(random);
  const auto insn = decode_fully(bytes, {});
  if (!insn || !is_fit(*insn) || !can_displace(bytes, {})) return true;
  const Scene scene = std::array{Scene::data, Scene::nothing, Scene::branch}[random() % 3];
  const Comparison result = machine.compare(bytes, scene, random);
  ++counts.compared;
  counts.signalled += result.native.signal.number != 0;
  if (result.difference.empty()) return true;
  std::cerr << to_hex(machine.aimed()) << ' ' << disassemble(machine.aimed(), Addr{result.from}) << " from " << std::hex
            << result.from << " to " << result.to << std::dec << ": " << result.difference << '\n';
  return false;
}

// Runs in a child: 0 when nothing differed.
int run_batch(std::uint64_t seed, unsigned count, int out) {
  alarm(kBatchSeconds);
  Random random(seed);
  Machine machine;
  Counts counts;
  bool same = true;
  while (counts.compared < count) same &= try_one(machine, random, counts);
  if (write(out, &counts, sizeof counts) != sizeof counts) return 3;
  return same ? 0 : 1;
}

Counts run_batch_in_child(std::uint64_t seed, unsigned count) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) _exit(run_batch(seed, count, ends[1]));
  close(ends[1]);
  Counts counts;
  if (read(ends[0], &counts, sizeof counts) != sizeof counts) counts = {};
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "batch of seed " << seed;
  return counts;
}

TEST(RandomInstructions, NativeAndDisplacedAgree) {
#ifdef UPROBE_HAS_SHADOW_MEMORY
  GTEST_SKIP() << "stray stores would reach the sanitizer's memory";
#endif
  const unsigned long wanted = setting("UPROBE_FUZZ_ITERATIONS", 100'000);
  const std::uint64_t seed = setting("UPROBE_FUZZ_SEED", 1) * kBatchesOfSeed;
  Counts total;
  for (unsigned long done = 0; done < wanted; done += kBatch) {
    const auto count = static_cast<unsigned>(std::min<unsigned long>(kBatch, wanted - done));
    const Counts counts = run_batch_in_child(seed + done / kBatch, count);
    ASSERT_EQ(counts.compared, count);
    total.compared += counts.compared;
    total.signalled += counts.signalled;
  }
  std::cout << total.compared << " compared, of which " << total.signalled << " end in a signal both ways\n";
  EXPECT_LT(total.signalled, total.compared * 3 / 4) << "too few that do something";
}

}  // namespace
}  // namespace uprobe::arch::test
