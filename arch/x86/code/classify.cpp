// SPDX-License-Identifier: MIT
// The allow-list. An instruction is displaced when its instruction set, its set and category, or its own name stands
// here, and nothing else about it is known to depend on where it runs. Everything else is refused, also whatever a
// later decoder learns to name. Every row has its test in tests/arch/run_compare_test.cpp.
#include "arch/code/classify.h"

#include <algorithm>
#include <iterator>

namespace uprobe::arch {
namespace {

using Name = std::string_view;

// Instruction sets that compute and move data only: no control flow, nothing that reads rip but as a base register.
constexpr Name kPlainSets[] = {"ADOX_ADCX",
                               "AES",
                               "AMD3DNOW",
                               "AMX_BF16",
                               "AMX_INT8",
                               "AMX_TILE",
                               "AVX",
                               "AVX2",
                               "AVX2GATHER",
                               "AVX512BW_128",
                               "AVX512BW_128N",
                               "AVX512BW_256",
                               "AVX512BW_512",
                               "AVX512BW_KOP",
                               "AVX512CD_128",
                               "AVX512CD_256",
                               "AVX512CD_512",
                               "AVX512DQ_128",
                               "AVX512DQ_128N",
                               "AVX512DQ_256",
                               "AVX512DQ_512",
                               "AVX512DQ_KOP",
                               "AVX512DQ_SCALAR",
                               "AVX512ER_512",
                               "AVX512ER_SCALAR",
                               "AVX512F_128",
                               "AVX512F_128N",
                               "AVX512F_256",
                               "AVX512F_512",
                               "AVX512F_KOP",
                               "AVX512F_SCALAR",
                               "AVX512PF_512",
                               "AVX512_4FMAPS_512",
                               "AVX512_4FMAPS_SCALAR",
                               "AVX512_4VNNIW_512",
                               "AVX512_BF16_128",
                               "AVX512_BF16_256",
                               "AVX512_BF16_512",
                               "AVX512_BITALG_128",
                               "AVX512_BITALG_256",
                               "AVX512_BITALG_512",
                               "AVX512_FP16_128",
                               "AVX512_FP16_128N",
                               "AVX512_FP16_256",
                               "AVX512_FP16_512",
                               "AVX512_FP16_SCALAR",
                               "AVX512_GFNI_128",
                               "AVX512_GFNI_256",
                               "AVX512_GFNI_512",
                               "AVX512_IFMA_128",
                               "AVX512_IFMA_256",
                               "AVX512_IFMA_512",
                               "AVX512_VAES_128",
                               "AVX512_VAES_256",
                               "AVX512_VAES_512",
                               "AVX512_VBMI2_128",
                               "AVX512_VBMI2_256",
                               "AVX512_VBMI2_512",
                               "AVX512_VBMI_128",
                               "AVX512_VBMI_256",
                               "AVX512_VBMI_512",
                               "AVX512_VNNI_128",
                               "AVX512_VNNI_256",
                               "AVX512_VNNI_512",
                               "AVX512_VP2INTERSECT_128",
                               "AVX512_VP2INTERSECT_256",
                               "AVX512_VP2INTERSECT_512",
                               "AVX512_VPCLMULQDQ_128",
                               "AVX512_VPCLMULQDQ_256",
                               "AVX512_VPCLMULQDQ_512",
                               "AVX512_VPOPCNTDQ_128",
                               "AVX512_VPOPCNTDQ_256",
                               "AVX512_VPOPCNTDQ_512",
                               "AVXAES",
                               "AVX_GFNI",
                               "AVX_VNNI",
                               "BMI1",
                               "BMI2",
                               "CLDEMOTE",
                               "CLFLUSHOPT",
                               "CLFSH",
                               "CLWB",
                               "CLZERO",
                               "CMOV",
                               "CMPXCHG16B",
                               "ENQCMD",
                               "F16C",
                               "FAT_NOP",
                               "FCMOV",
                               "FMA",
                               "FMA4",
                               "FXSAVE",
                               "FXSAVE64",
                               "GFNI",
                               "KEYLOCKER",
                               "KEYLOCKER_WIDE",
                               "LAHF",
                               "LZCNT",
                               "MCOMMIT",
                               "MONITORX",
                               "MOVBE",
                               "MOVDIR",
                               "PADLOCK_ACE",
                               "PADLOCK_PHE",
                               "PADLOCK_PMM",
                               "PADLOCK_RNG",
                               "PAUSE",
                               "PCLMULQDQ",
                               "PENTIUMMMX",
                               "PKU",
                               "POPCNT",
                               "PREFETCHWT1",
                               "PREFETCH_NOP",
                               "RDPID",
                               "RDPMC",
                               "RDPRU",
                               "RDRAND",
                               "RDSEED",
                               "RDTSCP",
                               "RDWRFSGS",
                               "SERIALIZE",
                               "SHA",
                               "SSE",
                               "SSE2",
                               "SSE2MMX",
                               "SSE3",
                               "SSE3X87",
                               "SSE4",
                               "SSE42",
                               "SSE4A",
                               "SSEMXCSR",
                               "SSE_PREFETCH",
                               "SSSE3",
                               "SSSE3MMX",
                               "TBM",
                               "TSX_LDTRK",
                               "VAES",
                               "VPCLMULQDQ",
                               "WAITPKG",
                               "X87",
                               "XOP",
                               "XSAVE",
                               "XSAVEC",
                               "XSAVEOPT"};

// The old sets are a mixture; the category tells. (Their privileged
// members are admitted by name only.)
struct SetAndCategory {
  Name isa_set;
  Name category;

