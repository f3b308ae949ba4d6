// SPDX-License-Identifier: MIT
// Damaged unwind tables, tables of landing pads and notes: the input is all of them, in an otherwise sound file.
#include <algorithm>
#include <cstdlib>

#include "engine/elf/eh_frame.h"
#include "engine/elf/elf_file.h"
#include "engine/symbolize/frame_walk.h"
#include "tests/elf/made_elf.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe::elf;

constexpr std::uint64_t kNotes = 0x300, kTables = 0x510;
constexpr std::size_t kNoteBytes = 0x100, kMostTables = 0xa00;

void require(bool holds) {
  if (!holds) std::abort();
}

class EverywhereTheSame final : public FrameMemory {
 public:
  std::optional<std::uint64_t> load(std::uint64_t address) const override { return address ^ 0x401008; }
};

std::vector<std::uint8_t> file_with(const std::uint8_t* data, std::size_t size) {
  MadeElf made;
  const std::size_t notes = std::min(size, kNoteBytes), tables = std::min(size - notes, kMostTables);
  made.add_part(PT_NOTE, kNotes, notes);
  made.add_part(PT_GNU_EH_FRAME, 0x500, 12);
  made.put_bytes(0x500, {1, 0x1b, 0x03, 0x3b, 0x0c, 0, 0, 0});
  made.put_bytes(kNotes, {data, data + notes});
  made.put_bytes(kTables, {data + notes, data + notes + tables});
  return made.bytes();
}

void check_image(const Image& image) {
  for (const Frame& frame : frames_of(image)) {
    require(frame.code.begin < frame.code.end && image.executable_at(frame.code.begin) != nullptr);
    const auto pads = landing_pads(image, frame, 1000);
    require(!pads || pads->size() <= 1000);
  }
  for (const Range& range : signal_frame_ranges(image)) require(range.begin < range.end);
}

void check_rows(const ElfFile& file) {
  CallFrames frames(file.bytes());
  FrameState state;
  for (std::size_t reg = 0; reg < kFrameRegisters; ++reg) state[reg] = 0x7000 + 8 * reg;
  for (std::uint64_t at = MadeElf::kCode; at < MadeElf::kSize; at += 5) {
    const FrameRow* row = frames.row_at(MadeElf::kBase + at);
    if (row == nullptr) continue;
    FrameState caller = state;
    const Step step = step_up(*row, EverywhereTheSame(), caller);
    require(step == Step::up ? caller[kFrameIp] && caller[kFrameSp] : caller == state);
    (void)frame_top(*row, EverywhereTheSame(), state);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = file_with(data, size);
  const auto image = Image::parse(BytesView(bytes));
  if (image) check_image(*image);
  const auto file = ElfFile::parse("input", bytes);
  if (file) check_rows(*file);
  if (file) (void)file->is_signal_return(MadeElf::kBase + MadeElf::kCode);
  return 0;
}

// The notes of gcc's programs, then a CIE with every letter, its FDE with a table of landing pads, and a frame of handlers'
// callers.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::uint8_t> seed = {4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0, 1, 2, 3, 4};
  seed.resize(kNoteBytes);
  const std::vector<std::uint8_t> tables = {
      24,   0,    0,    0,    0,    0,    0,    0,    1,    'z',  'P',  'L',  'R',  0,
      1,    0x78, 16,   7,    0x03, 0,    0x10, 0x40, 0,    0x03, 0x03, 0x0c, 7,    8,  // CIE
      40,   0,    0,    0,    32,   0,    0,    0,    0,    0x10, 0x40, 0,    0x80, 0,
      0,    0,    4,    0x70, 5,    0x40, 0,  // FDE
      0x0a, 0x41, 0x0e, 16,   0x86, 2,    0x42, 0x0d, 6,    0x03, 4,    0,    0x0f, 3,
      0x77, 8,    6,    0x10, 3,    2,    0x77, 8,    0x0b,  // its rules
      16,   0,    0,    0,    0,    0,    0,    0,    1,    'z',  'R',  'S',  0,    1,
      0x78, 16,   1,    0x03, 0,    0,  // CIE
      16,   0,    0,    0,    24,   0,    0,    0,    0,    0x12, 0x40, 0,    32,   0,
      0,    0,    0,    0,    0,    0,    0,    0,    0,    0};
  seed.insert(seed.end(), tables.begin(), tables.end());
  seed.insert(seed.end(), {0xff, 0x9b, 0x10, 0x01, 8, 0, 5, 9, 1, 6, 5, 0, 0});  // landing pads
  return {{seed.begin(), seed.end()}};
}
