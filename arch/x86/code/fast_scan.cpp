// SPDX-License-Identifier: MIT
// The length of an instruction follows from its prefixes, its opcode and its ModRM byte, and so does where it leads (SDM
// vol. 2A, chapter 2; opcode maps: vol. 2D, appendix A). What the tables do not have is for Zydis to judge: nothing here
// says that bytes are no instruction.
#include "arch/code/fast_scan.h"

#include <array>
#include <cstring>

namespace uprobe::arch {
namespace {

// The opcode maps, a row for each high half of the opcode, a column for each low half:
//
//   .  nothing after the opcode      m  ModRM                   n  ModRM, an operand in memory
//   b  an immediate of 8 bits         B  ModRM, 8 bits           r  ModRM, an operand in a register
//   z  of 16 or 32, never 64 bits     Z  ModRM, 16 or 32 bits    v  of 16, 32 or 64 bits
//   l  lea                            p  a nop with ModRM        o  nop, or xchg of r8 and rax
//   j  jump by 8 bits, on condition   J  by 32 bits
//   s  jump by 8 bits, always         S  by 32 bits              c  call by 32 bits
//   x  ret                            u  ud2                     i  int3
//   8  group 3 of bytes: test has an immediate                   9  of words
//   5  group 5: inc, dec, call, jmp, push                        4  group 4: inc, dec
//   6  group 8: bt and kin            7  group 11: mov of an immediate of 8 bits, 0 of 16 or 32
//   t  a string operation             e  endbr64 and endbr32
//   P  a prefix                       R  REX                     -  not here
using Map = const char[16][17];

constexpr Map kOneByte = {
    "mmmmbz--mmmmbz--",  // 0: add, or
    "mmmmbz--mmmmbz--",  // 1: adc, sbb
    "mmmmbzP-mmmmbzP-",  // 2: and, sub
    "mmmmbzP-mmmmbzP-",  // 3: xor, cmp
    "RRRRRRRRRRRRRRRR",  // 4
    "................",  // 5: push, pop
    "---mPPP-zZbB....",  // 6: movslq, push, imul
    "jjjjjjjjjjjjjjjj",  // 7
    "BZ-Bmmmmmmmm-l--",  // 8: immediates, test, xchg, mov, lea
    "o.........-.....",  // 9: xchg, widening, flags
    "----ttttbztttttt",  // a: strings, test
    "bbbbbbbbvvvvvvvv",  // b: mov
    "BB-x--70-.--i---",  // c: shifts, ret, mov, leave, int3
    "mmmm---.m-n-m-nn",  // d: shifts, x87
    "jjjjbbbbcS-s....",  // e: loops, in, out, call, jmp
    "--PP-.89......45",  // f
};

// After 0f, by the mandatory prefix.
constexpr Map kTwoByte[] = {{
                                "-----------u----",  // 0: ud2
                                "mmmnmmmn-------p",  // 1: movups, movlps, unpcklps, movhps, nop
                                "--------mmmnmmmm",  // 2: movaps, conversions, comiss
                                "-.--------------",  // 3: rdtsc
                                "mmmmmmmmmmmmmmmm",  // 4: cmov
                                "rmmmmmmmmmmmmmmm",  // 5: arithmetic of floats
                                "mmmmmmmmmmmm--mm",  // 6: MMX
                                "B---mmm.------mm",  // 7
                                "JJJJJJJJJJJJJJJJ",  // 8
                                "mmmmmmmmmmmmmmmm",  // 9: setcc
                                "--.mBm-----mBm-m",  // a: cpuid, bt, shld, bts, shrd, imul
                                "mm-m--mm--6mmmmm",  // b: cmpxchg, btr, movzx, bsf, bsr, movsx
                                "mmBnB-B-........",  // c: xadd, cmpps, movnti, shufps, bswap
                                "-mmmmm-rmmmmmmmm",  // d: MMX
                                "mmmmmm-nmmmmmmmm",  // e
                                "-mmmmmmrmmmmmmm-",  // f
                            },
                            {
                                "----------------",  // 66 0
                                "mmnnmmnn-------p",  // 1: movupd, movlpd, unpcklpd, movhpd, nop
                                "--------mmmnmmmm",  // 2: movapd, conversions, comisd
                                "----------------",  // 3
                                "mmmmmmmmmmmmmmmm",  // 4: cmov
                                "rm--mmmmmmmmmmmm",  // 5: arithmetic of doubles
                                "mmmmmmmmmmmmmmmm",  // 6: integers in xmm
                                "B---mmm-----mmmm",  // 7: pshufd, pcmpeq, movd, movdqa
                                "----------------",  // 8
                                "mmmmmmmmmmmmmmmm",  // 9: setcc
                                "---mBm-----mBm-m",  // a
                                "mm-m--mm---mmmmm",  // b
                                "mmB-B-B-........",  // c: cmppd, pinsrw, pextrw, shufpd
                                "mmmmmmmrmmmmmmmm",  // d: integers in xmm
                                "mmmmmmmnmmmmmmmm",  // e
                                "-mmmmmmrmmmmmmm-",  // f
                            },
                            {
                                "----------------",  // f3 0
                                "mmm---m-------e-",  // 1: movss, movsldup, movshdup, endbr64
                                "----------m-mm--",  // 2: conversions
                                "----------------",  // 3
                                "----------------",  // 4
                                "-mmm----mmmmmmmm",  // 5: arithmetic of a float
                                "---------------m",  // 6: movdqu
                                "B-------------mm",  // 7: pshufhw, movq, movdqu
                                "----------------",  // 8
                                "----------------",  // 9
                                "----------------",  // a
                                "--------m---mm--",  // b: popcnt, tzcnt, lzcnt
                                "--B-------------",  // c: cmpss
                                "------r---------",  // d: movq2dq
                                "------m---------",  // e: cvtdq2pd
                                "----------------",  // f
                            },
                            {
                                "----------------",  // f2 0
                                "mmm-------------",  // 1: movsd, movddup
                                "----------m-mm--",  // 2: conversions
                                "----------------",  // 3
                                "----------------",  // 4
                                "-m------mmm-mmmm",  // 5: arithmetic of a double
                                "----------------",  // 6
                                "B-----------mm--",  // 7: pshuflw, haddps, hsubps
                                "----------------",  // 8
                                "----------------",  // 9
                                "----------------",  // a
                                "----------------",  // b
                                "--B-------------",  // c: cmpsd
                                "m-----r---------",  // d: addsubps, movdq2q
                                "------m---------",  // e: cvtpd2dq
                                "n---------------",  // f: lddqu
                            }};

// Which of the general registers but rsp an instruction writes, in the same maps:
//
//   N  none                           E  the operand that ModRM.rm names, at most
//   A  rax                            G  the one that ModRM.reg names
//   O  the one in the opcode          -  not here: other or hidden registers, or none that matters
constexpr Map kOneByteWrites = {
    "EEGGAA--EEGGAA--",  // 0
    "EEGGAA--EEGGAA--",  // 1
    "EEGGAA--EEGGAA--",  // 2
    "EEGGAA--NNNNNN--",  // 3: xor, cmp
    "----------------",  // 4
    "NNNNNNNNOOOOOOOO",  // 5: push, pop
    "---G----NGNG----",  // 6: movslq, push, imul
    "NNNNNNNNNNNNNNNN",  // 7
    "EE-ENN--EEGG-G--",  // 8: test, mov, lea
    "----------------",  // 9
    "--------NN------",  // a: test
    "OOOOOOOOOOOOOOOO",  // b: mov
    "EE----EE--------",  // c: shifts, mov
    "EEEE------------",  // d: shifts
    "---------N-N----",  // e: jmp
    "----------------",  // f
};
constexpr Map kTwoByteWrites = {
    "----------------",  // 0f 0
    "NNNNNNNN-------N",  // 1: moves between xmm and memory, nop
    "--------NN----NN",  // 2
    "----------------",  // 3
    "GGGGGGGGGGGGGGGG",  // 4: cmov
    "GNNNNNNNNNNNNNNN",  // 5: movmskps, arithmetic of floats
    "----------------",  // 6
    "----------------",  // 7
    "NNNNNNNNNNNNNNNN",  // 8
    "EEEEEEEEEEEEEEEE",  // 9: setcc
    "---NEE-----EEE-G",  // a: bt, shld, bts, shrd, imul
    "---E--GG----GGGG",  // b: btr, movzx, bsf, bsr, movsx
    "----------------",  // c
    "----------------",  // d
    "----------------",  // e
    "----------------",  // f
};

// Index into kTwoByte.
enum Mandatory : std::uint8_t { kPlain, k66, kF3, kF2 };

// What else there is to an opcode than its length. The first three are no opcodes of the tables.
enum class Kind : std::uint8_t {
  nowhere,
  prefix,
  rex,
  plain,
  memory,     // ModRM has to name memory
  registers,  // or a register
  lea,
  nop,
  exchange,
  wide,    // the immediate has all 64 bits
  string,  // may be repeated
  group,   // the rest is for take_group()
  flow,
};

struct Shape {
  Kind kind = Kind::nowhere;
  std::uint8_t letter = '-';
  std::uint8_t modrm = 0;      // bytes of it: 0 or 1
  std::uint8_t immediate = 0;  // bytes of it or of a distance, with operands of 32 bits
};

constexpr bool is_one_of(char letter, const char* letters) {
  for (; *letters != 0; ++letters)
    if (*letters == letter) return true;
  return false;
}

constexpr Kind kind_of(char letter) {
  constexpr struct {
    Kind kind;
    const char* letters;
  } kKinds[] = {{Kind::nowhere, "-"},   {Kind::prefix, "P"}, {Kind::rex, "R"},          {Kind::memory, "n"},
                {Kind::registers, "r"}, {Kind::lea, "l"},    {Kind::nop, "p"},          {Kind::exchange, "o"},
                {Kind::wide, "v"},      {Kind::string, "t"}, {Kind::group, "8954670e"}, {Kind::flow, "jJsScxui"}};
  for (const auto& row : kKinds)
    if (is_one_of(letter, row.letters)) return row.kind;
  return Kind::plain;
}

constexpr Shape shape_of(char letter) {
  Shape shape{.kind = kind_of(letter), .letter = static_cast<std::uint8_t>(letter)};
  shape.modrm = is_one_of(letter, "mnrBZlp8954670e") ? 1 : 0;
  if (is_one_of(letter, "bBjs67")) shape.immediate = 1;
  if (is_one_of(letter, "zZvJSc0")) shape.immediate = 4;
  return shape;
}

using Shapes = std::array<Shape, 256>;
constexpr Shapes shapes_of(const Map& map) {
  Shapes shapes;
  for (unsigned opcode = 0; opcode < 256; ++opcode) shapes[opcode] = shape_of(map[opcode / 16][opcode % 16]);
  return shapes;
}
constexpr Shapes kOneByteShapes = shapes_of(kOneByte);
constexpr Shapes kTwoByteShapes[] = {shapes_of(kTwoByte[kPlain]), shapes_of(kTwoByte[k66]), shapes_of(kTwoByte[kF3]),
                                     shapes_of(kTwoByte[kF2])};

constexpr std::uint8_t kEscape = 0x0f;
constexpr std::uint8_t kRexW = 8, kRexR = 4, kRexB = 1;
constexpr unsigned kStackPointer = 4;
constexpr unsigned kRegisterForm = 3;  // ModRM.mod
constexpr unsigned kSib = 4;           // ModRM.rm: a SIB byte follows
constexpr unsigned kNoBase = 5;        // ModRM.rm or SIB.base with mod 0: a displacement of 32 bits and no register

// What a ModRM byte brings with it (SDM vol. 2A, table 2-2); of a SIB byte without base, four bytes more.
struct Operand {
  std::uint8_t sib = 0;           // bytes of it
  std::uint8_t displacement = 0;  // bytes of it
};
constexpr std::array<Operand, 256> operands() {
  std::array<Operand, 256> table;
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    if (mod != kRegisterForm && rm == kSib) table[modrm].sib = 1;
    if (mod == 1) table[modrm].displacement = 1;
    if (mod == 2 || (mod == 0 && rm == kNoBase)) table[modrm].displacement = 4;
  }
  return table;
}
constexpr std::array<Operand, 256> kOperands = operands();

// Fifteen that can be prefixes, then an escape, an opcode, ModRM, SIB, a displacement and the longest immediate: as much
// may be looked at before the length is known.

template <class T>
std::uint64_t read_extended(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<std::uint64_t>(std::int64_t{value});
}

// Few branches that depend on the bytes: each that the processor guesses wrong costs as much as all the rest.
class FastScan {
 public:
  FastScan(const std::uint8_t* bytes, Addr at) : begin_(bytes), at_(bytes), address_(at.value) {}

