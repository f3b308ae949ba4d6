// SPDX-License-Identifier: MIT
// The messages between a process that attaches to itself and its self-attach tracer, the tool that traces it on its behalf
// (cli/self_attach_tracer.h). They are messages of peer_protocol.h; commands inside them are those of control_protocol.h.
//
//   self-attach tracer -> process                    process -> self-attach tracer
//   hello      its process id
//                                                    hello      the process, its folder, definitions
//   admitted   the probes are armed
//   refused    the error; nothing was changed
//   layout     of an event, before its first record
//   record     one per hit                           command    one at a time
//   reply      to a command
//   summary    counts: on request, and at the end
//                                                    leave      the process wants no more records
//   ended      and the reason; the last message
//
// The socket pair belongs to these two alone. A side that is gone has left. The tracer stops the process while it adds or
// removes probes, and never waits for a message from it during that time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/ipc/control_protocol.h"
#include "engine/ipc/peer_protocol.h"
#include "engine/program/layout.h"

namespace uprobe {

// The command line is `uprobe-run --attend THREAD RING_BYTES AGENT CALLBACKS`, with the socket as standard input. THREAD: the
// process's thread that reads the socket; its hits make no events. AGENT: path of libuprobe.so; empty: next to the tool. CALLBACKS:
// "COUNT,ADDRESS,COOKIE": the last COUNT definitions call the process's callbacks 0, 1, ... by the gate at that address
// (arch/shared/callback_entry.h).
inline constexpr const char* kAttendOption = "--attend";
inline constexpr int kAttendWords = 6, kAttendSocket = 0;

// The layout of record `index`'s payload.
struct LayoutMessage {
  std::uint32_t index = 0;
  program::EventLayout layout;
};

// Whole messages. The command `stats` asks for a summary.
std::string encode(const LayoutMessage& message);
std::string encode_command(const Command& command);
std::string encode_reply(const Reply& reply);

// The decoders take a message's body, and return nothing where its bytes are malformed. For replies: decode_reply of
// control_protocol.h.
std::optional<LayoutMessage> decode_layout(std::string_view bytes);
std::optional<Command> decode_command(std::string_view bytes);

}  // namespace uprobe
