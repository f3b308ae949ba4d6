// SPDX-License-Identifier: MIT
// The entries of a recording, checked: whatever the bytes are, a record that is handed on is one that a session could have made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/output/formatter.h"
#include "engine/output/symbols.h"
#include "engine/program/layout.h"
#include "engine/recording/blocks.h"
#include "engine/trace/clocks.h"

namespace uprobe::recording {

struct Settings {
  std::uint32_t flags = 0, string_limit = 0;
  bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
};

// The names and the stack that were noted for one hit.
class SavedSymbols final : public format::Symbols {
 public:
  format::NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) override;
  format::CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) override;
  std::vector<format::StackFrame> frames_of(const trace::EventRecord&) override { return frames_; }

  // False: the bytes are not such an entry. They must live as long as the names are asked for.
  bool take_names(std::string_view bytes);
  bool take_frames(std::string_view bytes);
  void clear();

 private:
  struct Name {
    std::uint64_t address;
    format::NamedAddress named;
  };
  std::vector<Name> names_;
  std::vector<format::StackFrame> frames_;
  std::vector<format::CodePlace> places_;  // of the frames
};

// Gets what a recording holds.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  // Comes first.
  virtual void begin(const Settings& settings, SavedSymbols& symbols) = 0;
  virtual void event(program::EventLayout layout) = 0;
  virtual void clocks(const trace::ClockReading&) {}
  // False: no more are wanted.
  virtual bool hit(const trace::EventRecord& record, std::string_view comm) = 0;
  virtual void end(const std::vector<format::Total>& totals) = 0;
};

// Fails where the recording is not whole, after all that is before that place has been handed on.
Status read_recording(const Recording& recording, Listener& listener);

}  // namespace uprobe::recording
