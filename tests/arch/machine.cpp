// SPDX-License-Identifier: MIT
// The machine of machine.h: its memory, its states, its runs.
#include "tests/arch/machine.h"

#include <cpuid.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "engine/base/fd.h"

extern "C" {
void machine_enter(uprobe::arch::test::MachineContext* context);
extern const char machine_exit[];
extern const char machine_end[];
}

namespace uprobe::arch::test {
namespace {

// Below 2 GiB, so that 32-bit addresses reach everything; far enough apart that nothing runs into a neighbour.
constexpr std::uint64_t kCode = 0x2000'0000;  // the original, and near copies
constexpr std::uint64_t kFar = 0x6000'0000;   // copies a gigabyte away
constexpr std::uint64_t kData = 0x2800'0000;
constexpr std::uint64_t kStack = 0x2c00'0000;
constexpr std::uint64_t kArrived = 0x2e00'0000;  // where a landing place writes its number
constexpr std::size_t kCodeBytes = 0x10000;
constexpr std::size_t kAreaBytes = 0x4000;  // data, and stack
// The landing place of direct branches stands this far after the instruction's start: an 8-bit distance reaches it.
constexpr std::uint64_t kTargetDistance = 100;
// The landing place of indirect branches stands far from all else: pointers to it also serve as addresses of operands.
constexpr std::uint64_t kIndirectTarget = kCode + 0x2000;
// There are many of these, each with its own number, and neighbouring words of memory hold different ones.
constexpr unsigned kIndirectTargets = 64;
constexpr std::uint64_t kLandingBytes = 32;

// The states that xsave64 stores and xrstor64 loads here: x87, SSE, AVX, the three of AVX-512.
constexpr std::uint64_t kWantedStates = 0xe7;

constexpr std::uint64_t kArithmeticFlags = 0xcd5;  // carry, parity, adjust, zero, sign, direction, overflow

std::uint8_t* at(std::uint64_t address) {
  return reinterpret_cast<std::uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr): the addresses are chosen
}

void map_fixed(std::uint64_t address, std::size_t size) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (mmap(at(address), size, PROT_READ | PROT_WRITE, kFlags, -1, 0) != at(address)) std::abort();
}

// Code that stray stores cannot change: executable at `address`, writable at the returned place.
std::uint8_t* map_code(std::uint64_t address) {
  const Fd file(memfd_create("code", 0));
  if (ftruncate(file.get(), kCodeBytes) != 0) std::abort();
  void* code = mmap(at(address), kCodeBytes, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED_NOREPLACE, file.get(), 0);
  void* writable = mmap(nullptr, kCodeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (code != at(address) || writable == MAP_FAILED) std::abort();
  std::memset(writable, 0xcc, kCodeBytes);
  return static_cast<std::uint8_t*>(writable);
}

// --- signals -------------------------------------------------------------------------------------------------------

Signal caught;

// Records the signal and lets the thread go on at the exit with the registers as they were.
void on_signal(int number, siginfo_t* info, void* raw) {
  auto& rip = static_cast<ucontext_t*>(raw)->uc_mcontext.gregs[REG_RIP];
  const auto where = static_cast<std::uint64_t>(rip);
  const auto exit = reinterpret_cast<std::uint64_t>(machine_exit);
  if (where >= exit && where < reinterpret_cast<std::uint64_t>(machine_end)) _exit(99);
  caught = {number, info->si_code, reinterpret_cast<std::uint64_t>(info->si_addr), where};
  rip = static_cast<greg_t>(exit);
}

void catch_signals() {
  alignas(64) static std::array<std::uint8_t, 1 << 17> stack;
  stack_t alternate = {};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGBUS}) sigaction(number, &action, nullptr);
}

void release_signals() {
  for (const int number : {SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGBUS}) ::signal(number, SIG_DFL);
}

// One processor only: cpuid, rdpid and rdtscp show it.
void stay_on_this_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::uint64_t enabled_states() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32 | low) & kWantedStates;
}

struct Component {
  std::size_t offset = 0;
  std::size_t size = 0;
};

Component ask_for_component(unsigned index) {
  unsigned size = 0;
  unsigned offset = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __get_cpuid_count(0xd, index, &size, &offset, &ecx, &edx);
  return {offset, size};
}

// Asked once: in a virtual machine cpuid takes as long as everything else together.
Component component(unsigned index) {
  static const auto kComponents = [] {
    std::array<Component, 8> found;
    for (unsigned i = 0; i < found.size(); ++i) found[i] = ask_for_component(i);
    return found;
  }();
  return kComponents[index];
}

