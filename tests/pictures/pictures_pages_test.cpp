// SPDX-License-Identifier: MIT
// The formats that are one document: what they are made of. tests/e2e/pictures_test.py reads them as their users' programs do.
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "engine/pictures/counters.h"
#include "engine/pictures/deflate.h"
#include "engine/pictures/flamegraph.h"
#include "engine/pictures/html.h"
#include "engine/pictures/pprof.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

std::string inflated(const std::string& bytes, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(::inflateInit2(&stream, window_bits), Z_OK);
  std::string out(std::size_t{4} << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::inflateEnd(&stream);
  return out;
}

std::string bytes_of_base64(const std::string& text) {
  std::string bytes;
  std::uint32_t word = 0;
  int bits = 0;
  for (const char letter : text) {
    const std::size_t digit =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(letter);
    if (digit == std::string_view::npos) break;
    word = word << 6 | static_cast<std::uint32_t>(digit), bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(word >> bits & 0xff);
  }
  return bytes;
}

TEST(Deflate, GivesBackWhatWasAdded) {
  Deflater deflater(Deflater::Form::gzip);
  std::string all;
  for (int i = 0; i < 100'000; ++i) {
    const std::string some = std::to_string(i * 7919 % 1000) + " ";
    deflater.add(some);
    all += some;
  }
  deflater.end();
  EXPECT_LT(deflater.bytes().size(), all.size() / 2);
  EXPECT_EQ(inflated(deflater.bytes(), 15 + 16), all);
  EXPECT_EQ(inflated(compressed("", Deflater::Form::raw), -15), "");
}

TEST(Columns, AreNumbersOfVariableLength) {
  Column column;
  column.add(std::uint64_t{300}), column.add_signed(-1), column.add_signed(1), column.add_bytes("x");
  EXPECT_EQ(inflated(bytes_of_base64(column.finish()), -15), "\xac\x02\x01\x02x");
}

TEST(FlameGraph, NamesAreNoMarkup) {
  Buffer out;
  add_xml_text(out, "</script><b a=\"'&\"\x01\xff\xef\xbf\xbf");
  EXPECT_EQ(out.view(), "&lt;/script&gt;&lt;b a=&quot;&#39;&amp;&quot;\\x01\\xff\\ufffe");
}

TEST(FlameGraph, NarrowFramesAreCountedTogether) {
  FlameGraphFormatter formatter({});
  for (int i = 0; i < 9000; ++i) formatter.add(Record("e" + std::to_string(i)).layout);
  Record record;
  Buffer out;
  for (int i = 0; i < 9000; ++i) {
    trace::EventRecord event = record.event();
    event.type = static_cast<std::uint16_t>(i);
    formatter.append(event, "zsh", out);
    if (i == 0)
      for (int k = 0; k < 20'000; ++k) formatter.append(event, "zsh", out);
  }
  formatter.end({}, out);
  const std::string_view text = out.view();
  EXPECT_NE(text.find("data-hits=\"29000\""), std::string_view::npos);
  EXPECT_NE(text.find("<title>e0: 20001 hits, 68.96%</title>"), std::string_view::npos);
  EXPECT_NE(text.find("<title>[8999 narrow frames]: 8999 hits, 31.03%</title>"), std::string_view::npos);
}

TEST(FlameGraph, WithoutHitsItIsOneFrame) {
  FlameGraphFormatter formatter({});
  Buffer out;
  formatter.end({{{.name = "g/<e>", .lost = 2}}}, out);
  EXPECT_NE(out.view().find("<title>all: 0 hits, 0.00%</title>"), std::string_view::npos);
  EXPECT_NE(out.view().find("<desc>g/&lt;e&gt;: 2 hits lost, 0 returns missed</desc>"), std::string_view::npos);
}

TEST(Pprof, IsCompressedAndHasItsNames) {
  Record entry("f"), back("f_back", true);
  entry.layout.function = back.layout.function = "/prog:0x1136";
  PprofFormatter formatter({});
  formatter.add(entry.layout), formatter.add(back.layout);
  Buffer out;
  formatter.append(entry.event(1'000), "zsh", out);
  trace::EventRecord returned = back.event(3'000);
  returned.type = 1;
  formatter.append(returned, "zsh", out);
  EXPECT_EQ(out.size(), 0u);
  formatter.end({}, out);
  const std::string profile = inflated(std::string(out.view()), 15 + 16);
  for (const std::string text : {"hits", "time", "nanoseconds", "zsh", "task"})
    EXPECT_NE(profile.find(text), std::string::npos) << text;
  EXPECT_NE(profile.find(std::string("\x12\x03\x01\xd0\x0f", 5)), std::string::npos) << "one hit, 2,000 ns";
}

// Reads a message of protobuf, as far as profiles need it.
class Message {
 public:
  explicit Message(std::string_view message) : left_(message) {}
  // The next field: its number, and its bytes where it has some. False: there is none.
  bool next() {
    if (left_.empty()) return false;
    const std::uint64_t key = varint();
    field = key >> 3;
    if ((key & 7) == 0) return number = varint(), true;
    const std::uint64_t size = varint();
    bytes = left_.substr(0, size);
    left_.remove_prefix(bytes.size());
    return true;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; !left_.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(left_.front());
      left_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }

  std::uint64_t field = 0, number = 0;
  std::string_view bytes;

 private:
  std::string_view left_;
};

std::uint64_t hits_in(std::string_view profile) {
  constexpr std::uint64_t kSample = 2, kValues = 2;
  std::uint64_t hits = 0;
  for (Message all(profile); all.next();) {
    if (all.field != kSample) continue;
    for (Message sample(all.bytes); sample.next();)
      if (sample.field == kValues) hits += Message(sample.bytes).varint();
  }
  return hits;
}

// Deeper than calls are kept.
TEST(Pprof, ACallIsOneHit) {
  Record entry("f"), back("f_back", true);
  entry.layout.function = back.layout.function = "/prog:0x1136";
  PprofFormatter formatter({});
  formatter.add(entry.layout), formatter.add(back.layout);
  Buffer out;
  constexpr std::uint64_t kCalls = 1030;
  for (std::uint64_t i = 0; i < kCalls; ++i) formatter.append(entry.event(1'000), "zsh", out);
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    trace::EventRecord returned = back.event(1'000);
    returned.type = 1;
    formatter.append(returned, "zsh", out);
  }
  formatter.end({}, out);
  EXPECT_EQ(hits_in(inflated(std::string(out.view()), 15 + 16)), kCalls);
}

TEST(Html, HoldsNoTextOfTheProgram) {
  Record record("</script>");
  record.text("s", "<img src=x>");
  HtmlFormatter formatter({});
  formatter.add(record.layout);
  Buffer out;
  formatter.append(record.event(), "<b>", out);
  formatter.end({}, out);
  const std::string_view text = out.view();
  EXPECT_EQ(text.find("<img"), std::string_view::npos);
  EXPECT_EQ(text.find("<b>"), std::string_view::npos);
  EXPECT_NE(text.find("&lt;/script&gt;"), std::string_view::npos) << "in the flame graph";
}

TEST(Counters, AreNumericFields) {
  Record record("alloc");
  record.field("size", Kind::unsigned_decimal, 1u).text("name", "x");
  const std::vector<program::EventLayout> layouts = {record.layout};
  EXPECT_TRUE(check_counters({"alloc:size", "uprobes/alloc:size"}, layouts));
  EXPECT_EQ(check_counters({"free:size"}, layouts).error().text, "there is no event 'free'");
  EXPECT_EQ(check_counters({"alloc:name"}, layouts).error().text, "the event has no field 'name' that is a number");
  for (const char* text : {"", ":", "a", "a:", ":b"}) EXPECT_FALSE(parse_counter(text)) << text;
  EXPECT_EQ(parse_counter("g/e:f")->event, "g/e");
}

}  // namespace
}  // namespace uprobe::format
