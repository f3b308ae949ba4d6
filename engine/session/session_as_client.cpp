// SPDX-License-Identifier: MIT
// A session that is the client of another tool's session: the owner tool has the target and sends this one its records.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "engine/attach/attach.h"
#include "engine/ipc/peer.h"
#include "engine/session/session_state.h"

namespace uprobe {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLook = 20ms;
constexpr auto kLongestFarewell = 15s;  // in which the owner tool must answer that this client has left

Error cannot_join(std::string text) { return Error{.code = Code::refused, .text = std::move(text)}; }

std::string working_folder() {
  char path[4096] = {};
  return ::getcwd(path, sizeof path) != nullptr ? path : "/";
}

}  // namespace

Status Session::State::become_client(pid_t owner, const GivenUp& given_up) {
  const std::string number = std::to_string(control::known_as(owner));
  const std::string whose = "uprobe-run, process " + number + ", traces it: ";
  const auto user = user_of(owner);
  const bool is_others = user && *user != ::geteuid();
  if (is_others && !options.joins_others)
    return Error{.code = Code::refused,
                 .text = "is traced by uprobe-run, process " + number + ", of user " + user_text(*user),
                 .help = "--join joins that user's session"};
  if (!options.name.empty()) return cannot_join(whose + "a session that joins it cannot have a --session name");
  Hello hello{.pass = {},
              .processes = {},
              .known_as = static_cast<std::uint32_t>(options.known_as != 0 ? options.known_as : ::getpid()),
              .folder = working_folder(),
              .strict = options.strict,
              .force = options.force,
              .tier = options.tier,
              .returns = options.returns,
              .style = options.style,
              .definitions = options.definitions};
  hello.processes.assign(attached.begin(), attached.end());
  for (const Definition& definition : options.definitions)
    if (!definition.triggers.empty() || definition.is_disabled)
      return cannot_join(whose + "--trigger and --disabled can only be given when a session starts");
  auto begun = PeerClient::begin(owner, hello, describe(table.probes()), options.joins_others, given_up);
  if (!begun) return begun.error();
  if (is_others) tell("joins the session of user " + user_text(*user) + " (uprobe-run, process " + number + ")");
  connection.emplace(begun.take());
  return ok();
}

Result<Ending> Session::State::run_as_client(const RunOptions& run_options, Recipient& recipient) {
  const auto started = steady_clock::now();
  const auto wants_to_leave = [&] {
    const bool is_over_time =
        run_options.duration.count() != 0 && steady_clock::now() - started >= run_options.duration;
    return recipient.is_full() || recipient.is_broken() || is_over_time ||
           (run_options.detach_requested && run_options.detach_requested());
  };
  const auto sink = [&](const ClientRecord& record) { recipient.take(record.record, record.task); };
  std::optional<steady_clock::time_point> left;
  recipient.learn_events();
  while (connection->receive(sink, std::chrono::duration_cast<std::chrono::milliseconds>(kLook))) {
    recipient.end_batch();
    if (!left && wants_to_leave()) {
      connection->leave();
      left = steady_clock::now();
    }
    if (left && steady_clock::now() - *left > kLongestFarewell) break;
  }
  recipient.end_batch();
  if (left) return Ending{.detached = true};
  if (connection->end() == ClientEnd::processes) return Ending{};
  if (connection->end()) return Ending{.detached = true};
  // The processes ended together with the owner tool, or the owner tool was killed.
  const bool all_gone =
      std::all_of(attached.begin(), attached.end(), [](pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; });
  if (all_gone) return Ending{};
  static_cast<void>(release({.pids = {attached.begin(), attached.end()}}));
  return Error{.code = Code::refused,
               .text = "the uprobe-run that had the target (tracer process " + std::to_string(connection->owner()) +
                       ") has been killed; its probes are removed"};
}

}  // namespace uprobe
