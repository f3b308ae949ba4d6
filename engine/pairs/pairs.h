// SPDX-License-Identifier: MIT
// What was opened and not closed, by stack, and how long keys were held: a report when the session ends (pair_report.h).
//
// The events of a pair are those of one group. The names of their fields say what they are, in a session and in a recording
// alike:
//
//   return, `key`       gives the key out; `size` bytes, times `count`; nothing if `failed` is not 0
//   entry, `key`        takes it back
//   entry, `moved`      of a function whose return gives out another key for it (realloc)
//   entry, none of them of a function that may call others of the pair inside (memalign); of execve: the program is replaced
//
// Of several events at the entry, or at the return, of one function in a group the first one counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/output/formatter.h"
#include "engine/output/values.h"
#include "engine/pairs/pair_stacks.h"
#include "engine/pairs/pair_table.h"

namespace uprobe::format {

// The events of a group.
struct PairGroup {
  bool is_pair = false;  // it has something that opens
  bool has_sizes = false;
  std::unique_ptr<PairTable> table;  // from the first record on
  std::uint64_t unread = 0;          // steps without a key that could be read
  std::uint64_t lost = 0;            // records
  std::uint64_t unfollowed = 0;      // returns

  const std::map<std::uint32_t, PairTable::Process>& processes() const {
    static const std::map<std::uint32_t, PairTable::Process> kNone;
    return table == nullptr ? kNone : table->processes();
  }
};

class PairsFormatter : public Formatter {
 public:
  explicit PairsFormatter(const Options& options) : options_(options), stacks_(options.symbols) {}

  void add(const program::EventLayout& layout) override;
  void append(const trace::EventRecord& record, std::string_view comm, Buffer& out) override;
  void end(std::span<const Total> totals, Buffer& out) override;

 protected:
  virtual void report(Buffer& out) const;

  std::map<std::string, PairGroup> groups_;
  const PairStacks& stacks() const { return stacks_; }

 private:
  struct Event {
    KnownEvent known;
    PairRole role = PairRole::none;
    std::uint32_t function = 0;
    PairGroup* group = nullptr;
    const program::Field *key = nullptr, *size = nullptr, *count = nullptr, *failed = nullptr;  // of `known`
  };

  PairRole role_of(const Event& event) const;
  std::uint32_t number_of(const program::EventLayout& layout);
  bool read_step(const Event& event, const trace::EventRecord& record, PairStep& step);

  const Options options_;
  PairStacks stacks_;
  std::vector<std::unique_ptr<Event>> events_;
  std::map<std::string, std::uint32_t> functions_;
  std::set<std::tuple<const PairGroup*, std::uint32_t, PairRole>> taken_;
  std::vector<std::uint8_t> padded_;
};

// The same as an array of JSON objects.
class PairsJsonFormatter final : public PairsFormatter {
 public:
  using PairsFormatter::PairsFormatter;

 private:
  void report(Buffer& out) const override;
};

}  // namespace uprobe::format
