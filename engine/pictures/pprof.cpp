// SPDX-License-Identifier: MIT
#include "engine/pictures/pprof.h"

#include <algorithm>
#include <utility>

#include "engine/base/text.h"
#include "engine/output/escape.h"
#include "engine/pictures/deflate.h"
#include "engine/pictures/stacks.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kMostName = 200, kMostBytes = std::size_t{64} << 20;
constexpr std::uint64_t kFileRange = std::uint64_t{1} << 40;  // of addresses, for each file

// Fields of the messages of profile.proto.
namespace profile_field {
constexpr std::uint32_t kSampleType = 1, kSample = 2, kMapping = 3, kLocation = 4, kFunction = 5, kString = 6,
                        kDuration = 10, kComment = 13, kDefaultType = 14;
}
namespace sample_field {
constexpr std::uint32_t kLocations = 1, kValues = 2, kLabel = 3;
}
namespace mapping_field {
constexpr std::uint32_t kId = 1, kBegin = 2, kEnd = 3, kFile = 5, kBuildId = 6, kHasFunctions = 7;
}
namespace location_field {
constexpr std::uint32_t kId = 1, kMapping = 2, kAddress = 3, kLine = 4;
}
namespace function_field {
constexpr std::uint32_t kId = 1, kName = 2, kSystemName = 3, kFile = 4;
}

std::string key_of(const std::vector<std::uint64_t>& locations, std::string_view comm) {
  std::string key(reinterpret_cast<const char*>(locations.data()), locations.size() * sizeof locations[0]);
  return key.append(comm);
}

}  // namespace

PprofFormatter::PprofFormatter(const Options& options) : options_(options) {
  text("");
  rest_ = location_of("[other stacks]", {});
}

std::uint64_t PprofFormatter::text(std::string_view text) {
  std::string shown = escaped(text);
  const auto [found, is_new] = texts_.try_emplace(shown, strings_.size());
  if (is_new) {
    bytes_ += 2 * shown.size();
    strings_.push_back(std::move(shown));
  }
  return found->second;
}

std::uint64_t PprofFormatter::function_of(const std::string& name, const std::string& file) {
  const auto [found, is_new] = functions_.try_emplace(name + '\0' + file, functions_.size() + 1);
  if (!is_new) return found->second;
  ProtobufWriter function;
  function.number(function_field::kId, found->second).number(function_field::kName, text(name));
  function.number(function_field::kSystemName, text(name)).number(function_field::kFile, text(file));
  function_messages_.bytes(profile_field::kFunction, function.view());
  bytes_ += name.size() + file.size() + function.view().size();
  return found->second;
}

std::uint64_t PprofFormatter::mapping_of(const CodePlace& place) {
  if (place.path.empty()) return 0;
  const auto [found, is_new] = mappings_.try_emplace(place.path);
  if (is_new) found->second = {mappings_.size(), place.build_id};
  return found->second.number;
}

std::uint64_t PprofFormatter::location_of(const std::string& name, const CodePlace& place) {
  const std::string at = place.path.empty() ? std::string() : place.path + ":" + hex(place.offset);
  std::string key = name + '\0' + at;
  if (bytes_ > kMostBytes && !locations_.contains(key)) return rest_;
  const auto [found, is_new] = locations_.try_emplace(std::move(key), locations_.size() + 1);
  if (!is_new) return found->second;
  const std::uint64_t mapping = mapping_of(place);
  ProtobufWriter line, location;
  line.number(1, function_of(name, place.path));
  location.number(location_field::kId, found->second).number(location_field::kMapping, mapping);
  if (mapping != 0) location.number(location_field::kAddress, mapping * kFileRange + place.offset % kFileRange);
  location.bytes(location_field::kLine, line.view());
  location_messages_.bytes(profile_field::kLocation, location.view());
  bytes_ += name.size() + at.size() + location.view().size();
  return found->second;
}

void PprofFormatter::add(const program::EventLayout& layout) {
  events_.emplace_back(layout);
  event_locations_.push_back(location_of(shown_name(layout).substr(0, kMostName), {}));
  roles_.add(layout);
}

// The innermost first.
std::vector<std::uint64_t> PprofFormatter::locations_of(const trace::EventRecord& record,
                                                        const Threads::Thread& thread) {
  std::vector<std::uint64_t> locations;
  for (const StackFrame& frame : frames_of(record, options_.symbols)) {
    const std::uint64_t address = frame.address - (frame.is_return ? 1 : 0);
    const CodePlace place = options_.symbols == nullptr ? CodePlace{} : options_.symbols->place_of(&record, address);
    const std::string name = !place.name.empty()  ? place.name.substr(0, kMostName)
                             : place.path.empty() ? hex(frame.address)
                                                  : "[" + place.path.substr(place.path.rfind('/') + 1) + "]";
    locations.push_back(location_of(name, place));
  }
  if (!locations.empty()) return locations;
  locations.push_back(event_locations_[record.type]);
  for (auto call = thread.open.rbegin(); call != thread.open.rend(); ++call)
    locations.push_back(event_locations_[call->type]);
  return locations;
}

