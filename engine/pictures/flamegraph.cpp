// SPDX-License-Identifier: MIT
#include "engine/pictures/flamegraph.h"

#include <algorithm>
#include <map>
#include <memory>

#include "engine/output/escape.h"
#include "engine/output/values.h"
#include "engine/pictures/page_files.h"

namespace uprobe::format {

namespace {

constexpr std::uint64_t kWidth = 1200, kRow = 16, kTop = 32, kFoot = 8, kMostParts = 8000;  // pixels; narrowest share
constexpr std::size_t kMostDepth = 160, kLetterPixels = 7;

struct Frame {
  std::uint64_t hits = 0;
  std::map<std::string_view, std::unique_ptr<Frame>> inside;
};

// The texts of the stacks must outlive it.
Frame tree_of(const StackCounts& stacks) {
  Frame root;
  for (const auto& [stack, hits] : stacks.sorted()) {
    Frame* at = &root;
    at->hits += hits;
    std::string_view rest = stack;
    for (std::size_t depth = 1; depth < kMostDepth; ++depth) {
      const std::size_t end = rest.find(';');
      auto& next = at->inside[rest.substr(0, end)];
      if (next == nullptr) next = std::make_unique<Frame>();
      at = next.get();
      at->hits += hits;
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }
  return root;
}

std::size_t depth_of(const Frame& frame) {
  std::size_t depth = 0;
  for (const auto& [name, inside] : frame.inside) depth = std::max(depth, depth_of(*inside));
  return depth + 1;
}

// A warm colour that depends on the name alone.
std::string colour_of(std::string_view name) {
  std::uint32_t sum = 2166136261;
  for (const char one : name) sum = (sum ^ static_cast<unsigned char>(one)) * 16777619;
  return "hsl(" + std::to_string(10 + sum % 45) + "," + std::to_string(70 + sum / 64 % 25) + "%," +
         std::to_string(60 + sum / 4096 % 15) + "%)";
}

class Drawing {
 public:
  Drawing(const Frame& root, Buffer& out) : root_(root), height_(kTop + kFoot + kRow * depth_of(root)), out_(out) {}

  void draw() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" width=\"", kWidth, "\" height=\"", height_);
    put("\" viewBox=\"0 0 ", kWidth, " ", height_, "\" font-family=\"monospace\" font-size=\"11\" data-hits=\"");
    put(root_.hits, "\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fcfcf7\"/>\n");
    put("<text class=\"reset\" x=\"8\" y=\"18\" cursor=\"pointer\">reset zoom</text>\n");
    put("<text class=\"search\" x=\"", kWidth - 120, "\" y=\"18\" cursor=\"pointer\">search</text>\n");
    put("<text class=\"found\" x=\"", kWidth / 2 - 150, "\" y=\"18\"> </text>\n");
    draw("all", root_, 0, 0);
    put("</svg>\n");
  }

 private:
  void put() {}
  template <class... Rest>
  void put(std::uint64_t number, const Rest&... rest) {
    add_decimal(out_, number);
    put(rest...);
  }
  template <class... Rest>
  void put(std::string_view text, const Rest&... rest) {
    out_.add(text);
    put(rest...);
  }

  // A hundredth of a pixel.
  void put_pixels(std::uint64_t hits) {
    const auto hundredths = static_cast<std::uint64_t>(static_cast<double>(hits) * kWidth * 100 / total());
    put(hundredths / 100, ".", hundredths / 10 % 10, hundredths % 10);
  }
  double total() const { return static_cast<double>(std::max<std::uint64_t>(root_.hits, 1)); }

  void draw_one(std::string_view name, std::uint64_t hits, std::uint64_t begin, std::size_t depth) {
    const std::uint64_t y = height_ - kFoot - kRow * (depth + 1);
    put("<g class=\"frame\" data-begin=\"", begin, "\" data-hits=\"", hits, "\"><title>");
    add_xml_text(out_, name);
    const auto share = static_cast<std::uint64_t>(static_cast<double>(hits) * 10000 / total());
    put(": ", hits, hits == 1 ? " hit, " : " hits, ", share / 100, ".", share / 10 % 10, share % 10,
        "%</title><rect x=\"");
    put_pixels(begin);
    put("\" y=\"", y, "\" width=\"");
    put_pixels(hits);
    put("\" height=\"", kRow - 1, "\" fill=\"", colour_of(name), "\"/><text x=\"");
    put_pixels(begin);
    put("\" y=\"", y + kRow - 5, "\" dx=\"3\">");
    const auto letters = static_cast<std::size_t>(static_cast<double>(hits) * kWidth / total()) / kLetterPixels;
    if (letters > 3) add_xml_text(out_, shortened(name, letters));
    put("</text></g>\n");
  }
  // At the beginning of a character.
  static std::string_view shortened(std::string_view name, std::size_t letters) {
    if (name.size() <= letters) return name;
    std::size_t end = letters;
    while (end != 0 && utf8_character(name.substr(end)) == 0) --end;
    return name.substr(0, end);
  }

  void draw(std::string_view name, const Frame& frame, std::uint64_t begin, std::size_t depth) {
    draw_one(name, frame.hits, begin, depth);
    std::uint64_t narrow = 0, count = 0;
    for (const auto& [inside_name, inside] : frame.inside) {
      if (inside->hits < root_.hits / kMostParts) {
        narrow += inside->hits, ++count;
        continue;
      }
      draw(inside_name, *inside, begin, depth + 1);
      begin += inside->hits;
    }
    if (count != 0) draw_one("[" + std::to_string(count) + " narrow frames]", narrow, begin, depth + 1);
  }

  const Frame& root_;
  const std::uint64_t height_;
  Buffer& out_;
};

}  // namespace

void add_xml_text(Buffer& out, std::string_view text) {
  const std::string shown = escaped(text);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const std::string_view one(&shown[i], 1), three = std::string_view(shown).substr(i, 3);
    if (three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {  // characters that XML does not have
      out.add("\\ufffe");
      i += 2;
      continue;
    }
    out.add(one == "&"    ? "&amp;"
            : one == "<"  ? "&lt;"
            : one == ">"  ? "&gt;"
            : one == "\"" ? "&quot;"
            : one == "'"  ? "&#39;"
                          : one);
  }
}

void add_flame_graph(const StackCounts& stacks, Buffer& out) {
  const Frame root = tree_of(stacks);
  Drawing(root, out).draw();
}

void FlameGraphFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer&) {
  if (record.type < events_.size()) stacks_.add(record, comm, events_[record.type]);
}

void FlameGraphFormatter::end(std::span<const Total> totals, Buffer& out) {
  out.add("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  Buffer drawn;
  add_flame_graph(stacks_, drawn);
  std::string_view image = drawn.view();
  image.remove_suffix(std::string_view("</svg>\n").size());
  out.add(image);
  for (const Total& total : totals) {
    if (total.lost == 0 && total.missed == 0) continue;
    out.add("<desc>");
    add_xml_text(out, total.name);
    out.add(": ");
    add_decimal(out, total.lost);
    out.add(" hits lost, ");
    add_decimal(out, total.missed);
    out.add(" returns missed</desc>\n");
  }
  out.add("<script><![CDATA[\n");
  out.add(flame_script());
  out.add("\nflame(document.documentElement);\n]]></script>\n</svg>\n");
}

}  // namespace uprobe::format
