// SPDX-License-Identifier: MIT
// A process block is the target's own memory, so the target can write anything into it. The tool copies a block once and uses
// no number of the copy before it is checked here: no offset, count, length, index, address or enumerator.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/result.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {

// The limit for blocks that the tool makes or reads: a quarter of a gigabyte of tables.
inline constexpr std::uint32_t kMostPoints = 1U << 20;

// The tables of a block, copied out of the target.
struct BlockTables {
  std::span<const shared::Point> points;
  std::span<const shared::Undo> undo;
  std::span<const shared::Consumer> consumers;
  std::span<const shared::CodeFile> code_files;
  std::span<const std::uint32_t> hash;
};

// Code::damaged, with the reason. The head is checked first, because it contains the sizes of the tables.
// `most_points`: kMostPoints or less.
Status check_head(const shared::ProcessBlock& head, std::size_t most_points = kMostPoints);
Status check_tables(const shared::ProcessBlock& head, const BlockTables& tables);

}  // namespace uprobe::control
