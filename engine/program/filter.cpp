// SPDX-License-Identifier: MIT
// From the text to a tree of terms, and from there to tests; the first test that decides ends the filter.
#include "engine/program/filter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "engine/program/filter_term.h"

namespace uprobe::program {
namespace {

using namespace filter_message;
using shared::Test;
using shared::TestOp;

constexpr std::size_t kMaxFilter = 4095;  // the kernel takes less than a page

struct Node {
  enum class Kind { term, all, any };
  Kind kind = Kind::term;
  bool inverted = false;
  Term term = {};
  std::vector<Node> parts = {};
};

Error unexplained(std::string_view filter, int err, std::string help) {
  return Error{.code = Code::usage,
               .text = std::string(kError),
               .where = std::string(filter),
               .help = std::move(help),
               .err = err};
}

// An operator of two characters.
bool is_pair(std::string_view text, std::size_t at) {
  return (text[at] == '&' || text[at] == '|') && at + 1 < text.size() && text[at + 1] == text[at];
}

// The kernel's first check: quotes and parentheses.
class Balance {
 public:
  explicit Balance(std::string_view text) : text_(text) {}

  Status check();

 private:
  Status look_at(std::size_t at);

  std::string_view text_;
  std::vector<std::size_t> open_;
  char quote_ = '\0';
  std::size_t quoted_at_ = 0;
  bool has_terms_ = false;
};

Status Balance::look_at(std::size_t at) {
  const char c = text_[at];
  if (quote_ != '\0') {
    if (c == quote_) quote_ = '\0';
    return ok();
  }
  if (c == '(') return open_.push_back(at), ok();
  if (c == ')') {
    if (open_.empty()) return filter_error(text_, at, kTooFewOpen, EPERM);
    return open_.pop_back(), ok();
  }
  if (c == '\'' || c == '"') quote_ = c, quoted_at_ = at;
  has_terms_ = true;
  return ok();
}

Status Balance::check() {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (is_filter_space(text_[at])) continue;
    RETURN_IF_ERROR(look_at(at));
  }
  if (quote_ != '\0') return filter_error(text_, quoted_at_, kQuoteOpen, ESRCH);
  if (!open_.empty()) return filter_error(text_, open_.back(), kTooManyOpen, ENOENT);
  return has_terms_ ? ok() : Status(unexplained(text_, EINVAL, "the filter has no term"));
}

class Parser {
 public:
  Parser(std::string_view text, const EventLayout& layout, const FilterContext& context, std::string& texts)
      : text_(text), layout_(layout), context_(context), texts_(texts) {
    levels_.emplace_back();
  }

  Result<Node> parse();

 private:
  // A level of parentheses, or the whole.
  struct Level {
    bool inverted = false;
    Node any{.kind = Node::Kind::any};
    Node all{.kind = Node::Kind::all};
    bool wants_more = false;  // an && came last
  };
  enum class Next { term, end };

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take_prefix();
  Status read_one();
  Result<Next> read_operator();
  void close_all();
  void close_level();

  std::string_view text_;
  const EventLayout& layout_;
  const FilterContext& context_;
  std::string& texts_;
  std::size_t at_ = 0;
  bool inverted_ = false;  // the next term is inverted, with all parentheses around it counted
  std::vector<Level> levels_;
  bool has_terms_ = false;
};

// "(" and "!", which is no part of "!=" and "!~".
bool Parser::take_prefix() {
  if (is_filter_space(now())) return ++at_, true;
  if (now() == '(') {
    levels_.emplace_back().inverted = inverted_;
    return ++at_, true;
  }
  const char after = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (now() != '!' || after == '=' || after == '~') return false;
  inverted_ = !inverted_;
  return ++at_, true;
}

Status Parser::read_one() {
  auto term = read_term(text_, at_, layout_, context_, texts_);
  if (!term) return term.error();
  Level& level = levels_.back();
  level.all.parts.push_back({.inverted = inverted_ != level.inverted, .term = *term});
  has_terms_ = true;
  return ok();
}

void Parser::close_all() {
  Level& level = levels_.back();
  level.any.parts.push_back(std::move(level.all));
  level.all = {.kind = Node::Kind::all};
}

void Parser::close_level() {
  Level closed = std::move(levels_.back());
  levels_.pop_back();
  Level& level = levels_.back();
  closed.any.inverted = closed.inverted != level.inverted;
  level.all.parts.push_back(std::move(closed.any));
}

// After a term: closing parentheses, then an operator or the end.
Result<Parser::Next> Parser::read_operator() {
  for (;; ++at_) {
    while (is_filter_space(now())) ++at_;
    const bool ends = at_ >= text_.size();
    if (!ends && now() != ')' && !is_pair(text_, at_)) return filter_error(text_, at_, kTooManyTerms, EPERM);
    inverted_ = levels_.back().inverted;
    levels_.back().wants_more = now() == '&';
    if (now() != '&') close_all();
    if (ends) return Next::end;
    if (now() != ')') return at_ += 2, Next::term;
    if (levels_.size() == 1) return filter_error(text_, at_ + 1, kTooFewOpen, EPERM);
    close_level();
  }
}

Result<Node> Parser::parse() {
  while (at_ < text_.size()) {
    if (take_prefix()) continue;
    RETURN_IF_ERROR(read_one());
    const auto next = read_operator();
    if (!next) return next.error();
    if (*next == Next::end) break;
  }
  if (levels_.size() != 1) return filter_error(text_, at_ + 1, kTooManyOpen, EPERM);
  if (!has_terms_) return filter_error(text_, at_, kNoFilter, EINVAL);
  Level& whole = levels_.front();
  if (whole.wants_more && !whole.any.parts.empty())
    return unexplained(text_, EINVAL, "nothing follows the last operator");
  if (!whole.all.parts.empty()) close_all();
  return std::move(whole.any);
}

constexpr TestOp opposite(TestOp op) {
  const auto first = static_cast<unsigned>(TestOp::equal), number = static_cast<unsigned>(op) - first;
  return static_cast<TestOp>((number ^ 1) + first);
}
static_assert(opposite(TestOp::equal) == TestOp::not_equal && opposite(TestOp::not_less) == TestOp::less &&
              opposite(TestOp::any_bit) == TestOp::no_bit && opposite(TestOp::not_text) == TestOp::text);

// Turns the tree into tests. A label is an index into `places_`.
class Generator {
 public:
  std::vector<Test> generate(const Node& tree);

