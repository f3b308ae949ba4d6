// SPDX-License-Identifier: MIT
#include "engine/rings/http.h"

#include <algorithm>

namespace uprobe {
namespace {

constexpr std::string_view kVersion = "HTTP/1.";

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

// "GET /metrics?x HTTP/1.1", with "\r" perhaps.
HttpAnswer answer_to_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view method = take_word(line), target = take_word(line);
  if (!line.starts_with(kVersion) || line.size() != kVersion.size() + 1 || !target.starts_with('/'))
    return {.status = 400};
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head) return {.status = 405};
  const std::string_view path = target.substr(0, target.find('?'));
  return {.status = path == "/metrics" || path == "/" ? 200 : 404, .has_body = !is_head};
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Bad Request";
  }
}

}  // namespace

std::optional<HttpAnswer> answer_to(std::string_view bytes) {
  const bool is_whole = bytes.find("\n\r\n") != bytes.npos || bytes.find("\n\n") != bytes.npos;
  if (is_whole) return answer_to_line(bytes.substr(0, bytes.find('\n')));
  return bytes.size() > kMostHttpHead ? std::optional(HttpAnswer{.status = 400}) : std::nullopt;
}

// prometheus/docs, exposition formats: the type of the contents.
std::string http_bytes(const HttpAnswer& answer, std::string_view text) {
  const std::string reason(reason_of(answer.status));
  const std::string other = reason + "\n";
  const std::string_view body = answer.status == 200 ? text : std::string_view(other);
  std::string bytes = "HTTP/1.0 " + std::to_string(answer.status) + " " + reason + "\r\n";
  if (answer.status == 405) bytes += "Allow: GET, HEAD\r\n";
  bytes += std::string("Content-Type: text/plain") + (answer.status == 200 ? "; version=0.0.4; charset=utf-8" : "") +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (answer.has_body) bytes += body;
  return bytes;
}

}  // namespace uprobe
