// SPDX-License-Identifier: MIT
#include "engine/session/client_service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/attach/attach.h"

namespace uprobe {
namespace {

using namespace std::chrono_literals;

// The reader may be delayed by its own output, or by a crowded machine.
constexpr auto kArrivalPatience = 2000ms;
constexpr auto kDeparturePatience = 10'000ms;  // a client waits longer for its summary (client_tool.cpp)
constexpr const char* kUnsettledNote =
    "the tool that reads the records was more than ten seconds late: hits of that time are in none of these counts";

Error going() { return Error{.code = Code::refused, .text = "the session has ended", .retry = Retry::anew}; }

std::string list_of(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += (text.empty() ? "" : ",") + std::to_string(pid);
  return text;
}

}  // namespace

// A client's probes are in all processes of the session, so the client has to want all of them.
Status ClientService::may_be_joined(const Hello& hello) const {
  std::vector<pid_t> wanted(hello.processes.begin(), hello.processes.end());
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const std::vector<pid_t> there = parts_.targets.roots();
  const bool searches = parts_.attacher.searches();
  if (wanted == there && !searches) return ok();
  const bool has_other_name = parts_.targets.attaches() && options_.known_as != 0;
  return Error{
      .code = Code::refused,
      .text = "is traced by another uprobe-run, process " +
              std::to_string(has_other_name ? options_.known_as : ::getpid()) +
              ", together with the processes for which that one was started",
      .where = "process " + list_of(wanted),
      .column = -1,
      .help = searches ? "it finds its processes itself and cannot be joined" : "-P " + list_of(there) + " joins it"};
}

// In MailService::alone().
Result<std::vector<Probe>> ClientService::build(const Hello& hello) {
  SessionOptions wanted;
  wanted.strict = hello.strict, wanted.force = hello.force, wanted.style = hello.style;
  wanted.returns = options_.returns;
  control::ProbeSet& planned = parts_.table.planned();
  ProbeBuilder its(wanted, parts_.table.flows());
  for (const control::FilePoints& file : planned.files()) its.know(file.file);
  for (const Definition& definition : hello.definitions) RETURN_IF_ERROR(its.read(definition));
  auto made = its.make_new();
  if (!made) return made;
  RETURN_IF_ERROR(number_objects(*made, planned));
  return made;
}

Result<std::vector<std::string>> ClientService::admit(const std::shared_ptr<Client>& client, const Hello& hello) {
  const std::lock_guard lock(admission_);
  return parts_.changes.alone([&] { return admit_now(client, hello); });
}

Result<std::vector<std::string>> ClientService::admit_now(const std::shared_ptr<Client>& client, const Hello& hello) {
  if (!parts_.recording.is_on() || is_closing_) return going();
  RETURN_IF_ERROR(may_be_joined(hello));
  // Two ways to catch the returns of one function would disturb each other.
  if (hello.returns == plan::ReturnMode::stub && options_.returns != plan::ReturnMode::stub)
    return Error{.code = Code::refused, .text = "the session that traces it has no return stubs (--return=stub)"};
  if (hello.string_limit > std::max(recorded_characters(options_), shared::kUsualString))
    return Error{.code = Code::refused,
                 .text = "the session that traces it records " + std::to_string(recorded_characters(options_)) +
                         " bytes of a string",
                 .help = "a session that is started with -s " + std::to_string(hello.string_limit) + " records more"};
  auto more = parts_.targets.mail().alone([&] { return build(hello); });
  if (!more) return more.error();
  if (more->empty()) return Error{.code = Code::usage, .text = "no probe is defined"};
  const std::uint32_t owner = ++last_owner_;
  for (Probe& probe : *more) probe.owner = owner;
  RETURN_IF_ERROR(parts_.changes.may_join(*more, hello.tier));
  client->owner = owner, client->tier = hello.tier, client->known_as = control::known_as(client->pid());
  parts_.reader.ask();  // while output was blocked the rings were not read, and they may be full
  static_cast<void>(parts_.reader.settle(kArrivalPatience));
  auto events = parts_.changes.join(*more, client);
  if (!events) return events.error();
  client->events = events.take();
  ++client_count_;
  return describe(*more);
}

bool ClientService::dismiss(Client& client) {
  parts_.changes.alone([&] {
    if (parts_.recording.is_on()) parts_.changes.leave(client.owner);
  });
  client.is_settled = parts_.reader.settle(kDeparturePatience);
  const std::lock_guard lock(admission_);
  --client_count_;
  is_closing_ = is_closing_ || (is_left_ && client_count_ == 0);
  return is_closing_;
}

ClientCalls ClientService::calls() {
  return {
      .admit = [this](const auto& client, const Hello& hello) { return admit(client, hello); },
      .dismiss = [this](Client& client) { return dismiss(client); },
      .summary_of =
          [this](const Client& client) {
            Summary summary = parts_.changes.alone([&] { return parts_.report.summary_of(client.owner, &client); });
            if (!client.is_settled) summary.notes.push_back(kUnsettledNote);
            return summary;
          },
      .forget =
          [this](const Client& client) { parts_.changes.alone([&] { parts_.table.free_events_of(client.owner); }); },
  };
}

bool ClientService::close_if_alone() {
  const std::unique_lock lock(admission_, std::try_to_lock);
  if (!lock) return false;
  is_closing_ = is_closing_ || client_count_ == 0;
  return is_closing_;
}

bool ClientService::is_deserted() {
  const std::unique_lock lock(admission_, std::try_to_lock);
  if (!lock) return false;
  is_closing_ = is_closing_ || (is_left_ && client_count_ == 0);
  return is_closing_;
}

void ClientService::leave_to_clients(const std::function<void()>& print_last) {
  parts_.changes.retire();
  const bool is_settled = parts_.reader.settle(kDeparturePatience);
  parts_.recording.own().discard();
  {
    const std::lock_guard lock(admission_);
    is_left_ = true;
  }
  print_last();
  parts_.changes.alone([&] {
    own_summary_ = parts_.report.summary_of(0, nullptr);
    if (!is_settled) own_summary_->notes.push_back(kUnsettledNote);
    parts_.table.free_events_of(0);
  });
}

}  // namespace uprobe
