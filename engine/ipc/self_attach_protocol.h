// SPDX-License-Identifier: MIT
// What a process that attaches to itself and the tool that does it for it (its self-attach tracer, cli/self_attach_tracer.h) say to each other: the
// messages of peer_protocol.h, and the commands of control_protocol.h inside of them.
//
//   self-attach tracer -> process                             process -> self-attach tracer
//   hello      its process id
//                                                    hello      the process, its folder, definitions
//   admitted   the probes are in
//   refused    the error; nothing was changed
//   layout     of an event, before its first record
//   record     ... as many as there are hits         command      one at a time
//   reply      to an command
//   summary    counts: asked for, and at the end
//                                                    leave      no more is wanted
//   ended      and why; nothing comes after it
//
// A pair of sockets that only the two have. A side that is gone has left. The process is stopped while probes come and go: the
// self-attach tracer never waits for it then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/ipc/control_protocol.h"
#include "engine/ipc/peer_protocol.h"
#include "engine/program/layout.h"

namespace uprobe {

// The self-attach tracer is called as `uprobe-run --attend THREAD RING_BYTES AGENT`, the socket as its standard input. THREAD: the
// process's thread that reads the socket, which makes no events. AGENT: libuprobe.so; empty: beside the tool.
inline constexpr const char* kAttendOption = "--attend";
inline constexpr int kAttendWords = 5, kAttendSocket = 0;

// Of record `index`; of the layout what it takes to read a payload.
struct LayoutMessage {
  std::uint32_t index = 0;
  program::EventLayout layout;
};

// Whole messages. Of commands, `stats` asks for a summary.
std::string encode(const LayoutMessage& message);
std::string encode_command(const Command& command);
std::string encode_reply(const Reply& reply);

// Of what is inside a message; nothing where the bytes make no sense. Replies: decode_reply of control_protocol.h.
std::optional<LayoutMessage> decode_layout(std::string_view bytes);
std::optional<Command> decode_command(std::string_view bytes);

}  // namespace uprobe
