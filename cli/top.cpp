// SPDX-License-Identifier: MIT
// See top.h.
#include "cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace uprobe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kEvery = std::chrono::seconds(1);
constexpr unsigned short kUsualLines = 24, kUsualColumns = 80;  // of a terminal that does not know
constexpr std::string_view kOtherScreen = "\x1b[?1049h\x1b[?25l", kOwnScreen = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kTopLeft = "\x1b[H", kClearLine = "\x1b[K\r\n", kClearRest = "\x1b[J";

struct Key {
  char letter;
  CallOrder order;
  const char* name;
};
constexpr std::array kKeys = {Key{'t', CallOrder::total, "total"}, Key{'c', CallOrder::calls, "calls"},
                              Key{'s', CallOrder::self, "self"},   Key{'m', CallOrder::mean, "mean"},
                              Key{'9', CallOrder::p99, "p99"},     Key{'x', CallOrder::longest, "max"}};

std::string heading(CallOrder order, std::size_t columns) {
  std::string keys, chosen;
  for (const Key& key : kKeys) {
    keys += std::string(keys.empty() ? "" : ", ") + key.letter + " " + key.name;
    if (key.order == order) chosen = key.name;
  }
  const std::string what = "calls by " + chosen;
  const std::string whole = what + "   (" + keys + "; q ends)";
  return whole.size() <= columns ? whole : what + "   (tcsm9x, q)";
}

winsize size_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    size.ws_row = kUsualLines;
    size.ws_col = kUsualColumns;
  }
  return size;
}

}  // namespace

std::optional<CallOrder> order_of_key(char key) {
  const auto* found = std::ranges::find(kKeys, key, &Key::letter);
  return found == kKeys.end() ? std::nullopt : std::optional(found->order);
}

std::string top_screen(const std::vector<CallSummary>& calls, CallOrder order, std::size_t lines, std::size_t columns) {
  std::string text = heading(order, columns) + "\n\n" + render_calls(calls, order, columns), shown;
  for (std::size_t line = 0; line < lines && !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    shown += (line == 0 ? "" : "\n") + text.substr(0, std::min(end, columns));
    text.erase(0, end + 1);
  }
  return shown;
}

Status TopView::check(const Streams& streams) {
  if (::isatty(streams.out) == 1) return ok();
  return Error{.code = Code::usage,
               .text = "standard output is no terminal",
               .where = "--top",
               .help = "-c prints the table once"};
}

TopView::TopView(const Streams& streams, bool reads_keys) : out_(streams.out), in_(streams.in) {
  reads_keys_ = reads_keys && ::isatty(in_) == 1 && ::tcgetattr(in_, &before_) == 0;
  if (reads_keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0, raw.c_cc[VTIME] = 0;
    ::tcsetattr(in_, TCSANOW, &raw);
  }
  static_cast<void>(write_patiently(out_, kOtherScreen));
}

TopView::~TopView() {
  static_cast<void>(write_patiently(out_, kOwnScreen));
  if (reads_keys_) ::tcsetattr(in_, TCSANOW, &before_);
}

// True: to end.
bool TopView::take_keys() {
  pollfd keys{.fd = in_, .events = POLLIN, .revents = 0};
  while (reads_keys_ && ::poll(&keys, 1, 0) == 1) {
    char key = 0;
    if (::read(in_, &key, 1) != 1) return reads_keys_ = false;
    if (key == 'q') return true;
    const auto order = order_of_key(key);
    is_changed_ = is_changed_ || order;
    order_ = order.value_or(order_);
  }
  return false;
}

void TopView::draw(const Rows& rows) {
  const winsize size = size_of(out_);
  const std::string lines = top_screen(rows(), order_, size.ws_row, size.ws_col);
  std::string screen(kTopLeft);
  for (const char c : lines) c == '\n' ? screen += kClearLine : screen += c;
  static_cast<void>(write_patiently(out_, screen + std::string("\x1b[K") + std::string(kClearRest)));
}

bool TopView::look(const Rows& rows) {
  const bool ends = take_keys();
  const auto now = Clock::now();
  if (!is_changed_ && now < next_) return ends;
  draw(rows);
  is_changed_ = false, next_ = now + kEvery;
  return ends;
}

}  // namespace uprobe::cli