// movl $number, kArrived; jmp *(machine_exit): 24 bytes that change nothing but the number.
void put_landing(std::uint8_t* out, std::uint64_t place, std::uint32_t number) {
  const auto distance = static_cast<std::uint32_t>(kArrived - (place + 10));
  const auto exit = reinterpret_cast<std::uint64_t>(machine_exit);
  std::memcpy(out, "\xc7\x05", 2);
  std::memcpy(out + 2, &distance, 4);
  std::memcpy(out + 6, &number, 4);
  std::memcpy(out + 10, "\xff\x25\0\0\0\0", 6);
  std::memcpy(out + 16, &exit, 8);
}

std::uint64_t pointer(Random& random) { return kData + 0x1000 + random() % 0x80 * 64; }

// SplitMix64: a state is some five thousand numbers, and most of them only have to stay unchanged.
struct Quick {
  std::uint64_t state;

  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e37'79b9'7f4a'7c15;
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
    return z ^ (z >> 31);
  }
};

// Numbers that instructions treat specially are as likely as any others: small ones of both signs, 32-bit ones,
// infinities and not-a-numbers.
template <class Source>
std::uint64_t value(Source& random) {
  static constexpr std::uint64_t kKeep[] = {~0ULL, ~0ULL, ~0ULL, ~0ULL, 0xf, 0xf, 0xffff'ffff, 0x8000'0000'8000'0000};
  static constexpr std::uint64_t kFlip[] = {0, 0, 0, 0, 0, ~0ULL, 0, 0x7ff0'0000'7f80'0000};
  const std::uint64_t number = random();
  return (number & kKeep[number >> 40 & 7]) ^ kFlip[number >> 40 & 7];
}

// Some that always succeed, some that fail because rdi is no descriptor, some that do not exist.
std::uint64_t harmless_call(Random& random) {
  static constexpr std::uint64_t kCalls[] = {SYS_getpid, SYS_gettid, SYS_getuid, SYS_sched_yield, SYS_close,
                                             SYS_read,   SYS_fsync,  ~0ULL,      1'000'000};
  return kCalls[random() % std::size(kCalls)];
}

void fill(std::uint8_t* out, std::size_t size, Random& random) {
  Quick quick{random()};
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = value(quick);
    std::memcpy(out + i, &word, std::min<std::size_t>(8, size - i));
  }
}

// --- comparing -----------------------------------------------------------------------------------------------------

// The original's place for a thread that the signal found in the copy. Returns the number of bytes that the copy had pushed.
unsigned translate(Outcome& outcome, const Copy& copy, std::uint64_t to) {
  const std::uint64_t offset = outcome.signal.rip - to;
  if (outcome.signal.number == 0 || offset >= copy.bytes.size()) return 0;
  const auto after = std::find_if(copy.marks.begin(), copy.marks.end(),
                                  [offset](const CopyMark& mark) { return mark.offset > offset; });
  const CopyMark& mark = *std::prev(after);
  if (outcome.signal.address == outcome.signal.rip) outcome.signal.address = mark.original.value;
  outcome.signal.rip = mark.original.value;
  outcome.registers.gpr[4] += mark.pushed;
  return mark.pushed;
}

void take_below_stack(Outcome& outcome, const Outcome& other, unsigned bytes) {
  const std::size_t offset = kAreaBytes + (other.registers.gpr[4] - bytes - kStack);
  std::copy_n(other.memory.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
              outcome.memory.begin() + static_cast<std::ptrdiff_t>(offset));
}

// No data lives below the caller's red zone: a copy of a call may write there.
void take_below_red_zone(Outcome& outcome, const Outcome& native, std::uint64_t rsp) {
  constexpr unsigned kRedZone = 128;
  constexpr unsigned kScratch = 16;
  const auto offset = static_cast<std::ptrdiff_t>(kAreaBytes + (rsp - kRedZone - kScratch - kStack));
  std::copy_n(native.memory.begin() + offset, kScratch, outcome.memory.begin() + offset);
}

// An x87 instruction stores its own address (bytes 8-15 of the area): the copy's in place of the original's.
void translate_x87_address(Outcome& outcome, std::uint64_t from, std::uint64_t to) {
  std::uint64_t address = 0;
  std::memcpy(&address, outcome.xsave.data() + 8, 8);
  if (address == to) std::memcpy(outcome.xsave.data() + 8, &from, 8);
}

