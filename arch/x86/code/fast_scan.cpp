// The length of an instruction follows from its prefixes, its opcode and its ModRM byte, and so does where it leads (SDM
// vol. 2A, chapter 2; opcode maps: vol. 2D, appendix A). What the tables do not have is for Zydis to judge: nothing here
// says that bytes are no instruction.
#include "arch/x86/code/fast_scan.h"

#include <array>
#include <cstring>

namespace uprobe::x86 {
namespace {

// The opcode maps, a row for each high half of the opcode, a column for each low half:
//
//   .  nothing behind the opcode      m  ModRM                   n  ModRM, an operand in memory
//   b  an immediate of 8 bits         B  ModRM, 8 bits           r  ModRM, an operand in a register
//   z  of 16 or 32, never 64 bits     Z  ModRM, 16 or 32 bits    v  of 16, 32 or 64 bits
//   l  lea                            p  a nop with ModRM        o  nop, or xchg of r8 and rax
//   j  jump by 8 bits, on condition   J  by 32 bits
//   s  jump by 8 bits, always         S  by 32 bits              c  call by 32 bits
//   x  ret                            u  ud2                     i  int3
//   8  group 3 of bytes: test has an immediate                   9  of words
//   5  group 5: inc, dec, call, jmp, push                        4  group 4: inc, dec
//   6  group 8: bt and kin            7  group 11: mov of an immediate of 8 bits, 0 of 16 or 32
//   e  endbr64 and endbr32            P  a prefix                R  REX
//   -  not here
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
    "----....bz......",  // a: strings, test
    "bbbbbbbbvvvvvvvv",  // b: mov
    "BB-x--70-.--i---",  // c: shifts, ret, mov, leave, int3
    "mmmm---.m-n-m-nn",  // d: shifts, x87
    "jjjjbbbbcS-s....",  // e: loops, in, out, call, jmp
    "--PP-.89......45",  // f
};

// Behind 0f, by the mandatory prefix.
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

// Index into kTwoByte.
enum Mandatory : std::uint8_t { kPlain, k66, kF3, kF2 };

// What else there is to an opcode than its length.
enum class Kind : std::uint8_t { nowhere, prefix, rex, plain, memory, registers, group, nop, exchange, flow };

struct Shape {
  char letter = '-';
  Kind kind = Kind::nowhere;
  bool has_modrm = false;
  std::uint8_t immediate = 0;  // bytes of it or of a distance, with operands of 32 bits
};

constexpr bool is_one_of(char letter, const char* letters) {
  for (; *letters != 0; ++letters)
    if (*letters == letter) return true;
  return false;
}

constexpr Kind kind_of(char letter) {
  if (letter == '-') return Kind::nowhere;
  if (letter == 'P') return Kind::prefix;
  if (letter == 'R') return Kind::rex;
  if (letter == 'p') return Kind::nop;
  if (letter == 'o') return Kind::exchange;
  if (is_one_of(letter, "nl")) return Kind::memory;
  if (letter == 'r') return Kind::registers;
  if (is_one_of(letter, "8954670e")) return Kind::group;
  return is_one_of(letter, "jJsScxui") ? Kind::flow : Kind::plain;
}

constexpr Shape shape_of(char letter) {
  Shape shape{.letter = letter, .kind = kind_of(letter)};
  shape.has_modrm = is_one_of(letter, "mnrBZlp8954670e");
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
constexpr std::uint8_t kRexW = 8, kRexB = 1;
constexpr unsigned kRegisterForm = 3;  // ModRM.mod
// Fifteen that can be prefixes, then an escape, an opcode, ModRM, SIB, a displacement and the longest immediate: as much may
// be looked at before the length is known.
constexpr std::size_t kBytesLookedAt = kMaxInsnBytes + 4 + 4 + 8;

template <class T>
std::int64_t read_signed(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

class FastScan {
 public:
  FastScan(const std::uint8_t* bytes, Addr at) : begin_(bytes), at_(bytes), address_(at.value) {}

  bool run(Scanned& out) {
    if (!take_opcode() || shape_.kind == Kind::nowhere) return false;
    if (shape_.has_modrm) take_modrm();
    if (shape_.kind != Kind::plain && !take_rest()) return false;
    const std::uint8_t* immediate = at_;
    at_ += immediate_bytes();
    if (at_ - begin_ > kMaxInsnBytes) return false;
    fill(immediate, out);
    return true;
  }

 private:
  // Legacy prefixes, REX right before the opcode: in another order they mean something else, or nothing.
  bool take_opcode() {
    shape_ = kOneByteShapes[*at_];
    while (shape_.kind == Kind::prefix) {
      if (!take_prefix(*at_) || at_ - begin_ == kMaxInsnBytes) return false;
      shape_ = kOneByteShapes[*++at_];
    }
    if (shape_.kind == Kind::rex) {
      rex_ = *at_;
      shape_ = kOneByteShapes[*++at_];
      if (shape_.kind == Kind::rex || shape_.kind == Kind::prefix) return false;
    }
    if (*at_ == kEscape)
      shape_ = kTwoByteShapes[mandatory_][*++at_];
    else if (mandatory_ >= kF3 && !is_string(*at_))
      return false;
    ++at_;
    return true;
  }

  bool take_prefix(std::uint8_t prefix) {
    const Mandatory mandatory = prefix == 0x66 ? k66 : prefix == 0xf3 ? kF3 : prefix == 0xf2 ? kF2 : kPlain;
    has_segment_ |= mandatory == kPlain;
    if (mandatory == kPlain) return true;
    if (mandatory_ != kPlain && (mandatory_ != k66 || mandatory != k66)) return false;
    mandatory_ = mandatory;
    return true;
  }
  // movs, cmps, stos, lods, scas, which f3 and f2 repeat.
  static bool is_string(std::uint8_t opcode) { return opcode >= 0xa4 && opcode <= 0xaf && (opcode & ~1U) != 0xa8; }

  void take_modrm() {
    modrm_ = *at_++;
    if (mod() == kRegisterForm) return;
    const bool has_sib = (modrm_ & 7) == 4;
    const bool has_no_base = mod() == 0 && ((has_sib ? *at_ : modrm_) & 7) == 5;
    at_ += has_sib ? 1 : 0;
    if (mod() == 2 || has_no_base) {
      displacement_ = at_;
      at_ += 4;
    }
    at_ += mod() == 1 ? 1 : 0;
    is_rip_relative_ = has_no_base && !has_sib;
  }
  unsigned mod() const { return modrm_ >> 6; }
  unsigned reg() const { return modrm_ >> 3 & 7; }

  // False: not one of those that the tables speak of.
  bool take_rest() {
    switch (shape_.kind) {
      case Kind::memory:
        return mod() != kRegisterForm;
      case Kind::registers:
        return mod() == kRegisterForm;
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
    switch (shape_.letter) {
      case '8':
      case '9':
        if (reg() < 2) shape_.immediate = shape_.letter == '8' ? 1 : 4;
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

  unsigned immediate_bytes() const {
    if (shape_.immediate < 4) return shape_.immediate;
    if ((rex_ & kRexW) != 0) return shape_.letter == 'v' ? 8 : 4;
    return mandatory_ == k66 ? 2 : 4;
  }

  void fill(const std::uint8_t* immediate, Scanned& out) const {
    out = Scanned{};
    out.length = static_cast<std::uint8_t>(at_ - begin_);
    if (displacement_ != nullptr) fill_operand(out);
    if (shape_.kind == Kind::flow) return fill_flow(immediate, out);
    if (at_ - immediate >= 4) fill_immediate(immediate, out);
    if (shape_.letter == '5') fill_indirect(out);
    out.is_padding = shape_.kind == Kind::nop || (shape_.kind == Kind::exchange && (rex_ & kRexB) == 0);
  }

  void fill_operand(Scanned& out) const {
    out.has_operand = true;
    out.is_rip_relative = is_rip_relative_;
    out.operand = static_cast<std::uint64_t>(read_signed<std::int32_t>(displacement_));
    if (is_rip_relative_) out.operand += address_ + out.length;
    out.is_address_of = shape_.letter == 'l';
  }

  void fill_immediate(const std::uint8_t* immediate, Scanned& out) const {
    out.has_immediate = true;
    out.immediate = static_cast<std::uint64_t>(at_ - immediate == 8 ? read_signed<std::int64_t>(immediate)
                                                                    : read_signed<std::int32_t>(immediate));
  }

  void fill_indirect(Scanned& out) const {
    if (reg() == 2) out.leads = Leads::call_indirect;
    if (reg() != 4) return;
    out.leads = mod() == kRegisterForm ? Leads::jump_by_register : Leads::jump_by_memory;
    out.falls_through = false;
  }

  void fill_flow(const std::uint8_t* distance, Scanned& out) const {
    const char letter = shape_.letter;
    out.is_padding = letter == 'i';
    out.is_undefined = letter == 'u';
    out.falls_through = letter == 'j' || letter == 'J' || letter == 'c';
    if (letter == 'c') out.leads = Leads::call;
    if (letter == 'j' || letter == 'J') out.leads = Leads::jump_if;
    if (letter == 's' || letter == 'S') out.leads = Leads::jump;
    if (at_ == distance) return void(out.leads = Leads::out);
    const bool is_short = at_ - distance == 1;
    const std::int64_t far = is_short ? read_signed<std::int8_t>(distance) : read_signed<std::int32_t>(distance);
    out.target = address_ + out.length + static_cast<std::uint64_t>(far);
  }

  const std::uint8_t* begin_;
  const std::uint8_t* at_;
  std::uint64_t address_;
  const std::uint8_t* displacement_ = nullptr;  // of 32 bits
  Shape shape_;
  Mandatory mandatory_ = kPlain;
  bool has_segment_ = false;
  bool is_rip_relative_ = false;
  std::uint8_t rex_ = 0;
  std::uint8_t modrm_ = 0;
};

}  // namespace

bool fast_scan(Bytes bytes, Addr at, Scanned& out) {
  return bytes.size() >= kBytesLookedAt && FastScan(bytes.data(), at).run(out);
}

}  // namespace uprobe::x86
