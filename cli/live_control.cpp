// SPDX-License-Identifier: MIT
#include "cli/live_control.h"

#include "cli/calls.h"
#include "cli/probes_file.h"
#include "cli/skip_refused.h"
#include "cli/text.h"
#include "engine/ipc/call_table.h"

namespace uprobe::cli {
namespace {

struct Commands {
  std::vector<Command> list;
  std::vector<Context> contexts;  // one per definition among them
};

// The definition that an error of a running session is about.
Context context_of(const Error& error, const Commands& commands, std::size_t failed) {
  if (failed >= commands.list.size()) return {};
  const std::string& filter = commands.list[failed].filter;
  const bool is_filters = !filter.empty() && !error.where.empty() && filter.starts_with(error.where);
  return is_filters ? Context{"--filter", filter} : commands.contexts[failed];
}

Result<Commands> gather_commands(const Call& call) {
  Commands commands;
  for (const ControlCommand& wanted : call.options.commands) {
    if (wanted.kind != CommandKind::define) {
      const bool is_long = wanted.kind == CommandKind::list && call.options.verbosity > 0;
      commands.list.push_back(
          {.kind = is_long ? CommandKind::tiers : wanted.kind, .text = wanted.name, .default_object = {}});
      commands.contexts.emplace_back();
      continue;
    }
    const auto definitions = gather_definitions({call.options.sources[wanted.source]}, call.streams.in);
    if (!definitions) return definitions.error();
    for (std::size_t i = 0; i < definitions->list.size(); ++i) {
      const Definition& definition = definitions->list[i];
      if (!definition.triggers.empty() || definition.is_disabled)
        return Error{.code = Code::usage, .text = "--trigger and --disabled can only be given when a session starts"};
      commands.list.push_back(
          {CommandKind::define, definition.text, definition.default_object, definition.filter.value_or("")});
      commands.contexts.push_back({definitions->places[i], definition.text});
    }
  }
  return commands;
}

// Escaped, because a program may have chosen the names in a session.
Outcome print_reply(const Call& call, const Reply& reply) { return print(call, escape_lines(reply.text)); }

// The other side is another process: what it sends is checked.
Outcome print_table(const Call& call, const Reply& reply) {
  const auto rows = decode_calls(reply.text);
  if (!rows) return fail(call, Error{.code = Code::damaged, .text = "the session's table is malformed"});
  return print(call, call.options.json ? render_calls_json(*rows) : render_calls(*rows));
}

// One command at a time. A refused definition is reported and skipped.
Outcome control_others(const Call& call, const Commands& commands) {
  std::size_t skipped = 0;
  for (std::size_t i = 0; i < commands.list.size(); ++i) {
    const auto reply = call.engine.ask(call.options.control, {commands.list[i]});
    if (!reply) return fail(call, reply.error());
    const Outcome printed = print_reply(call, *reply);
    if (!reply->error && printed.code != 0) return printed;
    if (!reply->error) continue;
    if (commands.list[i].kind != CommandKind::define) {
      call.diagnostics.error(*reply->error);
      return kFailed;
    }
    call.diagnostics.line(skipped_line(*reply->error, commands.contexts[i]));
    ++skipped;
  }
  if (skipped != 0) call.diagnostics.line(counted(skipped, "definition", "definitions") + " skipped");
  return {};
}

}  // namespace

Outcome control(const Call& call) {
  const auto commands = gather_commands(call);
  if (!commands) return fail(call, commands.error());
  if (call.options.skip_refused) return control_others(call, *commands);
  const auto reply = call.engine.ask(call.options.control, commands->list);
  if (!reply) return fail(call, reply.error());
  if (!reply->error && sums_calls(call.options)) return print_table(call, *reply);
  const Outcome printed = print_reply(call, *reply);
  if (!reply->error) return printed;
  call.diagnostics.error(*reply->error, context_of(*reply->error, *commands, reply->failed));
  return kFailed;
}

}  // namespace uprobe::cli