  bool run(Scanned& out) {
    if (!take_opcode()) return false;
    take_modrm();
    if (shape_.kind != Kind::plain && !take_rest()) return false;
    const std::uint8_t* immediate = at_;
    at_ += immediate_bytes_;
    if (at_ - begin_ > kMaxInsnBytes) return false;
    fill(immediate, out);
    if (shape_.kind != Kind::plain) fill_rest(immediate, out);
    return true;
  }

  // After run(): whether the instruction certainly leaves a register as it is.
  bool keeps(unsigned wanted) const {
    const std::uint8_t opcode = *opcode_;
    const bool is_two_byte = opcode_ != begin_ && opcode_[-1] == kEscape;
    if (wanted == kStackPointer || (is_two_byte && mandatory_ != kPlain)) return false;
    switch ((is_two_byte ? kTwoByteWrites : kOneByteWrites)[opcode / 16][opcode % 16]) {
      case 'N':
        return true;
      case 'A':
        return wanted != 0;
      case 'O':
        return is_other(wanted, opcode & 7U, kRexB);
      case 'G':
        return is_other(wanted, reg(), kRexR);
      case 'E':
        return mod() != kRegisterForm || is_other(wanted, modrm_ & 7U, kRexB);
      default:
        return false;
    }
  }

 private:
  // Without REX the numbers 4 to 7 may also mean the second bytes of the first four registers.
  bool is_other(unsigned wanted, unsigned number, unsigned extension) const {
    if (rex_ == 0) return wanted != number && wanted != (number & 3U);
    return wanted != number + ((rex_ & extension) != 0 ? 8 : 0);
  }
  // Legacy prefixes, REX right before the opcode: in another order they mean something else, or nothing.
  bool take_opcode() {
    while (kOneByteShapes[*at_].kind == Kind::prefix)
      if (!take_prefix(*at_) || ++at_ - begin_ == kMaxInsnBytes) return false;
    const bool has_rex = (*at_ & 0xf0) == 0x40;
    rex_ = has_rex ? *at_ : 0;
    at_ += has_rex ? 1 : 0;
    shape_ = kOneByteShapes[*at_];
    if (*at_ == kEscape)
      shape_ = kTwoByteShapes[mandatory_][*++at_];
    else if (mandatory_ >= kF3 && shape_.kind != Kind::string)
      return false;
    opcode_ = at_++;
    immediate_bytes_ = mandatory_ == k66 && (rex_ & kRexW) == 0 ? (shape_.immediate + 1) / 2 : shape_.immediate;
    return shape_.kind >= Kind::plain;
  }

