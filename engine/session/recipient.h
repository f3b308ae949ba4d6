// SPDX-License-Identifier: MIT
// The consumer of the records of the session's own events. One thread at a time uses it: the one that reads the rings or, while
// the session has clients, the one of run().
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/output/symbols.h"
#include "engine/resolve/probe_builder.h"
#include "engine/trace/event_record.h"
#include "engine/types.h"

namespace uprobe {

class Recipient {
 public:
  virtual ~Recipient() = default;
  // There may be further events. The list of probes does not change during the call.
  virtual void learn_events() {}
  virtual void take(const trace::EventRecord& record, std::string_view task) = 0;
  virtual void end_batch() {}
  virtual bool is_full() const { return false; }
  virtual bool is_broken() const { return false; }  // its reader is gone
};

// Makes text of the records. All arguments must outlive it; `probes` may grow, by event. No `symbols`: no event shows names.
std::unique_ptr<Recipient> make_printer(const std::vector<Probe>& probes, const RunOptions& options,
                                        const Output& output, format::Symbols* symbols);
// Passes the records on with their layouts. The same holds for its arguments.
std::unique_ptr<Recipient> make_forwarder(const std::vector<Probe>& probes, const RecordSink& sink);

}  // namespace uprobe
