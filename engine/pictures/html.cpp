// SPDX-License-Identifier: MIT
#include "engine/pictures/html.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/output/escape.h"
#include "engine/output/json_text.h"
#include "engine/pictures/flamegraph.h"
#include "engine/pictures/page_files.h"

namespace uprobe::format {

namespace {

constexpr std::size_t kBatch = 65536;
// Compressed; a third more in the page, which is to have 20 MB at most.
constexpr std::size_t kMostValues = std::size_t{7} << 20, kMostColumns = std::size_t{6} << 20;
constexpr std::size_t kMostThreads = 1 << 16;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    const std::size_t some = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < some ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) text += k <= some ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

void add_data(std::string_view name, std::string_view base64_text, Buffer& out) {
  out.add("<script type=\"text/plain\" id=\"data-");
  out.add(name);
  out.add("\">");
  out.add(base64_text);
  out.add("</script>\n");
}

void add_number(std::string_view key, std::uint64_t number, Buffer& out) {
  out.add(key);
  add_decimal(out, number);
}

double number_of(const Value& value) {
  if (value.kind == Value::Kind::floating) return value.floating;
  return value.kind == Value::Kind::signed_decimal ? static_cast<double>(static_cast<std::int64_t>(value.number))
                                                   : static_cast<double>(value.number);
}

}  // namespace

void Column::add(std::uint64_t value) {
  constexpr std::uint64_t kMore = 128;
  for (; value >= kMore; value >>= 7) fresh_ += static_cast<char>(value | kMore);
  fresh_ += static_cast<char>(value);
  if (fresh_.size() >= kBatch) compress();
}

void Column::add_bytes(std::string_view bytes) {
  fresh_ += bytes;
  if (fresh_.size() >= kBatch) compress();
}

void Column::compress() {
  deflater_.add(fresh_);
  fresh_.clear();
}

std::string Column::finish() {
  compress();
  deflater_.end();
  return base64(deflater_.bytes());
}

void HtmlFormatter::add(const program::EventLayout& layout) {
  Event& event = events_.emplace_back(layout);
  event.counted = counted_fields(options_.counters, event);
  roles_.add(layout);
}

// Of a thread under this name. There may be any number of names; very many are one.
std::uint64_t HtmlFormatter::thread_number(const Thread& thread, std::string_view comm) {
  std::string text =
      "[" + std::to_string(thread.pid) + "," + std::to_string(thread.tid) + "," + json_of(escaped(comm)) + "]";
  if (thread_texts_.size() >= kMostThreads && !thread_numbers_.contains(text)) text = "[0,0,\"other threads\"]";
  const auto [found, is_new] = thread_numbers_.try_emplace(text, thread_texts_.size());
  if (is_new) thread_texts_.push_back(std::move(text));
  return found->second;
}

void HtmlFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type >= events_.size()) return;
  Event& event = events_[record.type];
  ++hits_, ++event.hits;
  if (first_ == 0) first_ = last_ = record.ns;
  stacks_.add(record, comm, event.layout.event);
  const auto left = [](const Thread&, const Threads::Call&) {};
  Thread& thread = threads_.thread_of(record, left);
  const auto role = roles_.role(record.type);
  std::uint64_t link = 0;
  if (role == CallEvents::Role::exit) {
    if (const auto call = threads_.end_of(thread, record.type, left)) {
      add_call(call->type, record.ns - std::min(record.ns, call->ns));
      link = rows_ - call->data;
    }
  } else if (event.layout.is_return) {
    Values values(event, record, options_, padded_);
    if (const auto latency = recorded_latency(event, values)) add_call(record.type, *latency);
  }
  const std::size_t columns = times_.size() + thread_column_.size() + types_.size() + links_.size() + depths_.size();
  if (columns < kMostColumns) add_row(record, comm, thread, link);
  if (role == CallEvents::Role::entry)
    threads_.enter(thread, {.ns = record.ns, .type = record.type, .data = rows_ - 1}, left);
}

void HtmlFormatter::add_row(const trace::EventRecord& record, std::string_view comm, const Thread& thread,
                            std::uint64_t link) {
  times_.add_signed(static_cast<std::int64_t>(record.ns - last_));
  last_ = record.ns;
  thread_column_.add(thread_number(thread, comm));
  types_.add(std::uint64_t{record.type});
  links_.add(link);
  depths_.add(std::uint64_t{thread.open.size()});
  add_values(record);
  ++rows_;
}