  constexpr auto operator<=>(const SetAndCategory&) const = default;
};
constexpr SetAndCategory kPlainPairs[] = {
    {"I186", "BINARY"},       {"I186", "MISC"},
    {"I186", "PUSH"},         {"I186", "ROTATE"},
    {"I186", "SHIFT"},        {"I386", "BITBYTE"},
    {"I386", "CONVERT"},      {"I386", "DATAXFER"},
    {"I386", "SEGOP"},        {"I386", "SETCC"},
    {"I386", "SHIFT"},        {"I386", "STRINGOP"},
    {"I486REAL", "DATAXFER"}, {"I486REAL", "SEMAPHORE"},
    {"I86", "BINARY"},        {"I86", "CONVERT"},
    {"I86", "DATAXFER"},      {"I86", "FLAGOP"},
    {"I86", "LOGICAL"},       {"I86", "MISC"},
    {"I86", "NOP"},           {"I86", "POP"},
    {"I86", "PUSH"},          {"I86", "ROTATE"},
    {"I86", "SHIFT"},         {"I86", "STRINGOP"},
    {"LONGMODE", "CONVERT"},  {"LONGMODE", "DATAXFER"},
    {"LONGMODE", "POP"},      {"LONGMODE", "PUSH"},
    {"LONGMODE", "STRINGOP"}, {"PENTIUMREAL", "SEMAPHORE"},
    {"PPRO", "WIDENOP"},      {"PPRO", "X87_ALU"},
};

// Where the category is a mixture as well.
// iret and uiret take rip from the stack. What ptwrite hands to the processor trace stands between addresses of copies
// anyway.
constexpr Name kPlainNames[] = {"clui",   "cpuid",  "endbr32",  "endbr64",     "incsspd",  "incsspq", "iret",
                                "iretd",  "iretq",  "lar",      "llwpcb",      "lsl",      "ptwrite", "rdsspd",
                                "rdsspq", "rdtsc",  "rstorssp", "saveprevssp", "senduipi", "sgdt",    "sidt",
                                "sldt",   "slwpcb", "smsw",     "str",         "stui",     "testui",  "uiret",
                                "verr",   "verw",   "wrssd",    "wrssq",       "xabort",   "xend",    "xtest"};

// What user mode may not do. It faults, and the fault is reported at the original address like any other. Where it does
// work (ioperm, iopl, a hypervisor that answers) it does the same at any address.
constexpr Name kControlMove = "mov of a control or debug register";
constexpr Name kSupervisorNames[] = {
    "clac",      "clgi",       "cli",       "clrssbsy",  "clts",    "encls",    "enclv",   "getsec",    "hlt",
    "hreset",    "in",         "insb",      "insd",      "insw",    "invd",     "invept",  "invlpg",    "invlpga",
    "invlpgb",   "invpcid",    "invvpid",   "lgdt",      "lidt",    "lldt",     "lmsw",    "loadiwkey", "ltr",
    "monitor",   kControlMove, "mwait",     "out",       "outsb",   "outsd",    "outsw",   "pconfig",   "psmash",
    "pvalidate", "rdmsr",      "rmpadjust", "rmpupdate", "rsm",     "seamcall", "seamops", "seamret",   "setssbsy",
    "skinit",    "stac",       "stgi",      "sti",       "swapgs",  "sysexit",  "sysret",  "tdcall",    "tlbsync",
    "vmcall",    "vmclear",    "vmlaunch",  "vmload",    "vmmcall", "vmptrld",  "vmptrst", "vmread",    "vmresume",
    "vmrun",     "vmsave",     "vmwrite",   "vmxoff",    "vmxon",   "wbinvd",   "wrmsr",   "wrussd",    "wrussq",
    "xrstors",   "xrstors64",  "xsaves",    "xsaves64",  "xsetbv"};

// Undefined for ever: they are there to fault.
constexpr Name kUndefinedNames[] = {"ud0", "ud1", "ud2"};

// The sets whose branches are known: near jumps, calls, returns, loops and xbegin.
constexpr Name kBranchSets[] = {"I386", "I86", "LONGMODE", "RTM"};

constexpr std::span<const Name> kNameLists[] = {kPlainNames, kSupervisorNames, kUndefinedNames};

constexpr Name kSystemCall = "syscall";
constexpr Name kInterrupt = "int";
constexpr const char* kFarBranch = "far branch";

static_assert(std::is_sorted(std::begin(kPlainSets), std::end(kPlainSets)));
static_assert(std::is_sorted(std::begin(kPlainPairs), std::end(kPlainPairs)));
static_assert(std::is_sorted(std::begin(kPlainNames), std::end(kPlainNames)));
static_assert(std::is_sorted(std::begin(kSupervisorNames), std::end(kSupervisorNames)));
static_assert(std::is_sorted(std::begin(kUndefinedNames), std::end(kUndefinedNames)));

// Reasons for names and for sets; the first hit counts, the general reason is "not on the allow-list".
struct Reason {
  Name name;
  const char* text;
};
constexpr Reason kRefusedNames[] = {
    // They trap after themselves, where a copy has other instructions than the program.
    {"int3", "a breakpoint instruction"},
    {"int1", "a debug trap instruction"},
    {"enclu", "an enclave instruction, which leaves its own address in rcx"},
    {"lwpins", "lightweight profiling records its own address"},
    {"lwpval", "lightweight profiling records its own address"},
    // The kernel brings a 64-bit thread back as 32-bit code, at the cut-off address of something in its vDSO.
    {"sysenter", "a system call that no 64-bit program comes back from"},
    // The copy need not exist in the other view of memory.
    {"vmfunc", "changes the memory that code is fetched from"},
};
constexpr const char* kCoprocessor = "an encoding of Knights Corner, undefined in every other processor";
constexpr Reason kRefusedSets[] = {
    {"KNCE", kCoprocessor},
    {"KNCJKBR", kCoprocessor},
    {"KNCSTREAM", kCoprocessor},
    {"KNCV", kCoprocessor},
    {"KNC_MISC", kCoprocessor},
    {"KNC_PF_HINT", kCoprocessor},
    // Every branch without the prefix f2, the jump back included, resets the bounds (SDM vol. 1, 16.5.5).
    {"MPX", "MPX bounds do not outlive the jump back"},
};

bool listed(std::span<const Name> list, Name name) { return std::binary_search(list.begin(), list.end(), name); }

Name listed_name(const Decoded& insn) {
  return insn.is_privileged && insn.mnemonic == "mov" ? kControlMove : insn.mnemonic;
}

bool is_listed_by_name(const Decoded& insn) {
  const Name name = listed_name(insn);
  return std::any_of(std::begin(kNameLists), std::end(kNameLists),
                     [name](const auto& list) { return listed(list, name); });
}

bool is_listed_by_pair(const Decoded& insn) {
  const SetAndCategory pair{insn.isa_set, insn.category};
  return std::binary_search(std::begin(kPlainPairs), std::end(kPlainPairs), pair);
}

bool is_listed_by_set(const Decoded& insn) {
  if (insn.is_privileged || insn.flow == Flow::trap) return false;
  return is_listed_by_pair(insn) || listed(kPlainSets, insn.isa_set);
}

// Whether it is copied as it is.
bool is_plain(const Decoded& insn) { return is_listed_by_set(insn) || is_listed_by_name(insn); }

// The row that admits such an instruction.
std::string plain_row(const Decoded& insn) {
  if (is_listed_by_name(insn)) return std::string(listed_name(insn));
  if (!is_listed_by_set(insn)) return {};
  if (!is_listed_by_pair(insn)) return std::string(insn.isa_set);
  return std::string(insn.isa_set) + ' ' + std::string(insn.category);
}

const char* find_reason(std::span<const Reason> reasons, Name name) {
  const auto found = std::find_if(reasons.begin(), reasons.end(), [name](const Reason& r) { return r.name == name; });
  return found == reasons.end() ? nullptr : found->text;
}

// What is wrong with it by itself, or null.
const char* named_reason(const Decoded& insn) {
  if (insn.is_far && insn.flow == Flow::call) return "a far call, which pushes its own address";
  if (const char* reason = find_reason(kRefusedNames, insn.mnemonic)) return reason;
  // Debug traps wait for the end of the next instruction, which in a copy is the jump back. The 64-bit programs that
  // load ss so are those that look at just that: mov %ss; pushf shows them a debugger's trap flag. lss does not wait.
  if (insn.writes_ss && insn.mnemonic == "mov") return "loads ss, which holds off traps for one more instruction";
  if ((insn.base == Base::rip || insn.base == Base::eip) && insn.disp_bytes != 4)
    return "a rip-relative operand of unknown form";
  return nullptr;
}

const char* unlisted_reason(const Decoded& insn) {
  if (const char* reason = find_reason(kRefusedSets, insn.isa_set)) return reason;
  return insn.is_privileged ? "a privileged instruction" : "not on the allow-list";
}

// A copy that pushes before it reads the operand must know where the operand lies from rsp, or must not push at all.
bool may_lie_below_stack(const Decoded& insn) {
  return insn.branches_to_rsp || insn.base == Base::esp ||
         (insn.base == Base::rsp && (insn.disp < 0 || insn.has_index));
}

Error refused(const char* reason) { return Error{Code::refused, reason}; }

Result<Form> classify_branch(const Decoded& insn) {
  if (!listed(kBranchSets, insn.isa_set)) return refused(unlisted_reason(insn));
  // Intel ignores the prefix, AMD cuts rip to 16 bits. With REX.W it means nothing to either: the padded call of
  // __tls_get_addr (66 66 48 e8) relies on that.
  if (insn.has_narrow_operand)
    return refused("a branch with an operand-size prefix, which processors read differently");
  switch (insn.flow) {
    case Flow::jump:
      return insn.is_direct ? Form::jump : Form::last;
    case Flow::jump_if:
      return Form::jump_if;
    case Flow::loop:
      return Form::loop;
    case Flow::ret:
      return Form::last;
    case Flow::transaction:
      return Form::transaction;
    case Flow::call:
      if (insn.is_direct) return Form::call;
      return may_lie_below_stack(insn) ? Form::call_on_stack : Form::call_indirect;
    case Flow::straight:
    case Flow::system_call:
    case Flow::trap:
      break;
  }
  return refused("not on the allow-list");
}

// int 0x80 comes back after itself and is restarted two bytes before, as in the original. Vectors 3 and 4 are traps that
// user mode may raise, reported after the instruction. Of all others the kernel allows none: they fault where they are.
Result<Form> classify_interrupt(const Decoded& insn) {
  const unsigned vector = insn.bytes[insn.length - 1U];
  if (vector == 3) return refused("a breakpoint instruction");
  if (vector == 4) return refused("a software interrupt that is reported after itself");
  return Form::plain;
}

}  // namespace

Result<Form> classify(const Decoded& insn) {
  if (const char* reason = named_reason(insn)) return refused(reason);
  if (insn.mnemonic == kInterrupt) return classify_interrupt(insn);
  if (insn.is_far) return Form::last;  // a jump or a return: the target is in memory, and a fault is where they stand
  if (insn.flow == Flow::system_call) return Form::system_call;
  if (insn.flow != Flow::straight && insn.flow != Flow::trap) return classify_branch(insn);
  if (!is_plain(insn)) return refused(unlisted_reason(insn));
  return insn.falls_through ? Form::plain : Form::last;
}

std::string allow_list_row(const Decoded& insn) {
  const auto form = classify(insn);
  if (!form) return {};
  if (*form == Form::system_call) return std::string(kSystemCall);
  if (insn.mnemonic == kInterrupt) return std::string(kInterrupt);
  if (insn.is_far) return kFarBranch;
  const bool is_branch = insn.flow != Flow::straight && insn.flow != Flow::trap;
  return is_branch ? std::string(insn.isa_set) + " branch" : plain_row(insn);
}

std::vector<std::string> allow_list_rows() {
  std::vector<std::string> rows(std::begin(kPlainSets), std::end(kPlainSets));
  for (const auto& list : kNameLists) rows.insert(rows.end(), list.begin(), list.end());
  for (const auto& pair : kPlainPairs) rows.push_back(std::string(pair.isa_set) + ' ' + std::string(pair.category));
  for (const auto set : kBranchSets) rows.push_back(std::string(set) + " branch");
  for (const auto& name : {std::string(kSystemCall), std::string(kInterrupt), std::string(kFarBranch)})
    rows.push_back(name);
  return rows;
}

}  // namespace uprobe::arch
