// SPDX-License-Identifier: MIT
// What the server hands out, to whom, and what hostile readers get.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/ipc/peer.h"
#include "engine/rings/ring_abi.h"
#include "engine/rings/ring_server.h"
#include "tests/trace/ring_writer.h"

namespace uprobe::test {
namespace {

namespace fs = std::filesystem;

struct Message {
  std::uint32_t kind = 0;  // 0: the connection has ended
  std::string bytes;
  Fd file;
};

class Connected {
 public:
  explicit Connected(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  template <class T>
  bool say(const T& message) {
    return ::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
  }

  void greet(const std::string& pass = own_pass(), std::uint32_t version = UPROBE_RING_VERSION) {
    uprobe_ring_greeting greeting{.head = {.kind = UPROBE_RING_GREETING, .bytes = sizeof greeting},
                                  .magic = UPROBE_RING_MAGIC,
                                  .version = version,
                                  .pass = {}};
    std::memcpy(greeting.pass, pass.data(), std::min(pass.size(), sizeof greeting.pass));
    say(greeting);
  }

  void wake_at(std::uint32_t fill) {
    say(uprobe_ring_wake_at{
        .head = {.kind = UPROBE_RING_WAKE_AT, .bytes = sizeof(uprobe_ring_wake_at)}, .fill = fill, .reserved = 0});
  }

  Message hear() {
    char bytes[UPROBE_RING_MOST_MESSAGE];
    alignas(cmsghdr) char rights[CMSG_SPACE(sizeof(int))];
    iovec place{.iov_base = bytes, .iov_len = sizeof bytes};
    msghdr whole{};
    whole.msg_iov = &place, whole.msg_iovlen = 1, whole.msg_control = rights, whole.msg_controllen = sizeof rights;
    const ssize_t got = ::recvmsg(socket_.get(), &whole, MSG_CMSG_CLOEXEC);
    if (got < static_cast<ssize_t>(sizeof(uprobe_ring_message))) return {};
    Message message{.kind = 0, .bytes = std::string(bytes, static_cast<std::size_t>(got)), .file = {}};
    std::memcpy(&message.kind, bytes, sizeof message.kind);
    if (const cmsghdr* const first = CMSG_FIRSTHDR(&whole)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(first), sizeof file);
      message.file = Fd(file);
    }
    return message;
  }

  Message hear(std::uint32_t kind) {
    for (;;)
      if (Message message = hear(); message.kind == kind || message.kind == 0) return message;
  }

  bool is_silent() {
    pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&wait, 1, 0) == 0;
  }

  static std::string own_pass() {
    Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    return pass_of(Peer{.pid = ::getpid(), .uid = ::geteuid(), .handle = std::move(handle)});
  }

 private:
  Fd socket_;
};

class RingServerTest : public ::testing::Test {
 protected:
  RingServerTest() : area_(make_area(2, 16384, {make_program(24)})) {
    char name[] = "/tmp/uprobe-rings.XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/socket";
    server_.emplace(rings::RingServer::open(path_).take());
    server_->serve(area_, 1, [this](std::uint32_t number) { return layout_of(number); });
  }
  ~RingServerTest() override {
    server_.reset();
    fs::remove_all(folder_);
  }

  std::optional<program::EventLayout> layout_of(std::uint32_t number) const {
    if (number >= events_) return std::nullopt;
    program::EventLayout layout;
    layout.event = "e" + std::to_string(number);
    layout.fixed_bytes = 24;
    layout.fields = {{.name = number == 1 ? std::string(9000, 'n') : "value", .offset = 16}};
    return layout;
  }

  // A reader that has got all that there is.
  void admit(Connected& reader) {
    reader.greet();
    ASSERT_EQ(reader.hear(UPROBE_RING_EVENT).kind, UPROBE_RING_EVENT);
  }

  void record(std::uint32_t ring, std::uint64_t number) {
    ASSERT_TRUE(RingWriter(area_, ring).write(number, make_payload(0, 1u, number)));
  }

  Area area_;
  std::atomic<std::uint32_t> events_ = 1;
  std::string folder_, path_;
  std::optional<rings::RingServer> server_;
};

TEST_F(RingServerTest, HandsOutSessionPartsAndEvents) {
  record(1, 5);
  Connected reader(path_);
  reader.greet();
  const Message first = reader.hear();
  ASSERT_EQ(first.kind, UPROBE_RING_SESSION);
  ASSERT_EQ(first.bytes.size(), sizeof(uprobe_ring_session));
  uprobe_ring_session session;
  std::memcpy(&session, first.bytes.data(), sizeof session);
  EXPECT_EQ(session.version, UPROBE_RING_VERSION);
  EXPECT_EQ(session.ring_count, 2u);
  EXPECT_EQ(session.ring_bytes, 16384u);
  const Message part = reader.hear();
  ASSERT_EQ(part.kind, UPROBE_RING_PART);
  ASSERT_TRUE(part.file);
  void* const memory = ::mmap(nullptr, session.file_bytes, PROT_READ, MAP_SHARED, part.file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  uprobe_ring_reader ring;
  ASSERT_EQ(uprobe_ring_begin(&ring, memory, &session, 1), 1);
  std::vector<std::uint8_t> copy(session.record_most);
  EXPECT_EQ(uprobe_ring_take(&ring, copy.data(), copy.size()), 48u);
  ::munmap(memory, session.file_bytes);
  const Message event = reader.hear();
  ASSERT_EQ(event.kind, UPROBE_RING_EVENT);
  EXPECT_EQ(event.bytes.substr(sizeof(uprobe_ring_event), 14), "name: e0\nID: 0");
}

// What can be done with the descriptor, without a new one.
TEST_F(RingServerTest, HandsOutDescriptorsForReadingAlone) {
  Connected reader(path_);
  reader.greet();
  const Message part = reader.hear(UPROBE_RING_PART);
  ASSERT_TRUE(part.file);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, part.file.get(), 0), MAP_FAILED);
  EXPECT_EQ(::write(part.file.get(), "x", 1), -1);
  EXPECT_EQ(::ftruncate(part.file.get(), 0), -1);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, part.file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(::mprotect(memory, 4096, PROT_READ | PROT_WRITE), -1);
  ::munmap(memory, 4096);
}

