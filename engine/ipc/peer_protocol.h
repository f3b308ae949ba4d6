// SPDX-License-Identifier: MIT
// The messages between two tools that trace one target. The first tool is the owner tool: it has the target, the agent, the
// rings and the reader. Each later tool is a client tool and does not touch the target: it sends its definitions, the owner
// tool adds them as events of that client and forwards their records unchanged, and the client tool prints these as if they
// were its own.
//
//   client tool -> owner tool                        owner tool -> client tool
//                                                    greeting   the client's pass
//   hello      the owner's pass, processes, options, admitted   the client's probes, as the owner has parsed them
//              definitions
//                                                    refused    the error; whether to retry once the owner tool has left
//                                                    record     one per hit
//   leave      the client wants no more records
//                                                    summary    of the client's probes, after all records
//                                                    ended      and the reason
//
// The socket is a stream socket in the folder of the owner tool's user (socket_folder.h), named after the owner tool's process
// id. Each side asks the kernel which process the other one is, and learns from its pass whether it may inspect that process
// (peer.h). A message starts with its size and its kind. The two processes may belong to different users (root with --join), so
// neither side trusts a number that the other sends. A client tool that closes the socket, or dies, has left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/trace/event_record.h"
#include "engine/types.h"

namespace uprobe {

// For layout, command and reply see engine/ipc/self_attach_protocol.h.
enum class Word : std::uint32_t {
  hello = 1,
  leave,
  admitted,
  refused,
  record,
  summary,
  ended,
  layout,
  command,
  reply,
  greeting
};

// Why no more records come.
enum class ClientEnd : std::uint32_t {
  left,       // the client has left
  processes,  // the processes have ended
  owner,      // the owner tool leaves and cannot hand the target over to its clients
};

struct Hello {
  std::string pass;  // the other side's; empty: this side may not inspect it
  std::vector<std::uint32_t> processes;
  std::uint32_t known_as = 0;  // the process id that its user knows it by; the owner tool does not trust it
  std::string folder;          // its working folder: file names may be relative to it
  std::uint32_t string_limit = 0;
  bool strict = false, force = false;
  plan::Tier tier = plan::Tier::automatic;
  plan::ReturnMode returns = plan::ReturnMode::automatic;
  spec::Style style = spec::Style::event;
  std::vector<Definition> definitions;  // without triggers
};

struct Refusal {
  Error error;
  bool come_back = false;  // the owner tool is about to release the target
};

// A record of the client's probe `index`, counted in the order of its definitions.
struct ClientRecord {
  std::uint32_t index = 0;
  trace::EventRecord record;  // `type` is the index; the payload is the message's
  std::string_view task;
};

// Whole messages. The first two functions frame what is put between them.
std::string begin_message(Word word);
std::string finish_message(std::string bytes);
std::string encode(const Hello& hello);
std::string encode_greeting(std::string_view pass);
std::string encode_leave();
std::string encode_admitted(const std::vector<std::string>& probes);
std::string encode(const Refusal& refusal);
void append_record(std::string& to, const ClientRecord& record);
std::size_t record_bytes(const ClientRecord& record);
// Calls `sink` for each of the whole messages that append_record has made.
void each_record(std::string_view messages, const std::function<void(const ClientRecord&)>& sink);
// The size of as many whole messages as fit into `most` bytes, plus one.
std::size_t some_messages(std::string_view messages, std::size_t most);
std::string encode(const Summary& summary);
std::string encode(ClientEnd end);

// The decoders take a message's body, and return nothing where its bytes are malformed.
std::optional<Hello> decode_hello(std::string_view bytes);
std::optional<std::string> decode_greeting(std::string_view bytes);
std::optional<std::vector<std::string>> decode_admitted(std::string_view bytes);
std::optional<Refusal> decode_refusal(std::string_view bytes);
std::optional<ClientRecord> decode_record(std::string_view bytes);
std::optional<Summary> decode_summary(std::string_view bytes);
std::optional<ClientEnd> decode_end(std::string_view bytes);

inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;
// From a client: its definitions, then that it leaves.
inline constexpr std::size_t kMostHelloBytes = std::size_t{1} << 20;

// Splits the bytes of a socket into messages. A message longer than the limit makes the cutter bad for good.
class MessageCutter {
 public:
  explicit MessageCutter(std::size_t most = kMostMessageBytes) : most_(most) {}
  struct Message {
    Word word;
    std::string_view bytes;  // valid until the next call
  };
  void add(std::string_view bytes);
  std::optional<Message> next();
  bool is_bad() const { return bad_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
  std::size_t most_;
  bool bad_ = false;
};

// Sends as much as the socket takes at once and returns the number of bytes; -1: the other side is gone.
ssize_t send_some(int socket, std::string_view bytes);
// Adds the bytes that are there to `to`. False: the other side is gone.
bool receive_some(int socket, MessageCutter& to);

}  // namespace uprobe
