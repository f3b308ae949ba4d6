// SPDX-License-Identifier: MIT
// See top.h.
#include "cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/launcher.h"

namespace uprobe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kEvery = std::chrono::seconds(1);
constexpr unsigned short kUsualLines = 24, kUsualColumns = 80;  // of a terminal that does not know
constexpr std::string_view kOtherScreen = "\x1b[?1049h\x1b[?25l", kOwnScreen = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kTopLeft = "\x1b[H", kClearLine = "\x1b[K", kNextLine = "\r\n", kClearRest = "\x1b[J";

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

std::string top_bytes(std::string_view screen) {
  std::string bytes(kTopLeft);
  for (std::size_t at = 0, end = 0; at <= screen.size(); at = end + 1) {
    end = std::min(screen.find('\n', at), screen.size());
    const bool is_last = end == screen.size();
    bytes.append(is_last ? kClearRest : kClearLine).append(screen.substr(at, end - at));
    if (!is_last) bytes.append(kNextLine);
  }
  return bytes;
}

Status TopView::check(const Streams& streams) {
  if (::isatty(streams.out) == 1) return ok();
  return Error{.code = Code::usage,
               .text = "standard output is no terminal",
               .where = "--top",
               .help = "-c prints the table once"};
}

TopView::TopView(const Streams& streams, bool reads_keys)
    : out_(streams.out), in_(streams.in), wants_keys_(reads_keys && ::isatty(in_) == 1) {
  take_terminal();
}

TopView::~TopView() { give_back(); }

void TopView::take_terminal() {
  has_terminal_ = is_changed_ = true;
  tell_of_terminal(true);
  termios raw{};
  reads_keys_ = wants_keys_ && ::tcgetattr(in_, &raw) == 0;
  if (reads_keys_) {
    before_ = raw;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0, raw.c_cc[VTIME] = 0;
    ::tcsetattr(in_, TCSANOW, &raw);
  }
  static_cast<void>(write_patiently(out_, kOtherScreen));
}

void TopView::give_back() {
  if (!std::exchange(has_terminal_, false)) return;
  static_cast<void>(write_patiently(out_, kOwnScreen));
  if (before_) ::tcsetattr(in_, TCSANOW, &*before_);
  tell_of_terminal(false);
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
  static_cast<void>(write_patiently(out_, top_bytes(top_screen(rows(), order_, size.ws_row, size.ws_col))));
}

bool TopView::look(const Rows& rows) {
  if (!has_terminal_) take_terminal();
  const bool ends = take_keys();
  const auto now = Clock::now();
  if (!is_changed_ && now < next_) return ends;
  draw(rows);
  is_changed_ = false, next_ = now + kEvery;
  return ends;
}

}  // namespace uprobe::cli
