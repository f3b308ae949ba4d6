// SPDX-License-Identifier: MIT
#include "cli/output_options.h"

#include <algorithm>

#include "engine/output/formats.h"

namespace uprobe::cli {
namespace {

constexpr const char* kText = "text";

bool is_histogram(const std::string& trigger) { return trigger.starts_with("hist"); }

bool has_histogram(const ProbeSource& source) {
  return std::any_of(source.triggers.begin(), source.triggers.end(), is_histogram);
}

// Whether no record is expected: the events only count into histograms.
bool only_counts(const Options& options) {
  const auto& all = options.sources;
  return !all.empty() && std::all_of(all.begin(), all.end(), [](const ProbeSource& source) {
    return source.is_disabled && has_histogram(source);
  });
}

Error refused(const Options& options, const std::string& text, const std::string& help) {
  return Error{.code = Code::usage, .text = text, .where = "--format=" + options.format, .help = help};
}

}  // namespace

Status set_format(Options& options, const std::string& name) {
  if (format::format_called(name) == nullptr)
    return Error{.code = Code::usage, .text = "'" + name + "' is not one of " + format::format_names()};
  options.format = name;
  return ok();
}

Status settle_output(const Options& options) {
  const format::Format& format = *format::format_called(options.format);
  if (format.takes_text) return ok();
  if (options.short_lines || options.style != spec::Style::event)
    return refused(options, "--style is for lines of text", "drop one of them");
  const auto& all = options.sources;
  if (options.histogram_file.empty() && std::any_of(all.begin(), all.end(), has_histogram))
    return refused(options, "there is no place for the tables of hist triggers", "--hist-file=FILE");
  if (options.daemonize && !format.tells_losses)
    return refused(options, "-D leaves no place to report losses", "--format=" + std::string(kText));
  return ok();
}

bool wants_header(const Options& options) {
  if (options.no_header) return false;
  return options.format != kText || (!options.quiet && !options.short_lines && !only_counts(options));
}

bool takes_text(const Options& options) { return format::format_called(options.format)->takes_text; }

bool has_fixed_fields(const Options& options) { return format::format_called(options.format)->has_fixed_fields; }

}  // namespace uprobe::cli
