// SPDX-License-Identifier: MIT
#include "engine/export/formats.h"

#include <algorithm>
#include <array>

#include "engine/export/ctf.h"
#include "engine/export/trace_dat.h"
#include "engine/output/csv.h"
#include "engine/output/json.h"
#include "engine/output/perf.h"
#include "engine/output/text.h"
#include "engine/pairs/pairs.h"
#include "engine/pictures/chrome.h"
#include "engine/pictures/flamegraph.h"
#include "engine/pictures/folded.h"
#include "engine/pictures/graph.h"
#include "engine/pictures/html.h"
#include "engine/pictures/pprof.h"

namespace uprobe::format {

namespace {

template <class T>
std::unique_ptr<Formatter> make(const Options& options) {
  return std::make_unique<T>(options);
}

std::unique_ptr<Formatter> make_text(const Options& options) {
  return std::make_unique<TextFormatter>(std::span<const program::EventLayout>(), options);
}

constexpr std::array kFormats = {
    Format{.name = "text", .make = make_text, .takes_text = true},
    Format{.name = "graph", .make = make<GraphFormatter>, .takes_text = true, .shows_latency = true},
    Format{.name = "json", .make = make<JsonFormatter>, .tells_losses = true},
    Format{.name = "csv", .make = make<CsvFormatter>, .has_fixed_fields = true},
    Format{.name = "chrome", .make = make<ChromeFormatter>, .tells_losses = true, .shows_counters = true},
    Format{.name = "folded", .make = make<FoldedFormatter>},
    Format{.name = "perf", .make = make<PerfFormatter>},
    Format{.name = "pprof", .make = make<PprofFormatter>, .tells_losses = true, .is_document = true, .is_binary = true},
    Format{.name = "flamegraph", .make = make<FlameGraphFormatter>, .tells_losses = true, .is_document = true},
    Format{
        .name = "html", .make = make<HtmlFormatter>, .tells_losses = true, .is_document = true, .shows_counters = true},
    Format{.name = "trace.dat",
           .make = make<TraceDatFormatter>,
           .tells_losses = true,
           .shows_foreign = true,
           .target = Target::file},
    Format{.name = "ctf", .make = make<CtfFormatter>, .tells_losses = true, .target = Target::folder},
    Format{.name = "pairs", .make = make<PairsFormatter>, .tells_losses = true},
    Format{.name = "pairs-json", .make = make<PairsJsonFormatter>, .tells_losses = true},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format* format_called(std::string_view name) {
  const auto* const found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& format) { return format.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

std::string format_names() {
  std::string names;
  for (const Format& format : kFormats) names.append(names.empty() ? "" : ", ").append(format.name);
  return names;
}

}  // namespace uprobe::format