std::string describe(const char* what, std::uint64_t native, std::uint64_t displaced) {
  std::ostringstream text;
  text << what << std::hex << ": native " << native << ", displaced " << displaced << "; ";
  return text.str();
}

// AMD's processors store and load the addresses of the last x87 instruction and its operand with an exception pending only (APM
// volume 2, 11.4.4). Else they are what the processor had last, which may have been another process's.
void forget_x87_addresses(std::vector<std::uint8_t>& xsave) {
  constexpr std::uint8_t kErrorSummary = 0x80;
  constexpr std::size_t kStatus = 2, kAddresses = 6, kAfterAddresses = 24;
  if (!__builtin_cpu_is("amd") || (xsave[kStatus] & kErrorSummary) != 0) return;
  std::fill(xsave.begin() + kAddresses, xsave.begin() + kAfterAddresses, std::uint8_t{0});
}

// An instruction without an operand in memory leaves the operand's address as it was: on AMD's processors, as said above, that
// may be another process's even where the instruction itself raises the exception.
void forget_x87_operand(std::vector<std::uint8_t>& xsave) {
  constexpr std::size_t kOperand = 16, kAfterOperand = 24;
  if (!__builtin_cpu_is("amd")) return;
  std::fill(xsave.begin() + kOperand, xsave.begin() + kAfterOperand, std::uint8_t{0});
}

std::string compare_registers(const Registers& a, const Registers& b) {
  static constexpr const char* kNames[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                           "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
  std::string text;
  for (unsigned i = 0; i < a.gpr.size(); ++i)
    if (a.gpr[i] != b.gpr[i]) text += describe(kNames[i], a.gpr[i], b.gpr[i]);
  if (a.flags != b.flags) text += describe("flags", a.flags, b.flags);
  return text;
}

std::string compare_bytes(const char* what, const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  if (a == b) return {};
  const auto [first, second] = std::mismatch(a.begin(), a.end(), b.begin());
  const auto offset = static_cast<std::size_t>(first - a.begin());
  return std::string(what) + " at " + std::to_string(offset) + describe(":", *first, *second);
}

std::string compare_signals(const Signal& a, const Signal& b) {
  std::string text;
  if (a.number != b.number)
    text += describe("signal", static_cast<unsigned>(a.number), static_cast<unsigned>(b.number));
  if (a.code != b.code) text += describe("signal's code", static_cast<unsigned>(a.code), static_cast<unsigned>(b.code));
  if (a.address != b.address) text += describe("signal's address", a.address, b.address);
  if (a.rip != b.rip) text += describe("rip at the signal", a.rip, b.rip);
  return text;
}

std::string compare_outcomes(const Outcome& a, const Outcome& b) {
  std::string text = compare_signals(a.signal, b.signal);
  if (a.arrived != b.arrived) text += describe("arrived", a.arrived, b.arrived);
  text += compare_registers(a.registers, b.registers);
  if (a.fsbase != b.fsbase) text += describe("fs base", a.fsbase, b.fsbase);
  if (a.gsbase != b.gsbase) text += describe("gs base", a.gsbase, b.gsbase);
  return text + compare_bytes("xsave area", a.xsave, b.xsave) + compare_bytes("memory", a.memory, b.memory);
}

}  // namespace

Machine::Machine() {
  near_ = map_code(kCode);
  far_ = map_code(kFar);
  map_fixed(kData, kAreaBytes);
  map_fixed(kStack, kAreaBytes);
  map_fixed(kArrived, 4096);
  for (unsigned i = 0; i < kIndirectTargets; ++i) {
    const std::uint64_t place = kIndirectTarget + i * kLandingBytes;
    put_landing(writable(place), place, kTarget + i);
  }
  memory_.resize(2 * kAreaBytes);
  context_.xsave_mask = enabled_states();
  xsave_bytes_ = 0x1000;
  xsave_ = static_cast<std::uint8_t*>(std::aligned_alloc(64, 2 * xsave_bytes_));
  context_.xsave_in = xsave_;
  context_.xsave_out = xsave_ + xsave_bytes_;
  context_.has_fsgsbase = (getauxval(AT_HWCAP2) & 2) != 0;
  stay_on_this_processor();
  catch_signals();
}

Machine::~Machine() {
  release_signals();
  munmap(at(kCode), kCodeBytes);
  munmap(at(kFar), kCodeBytes);
  munmap(at(kData), kAreaBytes);
  munmap(at(kStack), kAreaBytes);
  munmap(at(kArrived), 4096);
  munmap(near_, kCodeBytes);
  munmap(far_, kCodeBytes);
  std::free(xsave_);
}

