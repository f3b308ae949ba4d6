// SPDX-License-Identifier: MIT
// DWARF call frame information (DWARF 5, section 6.4; LSB "Exception Frames" for the augmentation).
#include "arch/code/unwind.h"

#include "engine/shared/trampoline.h"

namespace uprobe::arch {
namespace {

// System V ABI x86-64, figure 3.36: DWARF register numbers.
constexpr unsigned kRsp = 7, kReturnAddress = 16;

constexpr unsigned kAdvance4 = 0x04, kDefCfaOffset = 0x0e, kDefCfa = 0x0c, kOffset = 0x80, kRestore = 0xc0,
                   kValExpression = 0x16;
constexpr unsigned kOpAddress = 0x03, kOpDeref = 0x06, kOpByte = 0x08, kOpMinus = 0x1c;
constexpr unsigned kDataAlign = 8;

class Frames {
 public:
  std::vector<std::uint8_t> take() {
    number(0, 4);
    return std::move(bytes_);
  }
  void byte(unsigned value) { bytes_.push_back(static_cast<std::uint8_t>(value)); }
  void number(std::uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) byte(static_cast<unsigned>(value >> (8 * i) & 0xff));
  }
  void uleb(std::uint64_t value) {
    for (; value > 0x7f; value >>= 7) byte(static_cast<unsigned>(value & 0x7f) | 0x80);
    byte(static_cast<unsigned>(value));
  }
  std::size_t size() const { return bytes_.size(); }

  // An entry is its length, then what is written until end().
  std::size_t begin() {
    const std::size_t entry = size();
    number(0, 4);
    return entry;
  }
  void end(std::size_t entry) {
    while ((size() - entry) % 8 != 0) byte(0);  // DW_CFA_nop
    const std::size_t length = size() - entry - 4;
    for (unsigned i = 0; i < 4; ++i) bytes_[entry + i] = static_cast<std::uint8_t>(length >> (8 * i));
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

// "S": the frame was interrupted, so its address is looked up as it is and not one byte before.
void put_cie(Frames& out) {
  const std::size_t entry = out.begin();
  out.number(0, 4);  // a CIE
  out.byte(1);       // version
  out.byte('S'), out.byte(0);
  out.uleb(1);     // code alignment
  out.byte(0x78);  // data alignment: -8
  out.byte(kReturnAddress);
  out.byte(kDefCfa), out.uleb(kRsp), out.uleb(0);
  out.end(entry);
}

class Fde {
 public:
  Fde(Frames& out, Addr at, std::size_t bytes) : out_(out), entry_(out.begin()) {
    out.number(out.size(), 4);  // how far back the CIE is: it is the first entry
    out.number(at.value, 8);
    out.number(bytes, 8);
    out.byte(kValExpression), out.uleb(kReturnAddress);
  }
  void returns_to(Addr original) {
    out_.uleb(9);
    out_.byte(kOpAddress), out_.number(original.value, 8);
  }
  // Where the slot says; the expression begins with the CFA.
  void returns_to_point_of_slot() {
    out_.uleb(8);
    out_.byte(kOpByte), out_.byte(shared::kCalledDepth), out_.byte(kOpMinus), out_.byte(kOpDeref);
    out_.byte(kOpByte), out_.byte(shared::kCopyBehindThunk), out_.byte(kOpMinus), out_.byte(kOpDeref);
  }
  void advance(std::size_t bytes) { out_.byte(kAdvance4), out_.number(bytes, 4); }
  void depth(unsigned bytes) { out_.byte(kDefCfaOffset), out_.uleb(bytes); }
  void saved(unsigned reg, unsigned below) { out_.byte(kOffset | reg), out_.uleb(below / kDataAlign); }
  void restored(unsigned reg) { out_.byte(kRestore | reg); }
  void end() { out_.end(entry_); }

 private:
  Frames& out_;
  std::size_t entry_;
};

static_assert(offsetof(shared::SlotHead, address) == 0);

// What a body pushes, in this order, behind its return address.
constexpr unsigned kPushed[] = {0 /* rax */, 2 /* rcx */, 1 /* rdx */, 4 /* rsi */, 5 /* rdi */, 8 /* r8 */};

void put_thunk(Frames& out, Addr at, Addr probe) {
  Fde fde(out, at, shared::kThunkBytes);
  fde.returns_to(probe);
  fde.advance(shared::kThunkCall);
  fde.depth(shared::kSkippedRedZone);
  fde.end();
}

void put_body(Frames& out, const Body& body, Addr at) {
  const std::size_t start = kBodyEntry;
  Fde fde(out, at + start, body.bytes.size() - start);
  fde.returns_to_point_of_slot();
  std::size_t here = start;
  unsigned depth = shared::kCalledDepth;
  for (const StackMark& mark : body.stack) {
    if (mark.offset != here) fde.advance(mark.offset - here);
    here = mark.offset;
    fde.depth(mark.depth);
    for (unsigned i = 0; i < std::size(kPushed); ++i) {
      const unsigned below = shared::kCalledDepth + 8 * (i + 1);
      if (depth < below && mark.depth >= below) fde.saved(kPushed[i], below);
      if (depth >= below && mark.depth < below) fde.restored(kPushed[i]);
    }
    depth = mark.depth;
  }
  fde.end();
}

}  // namespace

std::vector<std::uint8_t> make_unwind(const Body& body, Addr at, Addr probe, const PlacedCopy& copy) {
  Frames out;
  put_cie(out);
  put_body(out, body, at);
  put_thunk(out, copy.at - shared::kThunkBytes, probe);
  for (std::size_t i = 0; i < copy.marks.size(); ++i) {
    const CopyMark& mark = copy.marks[i];
    const std::size_t end = i + 1 < copy.marks.size() ? copy.marks[i + 1].offset : copy.bytes;
    if (end <= mark.offset) continue;
    Fde fde(out, copy.at + mark.offset, end - mark.offset);
    fde.returns_to(mark.original);
    if (mark.pushed != 0) fde.depth(mark.pushed);
    fde.end();
  }
  return out.take();
}

}  // namespace uprobe::arch