  bool take_prefix(std::uint8_t prefix) {
    const Mandatory mandatory = prefix == 0x66 ? k66 : prefix == 0xf3 ? kF3 : prefix == 0xf2 ? kF2 : kPlain;
    has_segment_ |= mandatory == kPlain;
    if (mandatory == kPlain) return true;
    if (mandatory_ != kPlain && (mandatory_ != k66 || mandatory != k66)) return false;
    mandatory_ = mandatory;
    return true;
  }

  void take_modrm() {
    if (shape_.modrm == 0) return;
    modrm_ = *at_++;
    const Operand operand = kOperands[modrm_];
    const unsigned extra = operand.sib != 0 && mod() == 0 && (*at_ & 7) == kNoBase ? 4 : 0;
    displacement_ = at_ += operand.sib;
    displacement_bytes_ = operand.displacement + extra;
    at_ += displacement_bytes_;
  }
  unsigned mod() const { return modrm_ >> 6; }
  unsigned reg() const { return modrm_ >> 3 & 7; }

  // False: not one of those that the tables speak of.
  bool take_rest() {
    switch (shape_.kind) {
      case Kind::memory:
      case Kind::lea:
        return mod() != kRegisterForm;
      case Kind::registers:
        return mod() == kRegisterForm;
      case Kind::wide:
        if ((rex_ & kRexW) != 0) immediate_bytes_ = 8;
        return true;
      case Kind::group:
        return take_group();
      // A branch of 16 bits, with a hint, or with a prefix that means nothing.
      case Kind::flow:
        return mandatory_ == kPlain && !has_segment_;
      default:
        return true;
    }
  }