void Machine::fill_registers(Scene scene, Random& random) {
  auto& gpr = context_.in.gpr;
  for (auto& reg : gpr) reg = scene == Scene::nothing && random() % 3 == 0 ? pointer(random) : value(random);
  gpr[4] = kStack + kAreaBytes / 2 + random() % 64 * 8;
  context_.in.flags = 0x202 | (random() & kArithmeticFlags);
  if (scene == Scene::nothing) return;
  for (const unsigned reg : {3, 5, 6, 7, 8, 12, 13, 14}) gpr[reg] = pointer(random);
  gpr[1] = random() % 4 == 0 ? random() % 2 : random() % 32;
  gpr[9] = random() % 32;
  if (scene == Scene::system_call) gpr[0] = harmless_call(random);
  if (scene != Scene::branch) return;
  for (const unsigned reg : {0, 2, 10, 11, 15}) gpr[reg] = kIndirectTarget;
}

void Machine::fill_vectors(Random& random) {
  std::memset(xsave_, 0, 2 * xsave_bytes_);
  fill(xsave_, 512, random);
  for (unsigned i = 2; i < 8; ++i) {
    if ((context_.xsave_mask >> i & 1) == 0) continue;
    const auto [offset, size] = component(i);
    fill(xsave_ + offset, size, random);
  }
  const bool quiet = random() % 8 != 0;  // all exceptions masked
  const auto control = static_cast<std::uint16_t>((random() & 0xf3f) | 0x40 | (quiet ? 0x3f : 0));
  // No pending exceptions: they would strike before the instruction.
  const auto status = static_cast<std::uint16_t>(random() & 0x7f00);
  const auto mxcsr = static_cast<std::uint32_t>((random() & 0xffff) | (quiet ? 0x1f80 : 0));
  std::memcpy(xsave_, &control, 2);
  std::memcpy(xsave_ + 2, &status, 2);
  const std::uint64_t header[8] = {context_.xsave_mask};
  std::memcpy(xsave_ + 24, &mxcsr, 4);
  std::memcpy(xsave_ + 512, header, sizeof header);
  // xmm14 and zmm30 hold small 32-bit indices, xmm15 and zmm31 small 64-bit ones: for gathers.
  std::array<std::uint32_t, 16> narrow;
  std::array<std::uint64_t, 8> wide;
  for (auto& index : narrow) index = static_cast<std::uint32_t>(random() % 32);
  for (auto& index : wide) index = random() % 32;
  std::memcpy(xsave_ + 160 + 14 * 16, narrow.data(), 16);
  std::memcpy(xsave_ + 160 + 15 * 16, wide.data(), 16);
  if ((context_.xsave_mask & 4) != 0) {
    const std::size_t high_halves = component(2).offset;
    std::memcpy(xsave_ + high_halves + 14 * 16, narrow.data() + 4, 16);
    std::memcpy(xsave_ + high_halves + 15 * 16, wide.data() + 2, 16);
  }
  if ((context_.xsave_mask & 0x80) == 0) return;
  const std::size_t high = component(7).offset;
  std::memcpy(xsave_ + high + 14 * 64, narrow.data(), 64);
  std::memcpy(xsave_ + high + 15 * 64, wide.data(), 64);
}

void Machine::fill_memory(Scene scene, Random& random) {
  fill(memory_.data(), memory_.size(), random);
  if (scene != Scene::branch && scene != Scene::flags) return;
  Quick quick{random()};
  for (std::size_t i = 0; i < memory_.size(); i += 8) {
    const std::uint64_t flags = 0x202 | (quick() & kArithmeticFlags);
    const std::uint64_t target = kIndirectTarget + i / 8 % kIndirectTargets * kLandingBytes;
    if (scene == Scene::branch) std::memcpy(&memory_[i], &target, 8);
    if (scene == Scene::flags) std::memcpy(&memory_[i], &flags, 8);
  }
}

void Machine::fill_state(Scene scene, Random& random) {
  fill_registers(scene, random);
  fill_vectors(random);
  fill_memory(scene, random);
}

