// SPDX-License-Identifier: MIT
#include "engine/export/ctf_metadata.h"

#include <algorithm>

#include "engine/export/identifiers.h"

namespace uprobe::format {

namespace {

using program::Kind;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
         c == '.' || c == '-' || c == '+' || c == ' ';
}

// Three octal digits, since readers of hexadecimal ones go on to the last digit.
std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain(c))
      made += c;
    else
      made.append("\\").append({static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                                static_cast<char>('0' + byte % 8)});
  }
  return made + "\"";
}

std::string integer(unsigned bits, bool is_signed, bool is_hex) {
  return "integer { size = " + std::to_string(bits) + "; align = 8; signed = " + (is_signed ? "true" : "false") +
         "; base = " + (is_hex ? "16" : "10") + "; }";
}

std::string type_of(const program::Field& field) {
  if (field.is_text || field.is_wide) return "string";
  switch (field.kind) {
    case Kind::unsigned_decimal:
    case Kind::signed_decimal:
    case Kind::hex:
      return integer(field.size * 8u, field.kind == Kind::signed_decimal, field.kind == Kind::hex);
    case Kind::floating:
      return std::string("floating_point { exp_dig = ") + (field.size == 4 ? "8; mant_dig = 24" : "11; mant_dig = 53") +
             "; align = 8; }";
    case Kind::character:
    case Kind::string:
    case Kind::symbol:
      return "string";
  }
  return {};
}

std::string line(const std::string& type, const std::string& name, std::uint32_t elements = 0) {
  return "    " + type + " _" + name + (elements == 0 ? "" : "[" + std::to_string(elements) + "]") + ";\n";
}

std::string fields_of(const CtfEvent& event, bool lacks_entry) {
  const std::string address = integer(64, false, true);
  Identifiers names;
  std::string text = line(address, names.take(event.layout.is_return ? "__probe_func" : "__probe_ip"));
  if (event.layout.is_return) text += line(address, names.take("__probe_ret_ip"));
  if (event.layout.style == program::Style::function) text += line("string", names.take("__caller"));
  for (const program::Field& field : event.fields()) {
    const std::string name = names.take(field.name);
    if (CtfEvent::is_in(field, lacks_entry)) text += line(type_of(field), name, field.is_list() ? field.count : 0);
  }
  return text;
}

std::string event_text(std::uint32_t number, std::string_view name, const std::string& fields) {
  return "event {\n  id = " + std::to_string(number) + ";\n  name = " + quoted(name) +
         ";\n  stream_id = 0;\n  fields := struct {\n" + fields + "  } align(8);\n};\n";
}

}  // namespace

bool CtfEvent::has_entry_fields() const {
  return std::any_of(layout.fields.begin(), layout.fields.end(),
                     [](const program::Field& field) { return field.of_entry; });
}

std::string ctf_preamble(std::string_view clock, bool marks_changes) {
  const std::string u32 = integer(32, false, false), u64 = integer(64, false, false);
  const std::string name(clock);
  const std::string time = "integer { size = 64; align = 8; signed = false; map = clock." + name + ".value; }";
  return "/* CTF 1.8 */\n\n"
         "trace {\n  major = 1;\n  minor = 8;\n  byte_order = le;\n  packet.header := struct {\n    " +
         integer(32, false, true) + " magic;\n    " + u32 +
         " stream_id;\n  } align(8);\n};\n"
         "env {\n  domain = \"ust\";\n  tracer_name = \"uprobe-run\";\n};\n"
         "clock {\n  name = \"" +
         name + "\";\n  freq = 1000000000;\n  offset_s = 0;\n  offset = 0;\n  absolute = " +
         (clock == "wall" ? "true" : "false") + ";\n};\n" + "stream {\n  id = 0;\n  packet.context := struct {\n    " +
         time + " timestamp_begin;\n    " + time + " timestamp_end;\n    " + u64 + " content_size;\n    " + u64 +
         " packet_size;\n    " + u64 + " events_discarded;\n    " + u32 +
         " cpu_id;\n  } align(8);\n  event.header := struct {\n    " + u32 + " id;\n    " + time +
         " timestamp;\n  } align(8);\n  event.context := struct {\n" + line(u32, "vpid") + line(u32, "vtid") +
         line("string", "procname") + (marks_changes ? line(integer(8, false, false), "changed") : "") +
         "  } align(8);\n};\n" +
         event_text(kCtfLost, "uprobe_run:lost", line("string", "event") + line(u64, "hits") + line(u64, "returns")) +
         event_text(kCtfStack, "uprobe_run:user_stack", line(u32, "depth") + "    string _frames[_depth];\n");
}

std::string ctf_description(const CtfEvent& event, std::uint32_t type) {
  const std::string name = event.layout.group + ":" + event.layout.event;
  std::string text = event_text(ctf_number(type, false), name, fields_of(event, false));
  if (event.has_entry_fields()) text += event_text(ctf_number(type, true), name, fields_of(event, true));
  return text;
}

}  // namespace uprobe::format