  // What ModRM.reg makes of the opcode.
  bool take_group() {
    const bool is_narrow = mandatory_ == k66 && (rex_ & kRexW) == 0;
    switch (shape_.letter) {
      case '8':
        if (reg() < 2) immediate_bytes_ = 1;
        return true;
      case '9':
        if (reg() < 2) immediate_bytes_ = is_narrow ? 2 : 4;
        return true;
      case '4':
        return reg() < 2;
      case '5':
        return reg() < 2 || reg() == 6 || ((reg() == 2 || reg() == 4) && mandatory_ == kPlain);
      case '6':
        return reg() >= 4;
      case 'e':
        return modrm_ == 0xfa || modrm_ == 0xfb;
      default:
        return reg() == 0;
    }
  }

  // As if it were a plain one.
  void fill(const std::uint8_t* immediate, Scanned& out) const {
    out = Scanned{};
    out.length = static_cast<std::uint8_t>(at_ - begin_);
    out.has_operand = displacement_bytes_ == 4;
    out.is_ip_relative = out.has_operand && (modrm_ & 0xc7) == kNoBase;
    const std::uint64_t base = out.is_ip_relative ? address_ + out.length : 0;
    out.operand = out.has_operand ? read_extended<std::int32_t>(displacement_) + base : 0;
    out.has_immediate = immediate_bytes_ >= 4;
    out.immediate = out.has_immediate ? read_extended<std::int32_t>(immediate) : 0;
  }