void Machine::aim(Bytes insn, Random& random) {
  const auto decoded = decode_fully(insn, Addr{from_});
  if (!decoded) std::abort();
  aimed_.assign(insn.begin(), insn.begin() + decoded->length);
  if (decoded->is_direct) {
    const auto distance = static_cast<std::uint32_t>(kTargetDistance - decoded->length);
    std::memcpy(&aimed_[decoded->target_offset], &distance, decoded->length - decoded->target_offset);
  }
  if (decoded->base != Base::rip && decoded->base != Base::eip) return;
  const auto distance = static_cast<std::uint32_t>(pointer(random) - (from_ + decoded->length));
  std::memcpy(&aimed_[decoded->disp_offset], &distance, 4);
}

Outcome Machine::run(std::uint64_t entry) {
  std::memcpy(at(kData), memory_.data(), kAreaBytes);
  std::memcpy(at(kStack), memory_.data() + kAreaBytes, kAreaBytes);
  std::memset(context_.xsave_out, 0, xsave_bytes_);
  std::memset(at(kArrived), 0, 4);
  context_.entry = entry;
  caught = {};
  machine_enter(&context_);

  Outcome outcome;
  outcome.registers = context_.out;
  outcome.fsbase = context_.out_fsbase;
  outcome.gsbase = context_.out_gsbase;
  outcome.xsave.assign(context_.xsave_out, context_.xsave_out + xsave_bytes_);
  forget_x87_addresses(outcome.xsave);
  // The processor decides by itself which states it marks as initial.
  std::memset(outcome.xsave.data() + 512, 0, 64);
  outcome.memory.assign(at(kData), at(kData) + kAreaBytes);
  outcome.memory.insert(outcome.memory.end(), at(kStack), at(kStack) + kAreaBytes);
  std::memcpy(&outcome.arrived, at(kArrived), 4);
  outcome.signal = caught;
  return outcome;
}

std::uint8_t* Machine::writable(std::uint64_t address) {
  return address - kCode < kCodeBytes ? near_ + (address - kCode) : far_ + (address - kFar);
}

// The original, with landing places after it.
void Machine::place() {
  std::memset(writable(from_), 0xcc, kTargetDistance);
  std::memcpy(writable(from_), aimed_.data(), aimed_.size());
  put_landing(writable(from_ + aimed_.size()), from_ + aimed_.size(), kAfter);
  put_landing(writable(from_ + kTargetDistance), from_ + kTargetDistance, kTarget);
}

Comparison Machine::compare(Bytes insn, Scene scene, Random& random, unsigned loose) {
  constexpr unsigned kTries = 4;
  from_ = kCode + 0x4000 + random() % 64;
  aim(insn, random);
  fill_state(scene, random);
  const std::uint64_t to = (random() % 2 == 0 ? kFar : kCode) + 0x8000 + random() % 0x1000;
  Comparison result = run_both(to, loose);
  for (unsigned i = 1; i < kTries && !result.difference.empty(); ++i) result = run_both(to, loose);
  return result;
}

Comparison Machine::run_both(std::uint64_t to, unsigned loose) {
  place();
  Comparison result{{}, run(from_), from_, to};
  const auto copy = make_copy(aimed_, Addr{from_}, Addr{to});
  if (!copy) {
    result.difference = copy.error().text;
    return result;
  }
  std::memset(writable(from_), 0xcc, aimed_.size());  // a copy must never come back here
  std::memcpy(writable(to), copy->bytes.data(), copy->bytes.size());
  Outcome displaced = run(to);
  std::memset(writable(to), 0xcc, copy->bytes.size());
  // The one effect that a fault does not undo: the bytes below rsp that the call was about to write.
  if (const unsigned pushed = translate(displaced, *copy, to); pushed != 0)
    take_below_stack(displaced, result.native, pushed);
  translate_x87_address(displaced, from_, to);
  const Decoded decoded = *decode_fully(aimed_, Addr{from_});
  if (!decoded.has_memory)
    for (Outcome* outcome : {&result.native, &displaced}) forget_x87_operand(outcome->xsave);
  if (decoded.flow == Flow::call) take_below_red_zone(displaced, result.native, context_.in.gpr[4]);
  for (unsigned i = 0; i < 16; ++i)
    if ((loose >> i & 1) != 0) displaced.registers.gpr[i] = result.native.registers.gpr[i];
  result.difference = compare_outcomes(result.native, displaced);
  return result;
}

bool has_feature(const std::string& name) {
  static const std::set<std::string> kFeatures = [] {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    return std::set<std::string>(std::istream_iterator<std::string>(words), {});
  }();
  return name.empty() || kFeatures.count(name) != 0;
}

}  // namespace uprobe::arch::test
