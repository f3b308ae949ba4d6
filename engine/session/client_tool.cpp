// SPDX-License-Identifier: MIT
#include "engine/session/client_tool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/attach/attach.h"
#include "engine/ipc/peer.h"
#include "engine/session/session.h"
#include "engine/target/process_stat.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLook = 20ms;
constexpr auto kLongestFarewell = 15s;  // in which the owner tool must answer that this client has left

Error cannot_join(std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; }

std::string working_folder() {
  char path[4096] = {};
  return ::getcwd(path, sizeof path) != nullptr ? path : "/";
}

}  // namespace

Hello ClientTool::hello() const {
  Hello hello{.pass = {},
              .processes = {},
              .known_as = static_cast<std::uint32_t>(options_.known_as != 0 ? options_.known_as : ::getpid()),
              .folder = working_folder(),
              .string_limit = options_.string_limit,
              .strict = options_.strict,
              .force = options_.force,
              .tier = options_.tier,
              .returns = options_.returns,
              .style = options_.style,
              .definitions = options_.definitions};
  hello.processes.assign(targets_.attached().begin(), targets_.attached().end());
  return hello;
}

Status ClientTool::join(pid_t owner, const Tell& tell, const GivenUp& given_up) {
  const std::string number = std::to_string(control::known_as(owner));
  const std::string whose = "uprobe-run, process " + number + ", traces it: ";
  const auto user = user_of(owner);
  const bool is_others = user && *user != ::geteuid();
  if (is_others && !options_.joins_others)
    return Error{.code = Code::refused,
                 .text = "is traced by uprobe-run, process " + number + ", of user " + user_text(*user),
                 .help = "--join joins that user's session"};
  if (!options_.name.empty()) return cannot_join(whose + "a session that joins it cannot have a --session name");
  const auto needs_start = [](const Definition& d) { return !d.triggers.empty() || d.is_disabled; };
  if (std::any_of(options_.definitions.begin(), options_.definitions.end(), needs_start))
    return cannot_join(whose + "--trigger and --disabled can only be given when a session starts");
  if (options_.thinning.leaves_out())
    return cannot_join(whose + "--sample, --rate and --min-latency can only be given when a session starts");
  auto begun = PeerClient::begin(owner, hello(), describe(table_.probes()), options_.joins_others, given_up);
  if (!begun) return begun.error();
  if (is_others) tell("joins the session of user " + user_text(*user) + " (uprobe-run, process " + number + ")");
  connection_.emplace(begun.take());
  return ok();
}

// Returns whether this client has left.
bool ClientTool::receive_all(const RunOptions& options, Recipient& recipient) {
  const LeaveWish wish(options, recipient, true);
  const auto sink = [&](const ClientRecord& record) { recipient.take(record.record, record.task); };
  std::optional<steady_clock::time_point> left;
  recipient.learn_events();
  while (connection_->receive(sink, kLook)) {
    recipient.end_batch();
    if (!left && wish.is_there()) {
      connection_->leave();
      left = steady_clock::now();
    }
    if (left && steady_clock::now() - *left > kLongestFarewell) break;
  }
  recipient.end_batch();
  return left.has_value();
}

Result<Ending> ClientTool::run(const RunOptions& options, Recipient& recipient) {
  if (receive_all(options, recipient)) return Ending{.detached = true};
  return ending();
}

Result<Ending> ClientTool::ending() const {
  if (connection_->end() == ClientEnd::processes) return Ending{};
  if (connection_->end()) return Ending{.detached = true};
  // The processes ended together with the owner tool, or the owner tool was killed.
  const std::vector<pid_t>& attached = targets_.attached();
  if (std::all_of(attached.begin(), attached.end(), [](pid_t pid) { return target::has_ended(pid); })) return Ending{};
  static_cast<void>(release({.pids = {attached.begin(), attached.end()}}));
  return Error{.code = Code::refused,
               .text = "the uprobe-run that had the target (tracer process " + std::to_string(connection_->owner()) +
                       ") has been killed; its probes are removed"};
}

}  // namespace uprobe
