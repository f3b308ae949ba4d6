// SPDX-License-Identifier: MIT
// Hand-made records of all kinds of values, for the tests of the formats that are not text.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/shared/session_area.h"

namespace uprobe::format {

using program::Kind;

// A payload and its layout, built side by side.
class Record {
 public:
  explicit Record(const std::string& event = "e", bool is_return = false) {
    layout.group = "uprobes";
    layout.event = event;
    layout.is_return = is_return;
    put(shared::PayloadHead{.type = 0, .flags = 0, .preempt_count = 0, .pid = 12, .ip = 0x401136});
    if (is_return) put(std::uint64_t{0x402000});
  }

  template <class T>
  Record& field(const std::string& name, Kind kind, T value) {
    return array(name, kind, std::vector<T>{value}, 0);
  }
  template <class T>
  Record& array(const std::string& name, Kind kind, const std::vector<T>& values) {
    return array(name, kind, values, static_cast<std::uint32_t>(values.size()));
  }
  // A number of 16 bytes.
  Record& wide(const std::string& name, Kind kind, std::uint64_t lower, std::uint64_t upper) {
    array(name, kind, std::vector<std::uint64_t>{lower, upper});
    layout.fields.back().is_wide = true;
    return *this;
  }
  // A string; its bytes come after all fields. `length`: bytes of the locator where they are fewer.
  Record& text(const std::string& name, const std::string& value, bool is_cut = false) {
    texts_.push_back({payload.size(), is_cut ? value : value + '\0'});
    return field(name, Kind::string, std::uint32_t{0});
  }

  // Made when all fields are there.
  trace::EventRecord event(std::uint64_t ns = 12'345'678'901) {
    for (const auto& [locator, bytes] : texts_) {
      const auto word = static_cast<std::uint32_t>(bytes.size() << 16 | payload.size());
      std::memcpy(payload.data() + locator, &word, sizeof word);
      payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    texts_.clear();
    return {.ns = ns, .tid = 13, .pid = 12, .cpu = 1, .type = 0, .flags = flags, .payload = payload, .stack = stack};
  }
  void add_stack(const std::vector<std::uint64_t>& addresses) {
    shared::StackHead head{};
    head.frames = static_cast<std::uint32_t>(addresses.size());
    stack.resize(sizeof head + 16 * addresses.size());
    std::memcpy(stack.data(), &head, sizeof head);
    std::memcpy(stack.data() + sizeof head, addresses.data(), 8 * addresses.size());
  }

  program::EventLayout layout;
  std::vector<std::uint8_t> payload, stack;
  std::uint16_t flags = 0;

 private:
  struct Text {
    std::size_t locator;
    std::string bytes;
  };

  template <class T>
  void put(const T& value) {
    payload.resize(payload.size() + sizeof value);
    std::memcpy(payload.data() + payload.size() - sizeof value, &value, sizeof value);
    layout.fixed_bytes = static_cast<std::uint32_t>(payload.size());
  }
  template <class T>
  Record& array(const std::string& name, Kind kind, const std::vector<T>& values, std::uint32_t count) {
    layout.fields.push_back(
        {.name = name, .kind = kind, .size = sizeof(T), .offset = layout.fixed_bytes, .count = count});
    for (const T& value : values) put(value);
    return *this;
  }

  std::vector<Text> texts_;
};

// The text of one record.
template <class T>
std::string line_of(Record record, const Options& options = {}, const std::string& comm = "zsh") {
  T formatter(options);
  formatter.add(record.layout);
  Buffer out;
  formatter.append(record.event(), comm, out);
  return std::string(out.view());
}

}  // namespace uprobe::format