 private:
  using Label = std::size_t;
  // The two places at which a node goes on, and which of them is next in the list.
  struct Ways {
    Label yes, no, next;
    Ways swapped() const { return {no, yes, next}; }
  };

  Label label() { return places_.push_back(0), places_.size() - 1; }
  void bind(Label label) { places_[label] = tests_.size(); }
  void put(Test test, Label to);
  void put_term(const Term& term, const Ways& ways);
  void put_node(const Node& node, Ways ways);

  std::vector<Test> tests_;
  std::vector<Label> targets_;  // of each test
  std::vector<std::size_t> places_;
};

void Generator::put(Test test, Label to) {
  tests_.push_back(test);
  targets_.push_back(to);
}

void Generator::put_term(const Term& term, const Ways& ways) {
  if (term.truth == Truth::depends) {
    Test test = term.test;
    if (ways.next == ways.yes) test.op = opposite(test.op);
    return put(test, ways.next == ways.yes ? ways.no : ways.yes);
  }
  const Label to = term.truth == Truth::always ? ways.yes : ways.no;
  if (to != ways.next) put({.op = TestOp::go_on, .size = 0, .target = 0, .offset = 0, .value = 0}, to);
}

// Each part but the last leads to the next one unless it decides.
void Generator::put_node(const Node& node, Ways ways) {
  if (node.inverted) ways = ways.swapped();
  if (node.kind == Node::Kind::term) return put_term(node.term, ways);
  for (std::size_t i = 0; i + 1 < node.parts.size(); ++i) {
    const Label next = label();
    put_node(node.parts[i], node.kind == Node::Kind::all ? Ways{next, ways.no, next} : Ways{ways.yes, next, next});
    bind(next);
  }
  put_node(node.parts.back(), ways);
}

std::vector<Test> Generator::generate(const Node& tree) {
  const Label yes = label(), no = label();
  put_node(tree, {yes, no, yes});
  bind(yes);
  put({.op = TestOp::pass, .size = 0, .target = 0, .offset = 0, .value = 0}, yes);
  bind(no);
  put({.op = TestOp::drop, .size = 0, .target = 0, .offset = 0, .value = 0}, no);
  for (std::size_t i = 0; i + 2 < tests_.size(); ++i) tests_[i].target = static_cast<shared::u16>(places_[targets_[i]]);
  return std::move(tests_);
}

std::string_view stripped_end(std::string_view text) {
  while (!text.empty() && is_filter_space(text.back())) text.remove_suffix(1);
  return text;
}

bool clears(std::string_view text) {
  while (!text.empty() && is_filter_space(text.front())) text.remove_prefix(1);
  return text == "0";
}

}  // namespace

unsigned possible_cpus() {
  std::ifstream file("/sys/devices/system/cpu/possible");  // "0-7": the last number is the highest
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t digits = stripped_end(text).find_last_not_of("0123456789");
  const int last = std::atoi(text.c_str() + (digits == std::string::npos ? 0 : digits + 1));
  const long configured = ::sysconf(_SC_NPROCESSORS_CONF);
  return static_cast<unsigned>(std::max({long{last} + 1, configured, 1L}));
}

Result<CompiledFilter> compile_filter(const EventLayout& layout, std::string_view filter, const FilterContext& context,
                                      std::string text) {
  filter = stripped_end(filter);
  if (filter.size() > kMaxFilter)
    return Error{.code = Code::usage, .text = "a filter has at most 4,095 characters", .err = EINVAL};
  RETURN_IF_ERROR(Balance(filter).check());
  const auto tree = Parser(filter, layout, context, text).parse();
  if (!tree) return tree.error();
  return CompiledFilter{.tests = Generator().generate(*tree), .text = std::move(text)};
}

Status set_filter(EventProgram& program, std::string_view text, const FilterContext& context) {
  if (clears(stripped_end(text))) return program.filter.clear(), ok();
  auto compiled = compile_filter(program.layout, text, context, program.text);
  if (!compiled) return compiled.error();
  program.filter = std::move(compiled->tests);
  program.text = std::move(compiled->text);
  return ok();
}

void leave_out_thread(EventProgram& program, std::uint32_t thread) {
  constexpr shared::u16 kInFront = 2;
  std::vector<Test>& tests = program.filter;
  if (tests.empty()) tests.push_back({.op = TestOp::pass, .size = 0, .target = 0, .offset = 0, .value = 0});
  for (Test& test : tests) test.target = static_cast<shared::u16>(test.target + kInFront);
  const Test others{.op = TestOp::not_equal,
                    .size = sizeof(shared::PayloadHead::pid),
                    .target = kInFront,
                    .offset = offsetof(shared::PayloadHead, pid),
                    .value = thread};
  tests.insert(tests.begin(), {others, {.op = TestOp::drop, .size = 0, .target = 0, .offset = 0, .value = 0}});
}

}  // namespace uprobe::program
