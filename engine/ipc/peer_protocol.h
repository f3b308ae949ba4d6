// SPDX-License-Identifier: MIT
// What two tools on one target say to each other. The one that was first (the host) has the target: agent, rings, reader. Each
// further one (a client) does not touch it; it sends its definitions, the host adds them as events of that client's, and passes on
// their records as they are. The client prints them as if they were its own.
//
//   client -> host                                    host -> client
//                                                    greeting   the client's pass
//   hello      the host's pass, processes, options,  admitted   its probes, as the host has read them
//              definitions
//                                                    refused    the error; whether to come back when the host has gone
//                                                    record     ... as many as there are hits
//   leave      it wants no more
//                                                    summary    of its probes, when all records are sent
//                                                    ended      and why
//
// A stream socket in the folder of the host's user (socket_folder.h), named by the host's process id; each side takes from the kernel
// which process the other is, and by its pass whether it may look into that process (peer.h). Each message has its bytes' number and
// its kind in front. The processes may be of different users (root with --join): neither side believes a number of the other's. A
// client that closes the socket, or dies, has left.
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

// Layout, order and reply: engine/ipc/self_attach_protocol.h.
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

// Why no more comes.
enum class ClientEnd : std::uint32_t {
  left,       // the client has left
  processes,  // the processes have ended
  host,       // the host goes, and cannot leave the target to its clients
};

struct Hello {
  std::string pass;  // the other side's; empty: this side may not look into it
  std::vector<std::uint32_t> processes;
  std::uint32_t known_as = 0;  // the process id that its user knows it by; a host does not believe it
  std::string folder;          // where it works: names of files may be relative
  bool strict = false, force = false;
  plan::Tier tier = plan::Tier::automatic;
  plan::ReturnMode returns = plan::ReturnMode::automatic;
  spec::Style style = spec::Style::event;
  std::vector<Definition> definitions;  // without triggers
};

struct Refusal {
  Error error;
  bool come_back = false;  // the host is about to let the target go
};

// Of the client's probe `index`, in the order of its definitions.
struct ClientRecord {
  std::uint32_t index = 0;
  trace::EventRecord record;  // `type` is the index; the payload is the message's
  std::string_view task;
};

// Whole messages; the first two frame what is put between them.
std::string begin_message(Word word);
std::string finish_message(std::string bytes);
std::string encode(const Hello& hello);
std::string encode_greeting(std::string_view pass);
std::string encode_leave();
std::string encode_admitted(const std::vector<std::string>& probes);
std::string encode(const Refusal& refusal);
void append_record(std::string& to, const ClientRecord& record);
std::size_t record_bytes(const ClientRecord& record);
// Of whole messages that append_record has made.
void each_record(std::string_view messages, const std::function<void(const ClientRecord&)>& sink);
// How many bytes of them make whole ones, one more than fit into `most`.
std::size_t some_messages(std::string_view messages, std::size_t most);
std::string encode(const Summary& summary);
std::string encode(ClientEnd end);

// Of what is inside a message; nothing where the bytes make no sense.
std::optional<Hello> decode_hello(std::string_view bytes);
std::optional<std::string> decode_greeting(std::string_view bytes);
std::optional<std::vector<std::string>> decode_admitted(std::string_view bytes);
std::optional<Refusal> decode_refusal(std::string_view bytes);
std::optional<ClientRecord> decode_record(std::string_view bytes);
std::optional<Summary> decode_summary(std::string_view bytes);
std::optional<ClientEnd> decode_end(std::string_view bytes);

inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;
// From a client: definitions, then that it leaves.
inline constexpr std::size_t kMostHelloBytes = std::size_t{1} << 20;

// Cuts what comes out of a socket into messages. Bounded: a longer message is bad, for good.
class MessageCutter {
 public:
  explicit MessageCutter(std::size_t most = kMostMessageBytes) : most_(most) {}
  struct Message {
    Word word;
    std::string_view bytes;  // good until the next call
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

// All of it, or as far as it goes at once: how many bytes; -1: nobody is there any more.
ssize_t send_some(int socket, std::string_view bytes);
// What is there goes to `to`. False: nobody is there any more.
bool receive_some(int socket, MessageCutter& to);

}  // namespace uprobe
