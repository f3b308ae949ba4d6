// SPDX-License-Identifier: MIT
// Histograms as the kernel's `hist` files show them (kernel/trace/trace_events_hist.c). Where the kernel leaves the order of entries
// open, those that are equal stand in the order of their keys.
#pragma once

#include <functional>
#include <string>

#include "engine/output/symbols.h"
#include "engine/program/histogram.h"
#include "engine/trace/histogram_copy.h"

namespace uprobe::format {

struct HistogramNames {
  std::function<std::string(std::uint32_t tid)> task;
  Symbols* symbols = nullptr;   // of code addresses; null: they print as numbers
  bool escape_control = false;  // bytes that are no text as \x1b
};

std::string print_histogram(const program::HistogramPlan& plan, const trace::HistogramCopy& copy,
                            const HistogramNames& names);

}  // namespace uprobe::format