void HtmlFormatter::add_values(const trace::EventRecord& record) {
  const Event& event = events_[record.type];
  Values values(event, record, options_, padded_);
  Buffer text;
  const bool has_room = values_.size() < kMostValues;
  if (has_room) ++valued_;
  for (const program::Field& field : event.fields()) {
    if (!has_room) break;
    if (text.size() != 0) text.add(", ");
    text.add(field.name);
    text.add("=");
    add_field(text, field, values, record, options_, true);
  }
  values_.add_bytes(escaped(text.view()) + "\n");
  Values numbers(event, record, options_, padded_);
  for (const CountedField& counted : event.counted) {
    const Value value = numbers.at(event.fields()[counted.field]);
    if (value.kind == Value::Kind::missing || value.kind == Value::Kind::fault) continue;
    const double number = number_of(value);
    if (!std::isfinite(number)) continue;
    counter_rows_.add(rows_), counter_rows_.add(std::uint64_t{counted.counter});
    counter_values_.add_bytes(std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
  }
}

void HtmlFormatter::add_call(std::uint16_t type, std::uint64_t latency) {
  Event& event = events_[type];
  ++event.calls;
  event.sum += latency;
  event.min = std::min(event.min, latency), event.max = std::max(event.max, latency);
  ++event.histogram[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(latency)), 63)];
}

void HtmlFormatter::add_events(Buffer& out) const {
  bool is_first = true;
  for (const Event& event : events_) {
    out.add(is_first ? "{\"event\":" : ",\n{\"event\":");
    is_first = false;
    add_json_text(out, escaped(event.layout.event));
    out.add(",\"name\":");
    add_json_text(out, escaped(shown_name(event.layout)));
    out.add(event.layout.is_return ? ",\"isReturn\":true" : ",\"isReturn\":false");
    add_number(",\"hits\":", event.hits, out);
    add_number(",\"calls\":", event.calls, out);
    add_number(",\"sum\":", event.sum, out);
    add_number(",\"min\":", event.calls == 0 ? 0 : event.min, out);
    add_number(",\"max\":", event.max, out);
    for (std::size_t i = 0; i < event.histogram.size(); ++i)
      add_number(i == 0 ? ",\"histogram\":[" : ",", event.histogram[i], out);
    out.add("]}");
  }
}

void HtmlFormatter::add_about(std::span<const Total> totals, Buffer& out) const {
  add_number("{\"hits\":", hits_, out);
  add_number(",\"rows\":", rows_, out);
  add_number(",\"valued\":", valued_, out);
  add_number(",\"first\":", first_, out);
  out.add(",\n\"events\":[");
  add_events(out);
  out.add("],\n\"threads\":[");
  for (const std::string& thread : thread_texts_) {
    if (&thread != &thread_texts_.front()) out.add(",");
    out.add(thread);
  }
  out.add("],\n\"counters\":[");
  for (const Counter& counter : options_.counters) {
    if (&counter != &options_.counters.front()) out.add(",");
    add_json_text(out, escaped(counter.event + ":" + counter.field));
  }
  out.add("],\n\"lost\":[");
  bool is_first = true;
  for (const Total& total : totals) {
    if (total.lost == 0 && total.missed == 0) continue;
    out.add(is_first ? "[" : ",[");
    is_first = false;
    add_json_text(out, escaped(total.name));
    add_number(",", total.lost, out);
    add_number(",", total.missed, out);
    out.add("]");
  }
  out.add("]}");
}

void HtmlFormatter::end(std::span<const Total> totals, Buffer& out) {
  out.add(page_head());
  out.add("<style>\n");
  out.add(page_style());
  out.add("</style>\n<div id=\"flame\">");
  add_flame_graph(stacks_, out);
  out.add("</div>\n");
  Buffer about;
  add_about(totals, about);
  add_data("about", base64(compressed(about.view(), Deflater::Form::raw)), out);
  const std::pair<std::string_view, Column*> columns[] = {{"times", &times_},
                                                          {"threads", &thread_column_},
                                                          {"types", &types_},
                                                          {"links", &links_},
                                                          {"depths", &depths_},
                                                          {"values", &values_},
                                                          {"counter-rows", &counter_rows_},
                                                          {"counter-values", &counter_values_}};
  for (const auto& [name, column] : columns) add_data(name, column->finish(), out);
  out.add("<script>\n");
  out.add(flame_script());
  out.add(page_script());
  out.add("</script>\n</body>\n</html>\n");
}

}  // namespace uprobe::format