TEST_F(RingServerTest, TellsOfLaterPartsAndEvents) {
  Connected reader(path_);
  admit(reader);
  ASSERT_TRUE(area_.add_live());
  const Message part = reader.hear(UPROBE_RING_PART);
  EXPECT_TRUE(part.file);
  events_ = 2;
  std::string text;
  do {
    const Message piece = reader.hear(UPROBE_RING_EVENT);
    ASSERT_EQ(piece.kind, UPROBE_RING_EVENT);
    ASSERT_LE(piece.bytes.size(), UPROBE_RING_MOST_MESSAGE);
    text += piece.bytes.substr(sizeof(uprobe_ring_event));
  } while (!text.ends_with("\n"));
  EXPECT_GT(text.size(), UPROBE_RING_MOST_MESSAGE);
}

TEST_F(RingServerTest, WakesOnceForEachWish) {
  Connected reader(path_);
  admit(reader);
  reader.wake_at(48);
  record(0, 1);
  while (reader.is_silent()) server_->tell_turn(), ::usleep(1000);
  EXPECT_EQ(reader.hear().kind, UPROBE_RING_FILLED);
  record(0, 2);
  for (int turns = 0; turns < 50; ++turns) server_->tell_turn(), ::usleep(1000);
  EXPECT_TRUE(reader.is_silent());
  reader.wake_at(48);  // for what came since it was woken
  while (reader.is_silent()) server_->tell_turn(), ::usleep(1000);
  EXPECT_EQ(reader.hear().kind, UPROBE_RING_FILLED);
}

TEST_F(RingServerTest, TellsOfTheEndAndRemovesTheSocket) {
  Connected reader(path_);
  admit(reader);
  server_.reset();
  EXPECT_EQ(reader.hear().kind, UPROBE_RING_END);
  EXPECT_EQ(reader.hear().kind, 0u);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(RingServerTest, GivesNothingWithoutThePass) {
  for (const std::string& pass : {std::string(), std::string(32, '0'), Connected::own_pass().substr(0, 31)}) {
    Connected reader(path_);
    reader.greet(pass);
    const Message answer = reader.hear();
    EXPECT_EQ(answer.kind, UPROBE_RING_REFUSED);
    EXPECT_FALSE(answer.file);
    EXPECT_EQ(reader.hear().kind, 0u);
  }
}

TEST_F(RingServerTest, RefusesAnotherVersionAndGarbage) {
  Connected other(path_);
  other.greet(Connected::own_pass(), UPROBE_RING_VERSION + 1);
  EXPECT_EQ(other.hear().kind, UPROBE_RING_REFUSED);
  Connected noise(path_);
  noise.say(std::array<char, 4000>{});
  EXPECT_EQ(noise.hear().kind, UPROBE_RING_REFUSED);
  Connected reader(path_);
  admit(reader);
  reader.say(std::array<char, 16>{});  // no message of a reader
  EXPECT_EQ(reader.hear(UPROBE_RING_END).kind, 0u);
}

TEST_F(RingServerTest, EndsAReaderThatAsksTwice) {
  Connected reader(path_);
  admit(reader);
  reader.wake_at(1 << 20);
  reader.wake_at(1 << 20);
  EXPECT_EQ(reader.hear().kind, 0u);
}

TEST_F(RingServerTest, MakesRoomForAReaderAmongSilentOnes) {
  std::vector<Connected> silent;
  silent.reserve(3 * rings::kMostReaders);
  for (std::size_t i = 0; i < silent.capacity(); ++i) silent.emplace_back(path_);
  Connected reader(path_);
  admit(reader);
}

TEST_F(RingServerTest, RefusesAReaderTooMany) {
  std::vector<Connected> readers;
  readers.reserve(rings::kMostReaders);
  for (std::size_t i = 0; i < rings::kMostReaders; ++i) admit(readers.emplace_back(path_));
  Connected late(path_);
  const Message answer = late.hear();
  EXPECT_EQ(answer.kind, UPROBE_RING_REFUSED);
  EXPECT_NE(answer.bytes.find("as many readers"), std::string::npos);
  readers.pop_back();
  for (Message next; next.kind != UPROBE_RING_SESSION;) {
    Connected again(path_);
    again.greet();
    next = again.hear();
  }
}

// Nothing of it is kept for the reader: the tool's memory and its other readers do not notice.
TEST_F(RingServerTest, WaitsForNoReaderThatNeverReads) {
  events_ = 20'000;
  Connected deaf(path_);
  deaf.greet();
  Connected reader(path_);
  admit(reader);
  server_.reset();  // does not wait for it either
}

}  // namespace
}  // namespace uprobe::test
