// SPDX-License-Identifier: MIT
// The little of HTTP/1.0 that it takes to give out one text: `GET /metrics`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace uprobe {

inline constexpr std::size_t kMostHttpHead = 8192;  // bytes of a request

// What a request gets.
struct HttpAnswer {
  int status = 200;  // 400 malformed, or longer than that; 404 another path; 405 another method
  bool has_body = true;
};

// `bytes`: what a client has sent so far, which is hostile input. Nothing: it goes on. Lines after the first one have no meaning.
std::optional<HttpAnswer> answer_to(std::string_view bytes);

// The whole answer. `text`: in Prometheus's text exposition format; goes with status 200 alone.
std::string http_bytes(const HttpAnswer& answer, std::string_view text);

}  // namespace uprobe
