// SPDX-License-Identifier: MIT
// Fuzzes requests to the socket of counts: a request that has its answer keeps it whatever follows, and no answer is longer than its
// text and a few lines.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rings/http.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto answer = answer_to(bytes);
  if (!answer && size > kMostHttpHead) std::abort();
  if (!answer) return 0;
  const auto later = answer_to(std::string(bytes) + "\r\n\r\nGET / HTTP/1.0\r\n\r\n");
  if (size <= kMostHttpHead && (!later || later->status != answer->status)) std::abort();
  if (http_bytes(*answer, "text").size() > 256) std::abort();
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", "HEAD /?a HTTP/1.0\n\n",
          "POST / HTTP/1.0\r\n\r\n", "GET /none HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\n"};
}
