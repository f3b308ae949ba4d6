// SPDX-License-Identifier: MIT
#include "engine/ipc/peer_protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "engine/ipc/message.h"

namespace uprobe {
namespace {

// Changes with every change of the messages.
constexpr std::uint32_t kPeerVersion = 0x55500005;
constexpr std::size_t kHeadBytes = 8;

// The count comes from outside, so nothing is reserved for it.
template <class T, class Take>
std::vector<T> take_list(Parser& from, Take take) {
  std::vector<T> list;
  for (std::uint32_t left = from.number(); left != 0 && from.good(); --left) list.push_back(take());
  return list;
}

std::vector<std::string> take_texts(Parser& from) {
  return take_list<std::string>(from, [&] { return from.text(); });
}

void put_texts(std::string& to, const std::vector<std::string>& texts) {
  put(to, static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) put(to, std::string_view(text));
}

Definition take_definition(Parser& from) {
  Definition definition{.text = from.text(), .default_object = from.text()};
  const bool has_filter = from.number() != 0;
  std::string filter = from.text();
  if (has_filter) definition.filter = std::move(filter);
  return definition;
}

void put_definition(std::string& to, const Definition& definition) {
  put(to, std::string_view(definition.text));
  put(to, std::string_view(definition.default_object));
  put(to, definition.filter ? 1U : 0U);
  put(to, std::string_view(definition.filter ? *definition.filter : std::string()));
}

template <class Probe, class Each>
void each_count(Probe& probe, Each each) {
  for (auto* count :
       {&probe.hits, &probe.recorded, &probe.filtered, &probe.disabled, &probe.lost_full, &probe.lost_too_big,
        &probe.lost_busy, &probe.lost_to_reader_lag, &probe.missed, &probe.not_changed})
    each(*count);
}

template <class Probe, class Each>
void each_text(Probe& probe, Each each) {
  for (auto* text : {&probe.name, &probe.place, &probe.hint, &probe.against}) each(*text);
}

ProbeSummary take_probe(Parser& from) {
  ProbeSummary probe;
  each_text(probe, [&](std::string& text) { text = from.text(); });
  each_count(probe, [&](std::uint64_t& count) { count = from.long_number(); });
  return probe;
}

template <class T>
std::optional<T> whole(const Parser& parser, T value) {
  return parser.is_done() ? std::optional<T>(std::move(value)) : std::nullopt;
}

std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::string begin_message(Word word) {
  std::string bytes(sizeof(std::uint32_t), '\0');
  put(bytes, static_cast<std::uint32_t>(word));
  return bytes;
}

std::string finish_message(std::string bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size() - kHeadBytes);
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes;
}

std::string encode(const Hello& hello) {
  std::string bytes = begin_message(Word::hello);
  put(bytes, kPeerVersion);
  put(bytes, std::string_view(hello.pass));
  put(bytes, static_cast<std::uint32_t>(hello.processes.size()));
  for (const std::uint32_t pid : hello.processes) put(bytes, pid);
  put(bytes, hello.known_as);
  put(bytes, std::string_view(hello.folder));
  put(bytes, hello.string_limit);
  for (const bool option : {hello.strict, hello.force}) put(bytes, option ? 1U : 0U);
  put(bytes, static_cast<std::uint32_t>(hello.tier));
  put(bytes, static_cast<std::uint32_t>(hello.returns));
  put(bytes, static_cast<std::uint32_t>(hello.style));
  put(bytes, static_cast<std::uint32_t>(hello.definitions.size()));
  for (const Definition& definition : hello.definitions) put_definition(bytes, definition);
  return finish_message(std::move(bytes));
}

std::optional<Hello> decode_hello(std::string_view bytes) {
  Parser parser(bytes);
  Hello hello;
  if (parser.number() != kPeerVersion) return std::nullopt;
  hello.pass = parser.text();
  hello.processes = take_list<std::uint32_t>(parser, [&] { return parser.number(); });
  hello.known_as = parser.number();
  hello.folder = parser.text();
  hello.string_limit = parser.number();
  for (bool* option : {&hello.strict, &hello.force}) *option = parser.number() != 0;
  hello.tier = parser.kind(plan::Tier::jump);
  hello.returns = parser.kind(plan::ReturnMode::exits);
  hello.style = parser.kind(spec::Style::function);
  hello.definitions = take_list<Definition>(parser, [&] { return take_definition(parser); });
  return whole(parser, std::move(hello));
}

std::string encode_greeting(std::string_view pass) {
  std::string bytes = begin_message(Word::greeting);
  put(bytes, kPeerVersion);
  put(bytes, pass);
  return finish_message(std::move(bytes));
}

std::optional<std::string> decode_greeting(std::string_view bytes) {
  Parser parser(bytes);
  if (parser.number() != kPeerVersion) return std::nullopt;
  std::string pass = parser.text();
  return whole(parser, std::move(pass));
}

std::string encode_leave() { return finish_message(begin_message(Word::leave)); }

std::string encode_admitted(const std::vector<std::string>& probes) {
  std::string bytes = begin_message(Word::admitted);
  put_texts(bytes, probes);
  return finish_message(std::move(bytes));
}

std::optional<std::vector<std::string>> decode_admitted(std::string_view bytes) {
  Parser parser(bytes);
  auto probes = take_texts(parser);
  return whole(parser, std::move(probes));
}

std::string encode(const Refusal& refusal) {
  std::string bytes = begin_message(Word::refused);
  put(bytes, refusal.error);
  put(bytes, refusal.come_back ? 1U : 0U);
  return finish_message(std::move(bytes));
}

std::optional<Refusal> decode_refusal(std::string_view bytes) {
  Parser parser(bytes);
  Refusal refusal{.error = take_error(parser)};
  refusal.come_back = parser.number() != 0;
  return whole(parser, std::move(refusal));
}

std::size_t record_bytes(const ClientRecord& record) {
  return kHeadBytes + 4 + 8 + 4 + 4 + 4 + 4 + record.task.size() + 4 + record.record.payload.size() + 4 +
         record.record.stack.size();
}

void append_record(std::string& to, const ClientRecord& record) {
  const trace::EventRecord& r = record.record;
  put(to, static_cast<std::uint32_t>(record_bytes(record) - kHeadBytes));
  put(to, static_cast<std::uint32_t>(Word::record));
  put(to, record.index);
  put_long(to, r.ns);
  put(to, r.tid);
  put(to, r.pid);
  put(to, static_cast<std::uint32_t>(r.cpu) | static_cast<std::uint32_t>(r.flags) << 16);
  put(to, record.task);
  put(to, as_text(r.payload));
  put(to, as_text(r.stack));
}

std::optional<ClientRecord> decode_record(std::string_view bytes) {
  Parser parser(bytes);
  ClientRecord got{.index = parser.number(), .record = {}, .task = {}};
  got.record.ns = parser.long_number();
  got.record.tid = parser.number();
  got.record.pid = parser.number();
  const std::uint32_t both = parser.number();
  got.record.cpu = static_cast<std::uint16_t>(both), got.record.flags = static_cast<std::uint16_t>(both >> 16);
  got.record.type = static_cast<std::uint16_t>(got.index);
  got.task = parser.view();
  got.record.payload = as_bytes(parser.view());
  got.record.stack = as_bytes(parser.view());
  if (got.index > UINT16_MAX || got.record.stack.size() % sizeof(std::uint64_t) != 0) return std::nullopt;
  return whole(parser, got);
}

void each_record(std::string_view messages, const std::function<void(const ClientRecord&)>& sink) {
  while (messages.size() >= kHeadBytes) {
    const std::uint32_t size = Parser(messages).number();
    if (const auto record = decode_record(messages.substr(kHeadBytes, size))) sink(*record);
    messages.remove_prefix(kHeadBytes + size);
  }
}

std::size_t some_messages(std::string_view messages, std::size_t most) {
  std::size_t end = 0;
  while (end < messages.size() && end <= most) end += kHeadBytes + Parser(messages.substr(end)).number();
  return end;
}

std::string encode(const Summary& summary) {
  std::string bytes = begin_message(Word::summary);
  put(bytes, static_cast<std::uint32_t>(summary.probes.size()));
  for (const ProbeSummary& probe : summary.probes) {
    each_text(probe, [&](const std::string& text) { put(bytes, std::string_view(text)); });
    each_count(probe, [&](const std::uint64_t& count) { put_long(bytes, count); });
  }
  put(bytes, static_cast<std::uint32_t>(summary.tier));
  for (const std::uint64_t count : {summary.jumps, summary.breakpoints, summary.mail_timeouts}) put_long(bytes, count);
  put_texts(bytes, summary.notes);
  return finish_message(std::move(bytes));
}

std::optional<Summary> decode_summary(std::string_view bytes) {
  Parser parser(bytes);
  Summary summary;
  summary.probes = take_list<ProbeSummary>(parser, [&] { return take_probe(parser); });
  summary.tier = parser.kind(plan::Tier::jump);
  for (std::uint64_t* count : {&summary.jumps, &summary.breakpoints, &summary.mail_timeouts})
    *count = parser.long_number();
  summary.notes = take_texts(parser);
  return whole(parser, std::move(summary));
}

std::string encode(ClientEnd end) {
  std::string bytes = begin_message(Word::ended);
  put(bytes, static_cast<std::uint32_t>(end));
  return finish_message(std::move(bytes));
}

std::optional<ClientEnd> decode_end(std::string_view bytes) {
  Parser parser(bytes);
  const auto end = parser.kind(ClientEnd::owner);
  return whole(parser, end);
}

void MessageCutter::add(std::string_view bytes) {
  if (at_ != 0) bytes_.erase(0, std::exchange(at_, 0));
  bytes_.append(bytes);
}

std::optional<MessageCutter::Message> MessageCutter::next() {
  Parser head(std::string_view(bytes_).substr(at_));
  const std::uint32_t size = head.number(), word = head.number();
  if (bad_ || !head.good()) return std::nullopt;
  bad_ = size > most_ || word < static_cast<std::uint32_t>(Word::hello) ||
         word > static_cast<std::uint32_t>(Word::greeting);
  if (bad_ || bytes_.size() - at_ - kHeadBytes < size) return std::nullopt;
  const Message message{static_cast<Word>(word), std::string_view(bytes_).substr(at_ + kHeadBytes, size)};
  at_ += kHeadBytes + size;
  return message;
}

ssize_t send_some(int socket, std::string_view bytes) {
  const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

bool receive_some(int socket, MessageCutter& to) {
  char part[65536];
  const ssize_t got = ::recv(socket, part, sizeof part, MSG_DONTWAIT);
  if (got > 0) to.add({part, static_cast<std::size_t>(got)});
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace uprobe