  void fill_rest(const std::uint8_t* immediate, Scanned& out) const {
    switch (shape_.kind) {
      case Kind::lea:
        out.is_address_of = out.has_operand;
        return;
      case Kind::nop:
        out.is_padding = true;
        return;
      case Kind::exchange:
        out.is_padding = (rex_ & kRexB) == 0;
        return;
      case Kind::wide:
        if (immediate_bytes_ == 8) out.immediate = read_extended<std::int64_t>(immediate);
        return;
      case Kind::group:
        return fill_indirect(out);
      case Kind::flow:
        return fill_flow(immediate, out);
      default:
        return;
    }
  }

  void fill_indirect(Scanned& out) const {
    if (shape_.letter != '5' || reg() == 6) return;
    if (reg() == 2) out.leads = Leads::call_indirect;
    if (reg() != 4) return;
    out.leads = mod() == kRegisterForm ? Leads::jump_by_register : Leads::jump_by_memory;
    out.falls_through = false;
  }

  void fill_flow(const std::uint8_t* distance, Scanned& out) const {
    const std::uint8_t letter = shape_.letter;
    out.has_immediate = false;
    out.immediate = 0;
    out.is_padding = letter == 'i';
    out.is_undefined = letter == 'u';
    const bool is_conditional = letter == 'j' || letter == 'J';
    out.falls_through = is_conditional || letter == 'c';
    if (immediate_bytes_ == 0) return void(out.leads = Leads::out);
    out.leads = is_conditional ? Leads::jump_if : letter == 'c' ? Leads::call : Leads::jump;
    const std::uint64_t far =
        immediate_bytes_ == 1 ? read_extended<std::int8_t>(distance) : read_extended<std::int32_t>(distance);
    out.target = address_ + out.length + far;
  }

  const std::uint8_t* begin_;
  const std::uint8_t* at_;
  const std::uint8_t* opcode_ = nullptr;
  std::uint64_t address_;
  const std::uint8_t* displacement_ = nullptr;
  unsigned displacement_bytes_ = 0;
  unsigned immediate_bytes_ = 0;
  Shape shape_;
  Mandatory mandatory_ = kPlain;
  bool has_segment_ = false;
  std::uint8_t rex_ = 0;
  std::uint8_t modrm_ = 0;
};

}  // namespace

bool fast_scan(Bytes bytes, Addr at, Scanned& out) {
  return bytes.size() >= kBytesLookedAt && FastScan(bytes.data(), at).run(out);
}

bool fast_keeps(Bytes bytes, unsigned reg) {
  if (bytes.size() < kBytesLookedAt) return false;
  FastScan insn(bytes.data(), Addr{0});
  Scanned scanned;
  return insn.run(scanned) && insn.keeps(reg);
}

}  // namespace uprobe::arch
