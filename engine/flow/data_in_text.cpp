// SPDX-License-Identifier: MIT
#include "engine/flow/data_in_text.h"

#include <algorithm>
#include <cstdint>

#include "engine/elf/image.h"
#include "engine/elf/symbol_tables.h"

namespace uprobe::elf {
namespace {

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> disjoint;
  for (const Range& range : ranges) {
    if (!disjoint.empty() && range.begin <= disjoint.back().end)
      disjoint.back().end = std::max(disjoint.back().end, range.end);
    else
      disjoint.push_back(range);
  }
  return disjoint;
}

}  // namespace

std::vector<Range> data_in_text(const ElfFile& file) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  std::vector<Range> found;
  SymbolTables(*image).for_each([&](const RawSymbol& symbol) {
    const Segment* code = symbol.type == STT_OBJECT ? image->executable_at(symbol.address) : nullptr;
    if (code == nullptr) return;
    const std::uint64_t most = code->address + code->file_bytes - symbol.address;
    const std::uint64_t size = std::clamp<std::uint64_t>(symbol.size, 1, most);
    found.push_back({symbol.address, symbol.address + size});
  });
  return merged(std::move(found));
}

}  // namespace uprobe::elf
