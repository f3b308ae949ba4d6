// SPDX-License-Identifier: MIT
// Giving out a text over a socket: what each request gets, and that clients which do not behave cost the others nothing.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "engine/rings/http.h"
#include "engine/rings/text_server.h"

namespace uprobe::test {
namespace {

int status_of(std::string_view request) {
  const auto answer = answer_to(request);
  return answer ? answer->status : 0;
}

TEST(Http, ARequestEndsWithAnEmptyLine) {
  EXPECT_EQ(status_of(""), 0);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nHost: x\r\n"), 0);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.0\n\n"), 200);
  EXPECT_EQ(status_of("GET /metrics?a=b HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(status_of(std::string(kMostHttpHead, 'x')), 0);
  EXPECT_EQ(status_of(std::string(kMostHttpHead + 1, 'x')), 400);
}

TEST(Http, WhatIsNotThereOrNotAllowedOrNotHttp) {
  EXPECT_EQ(status_of("GET /other HTTP/1.0\r\n\r\n"), 404);
  EXPECT_EQ(status_of("POST /metrics HTTP/1.0\r\n\r\n"), 405);
  for (const char* const line : {"", "GET", "GET /", "GET / HTTP/2.0", "GET / HTTP/1.", "GET metrics HTTP/1.0",
                                 "GET  / HTTP/1.0", "GET / HTTP/1.0 x"})
    EXPECT_EQ(status_of(std::string(line) + "\r\n\r\n"), 400) << line;
}

TEST(Http, Answers) {
  EXPECT_EQ(http_bytes({}, "a 1\n"),
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n"
            "Connection: close\r\n\r\na 1\n");
  EXPECT_TRUE(http_bytes({.has_body = false}, "a 1\n").ends_with("Content-Length: 4\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(http_bytes({.status = 404}, "a 1\n").ends_with("\r\n\r\nNot Found\n"));
  EXPECT_NE(http_bytes({.status = 405}, "").find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
}

class TextServerTest : public ::testing::Test {
 protected:
  TextServerTest() {
    char name[] = "/tmp/uprobe-text.XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/socket";
  }
  ~TextServerTest() override { std::filesystem::remove_all(folder_); }

  Fd client(const std::string& request) const {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    return socket;
  }
  static std::string rest_of(const Fd& socket) {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(socket.get(), part, sizeof part, 0)) > 0;)
      all.append(part, static_cast<std::size_t>(got));
    return all;
  }
  std::string asked() const { return rest_of(client("GET /metrics HTTP/1.0\r\n\r\n")); }

  std::string folder_, path_;
};

TEST_F(TextServerTest, AClientGetsATextThatIsMadeForIt) {
  auto server = TextServer::open(path_, "old\n");
  ASSERT_TRUE(server) << server.error().text;
  server->serve();
  EXPECT_FALSE(server->is_wanted());
  const Fd socket = client("GET /metrics HTTP/1.0\r\n\r\n");
  while (!server->is_wanted()) std::this_thread::yield();
  server->put("new\n");
  EXPECT_TRUE(rest_of(socket).ends_with("\r\n\r\nnew\n"));
  EXPECT_FALSE(server->is_wanted());
}

TEST_F(TextServerTest, IsServedTheLastTextWhereNoneIsMade) {
  auto server = TextServer::open(path_, "old\n");
  ASSERT_TRUE(server);
  server->serve();
  EXPECT_TRUE(asked().ends_with("\r\n\r\nold\n"));
  EXPECT_TRUE(rest_of(client("PUT / HTTP/1.0\r\n\r\n")).starts_with("HTTP/1.0 405 "));
}

TEST_F(TextServerTest, OthersAreServedBesideSilentClients) {
  auto server = TextServer::open(path_, "old\n");
  ASSERT_TRUE(server);
  server->serve();
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < 3 * kMostScrapers; ++i) silent.push_back(client(i % 2 == 0 ? "" : "GET /met"));
  server->put(std::string(std::size_t{4} << 20, 'x'));
  const Fd deaf = client("GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_GT(asked().size(), std::size_t{4} << 20);
}

TEST_F(TextServerTest, ClientsThatAreThereAtTheEndGetTheLastText) {
  Fd socket;
  {
    auto server = TextServer::open(path_, "old\n");
    ASSERT_TRUE(server);
    server->serve();
    socket = client("GET /metrics HTTP/1.0\r\n\r\n");
    while (!server->is_wanted()) std::this_thread::yield();
    server->put("last\n");
  }
  EXPECT_TRUE(rest_of(socket).ends_with("\r\n\r\nlast\n"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace uprobe::test