// When there are very many, further stacks are one.
std::size_t PprofFormatter::sample_of(const std::vector<std::uint64_t>& locations, std::string_view comm) {
  std::string key = key_of(locations, comm);
  const bool is_rest = bytes_ > kMostBytes && !numbers_.contains(key);
  const std::vector<std::uint64_t> rest = is_rest ? std::vector{rest_} : locations;
  if (is_rest) key = key_of(rest, {});
  const auto [found, is_new] = numbers_.try_emplace(key, samples_.size());
  if (!is_new) return found->second;
  ProtobufWriter sample, label;
  label.number(1, text("task")).number(2, text(is_rest ? std::string_view("[all]") : comm));
  sample.numbers(sample_field::kLocations, rest).bytes(sample_field::kLabel, label.view());
  bytes_ += 2 * key.size() + sample.view().size();
  samples_.push_back(sample.view());
  values_.emplace_back();
  return found->second;
}

void PprofFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type >= events_.size()) return;
  if (first_ == 0) first_ = record.ns;
  last_ = std::max(last_, record.ns);
  const auto left = [](const Threads::Thread&, const Threads::Call&) {};
  Threads::Thread& thread = threads_.thread_of(record, left);
  const auto role = roles_.role(record.type);
  if (role == CallEvents::Role::exit) {
    if (const auto call = threads_.end_of(thread, record.type, left)) return end_call(*call, record.ns, thread);
    if (thread.forgotten != 0) return void(--thread.forgotten);  // its entry was the hit
  }
  const std::size_t sample = sample_of(locations_of(record, thread), comm);
  ++values_[sample].hits;
  if (role == CallEvents::Role::entry)
    threads_.enter(thread, {.ns = record.ns, .type = record.type, .data = {.sample = sample}}, left);
  else
    add_latency(record, sample);
}

void PprofFormatter::end_call(const Threads::Call& call, std::uint64_t ns, Threads::Thread& thread) {
  const std::uint64_t latency = ns - std::min(ns, call.ns);
  values_[call.data.sample].nanoseconds += latency - std::min(latency, call.data.inside);
  if (!thread.open.empty()) thread.open.back().data.inside += latency;
  has_times_ = true;
}

// A return without its entry may have recorded $latency.
void PprofFormatter::add_latency(const trace::EventRecord& record, std::size_t sample) {
  const KnownEvent& event = events_[record.type];
  if (!event.layout.is_return) return;
  Values values(event, record, options_, padded_);
  const auto latency = recorded_latency(event, values);
  if (!latency) return;
  values_[sample].nanoseconds += *latency;
  has_times_ = true;
}

void PprofFormatter::add_samples(ProtobufWriter& profile) const {
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    ProtobufWriter sample;
    const std::uint64_t both[] = {values_[i].hits, values_[i].nanoseconds};
    sample.numbers(sample_field::kValues, std::span(both, has_times_ ? 2 : 1));
    profile.bytes(profile_field::kSample, samples_[i] + sample.view());
  }
}

void PprofFormatter::add_mappings(ProtobufWriter& profile) {
  std::vector<const decltype(mappings_)::value_type*> in_order(mappings_.size());
  for (const auto& one : mappings_) in_order[one.second.number - 1] = &one;
  for (const auto* one : in_order) {
    ProtobufWriter mapping;
    const std::uint64_t begin = one->second.number * kFileRange;
    mapping.number(mapping_field::kId, one->second.number).number(mapping_field::kBegin, begin);
    mapping.number(mapping_field::kEnd, begin + kFileRange).number(mapping_field::kFile, text(one->first));
    mapping.number(mapping_field::kBuildId, text(one->second.build_id)).number(mapping_field::kHasFunctions, 1);
    profile.bytes(profile_field::kMapping, mapping.view());
  }
}

void PprofFormatter::end(std::span<const Total> totals, Buffer& out) {
  ProtobufWriter profile;
  const auto add_type = [&](std::string_view name, std::string_view unit) {
    ProtobufWriter type;
    profile.bytes(profile_field::kSampleType, type.number(1, text(name)).number(2, text(unit)).view());
  };
  add_type("hits", "count");
  if (has_times_) add_type("time", "nanoseconds");
  add_samples(profile);
  add_mappings(profile);
  profile.number(profile_field::kDuration, last_ - first_);
  profile.number(profile_field::kDefaultType, text(has_times_ ? "time" : "hits"));
  for (const Total& total : totals)
    if (total.lost != 0 || total.missed != 0)
      profile.number(profile_field::kComment, text(total.name + ": " + std::to_string(total.lost) + " hits lost, " +
                                                   std::to_string(total.missed) + " returns missed"));
  for (const std::string& one : strings_) profile.bytes(profile_field::kString, one);
  Deflater gzip(Deflater::Form::gzip);
  for (const auto* part : {&function_messages_, &location_messages_, &profile}) gzip.add(part->view());
  gzip.end();
  out.add(gzip.bytes());
}

}  // namespace uprobe::format
