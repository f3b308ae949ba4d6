// SPDX-License-Identifier: MIT
// Printing format files.
#include "engine/program/format_file.h"

namespace uprobe::program {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

// As declared, with the number of elements after the name.
std::string c_declaration(const Field& field) {
  return field.declared + " " + field.name + (field.count == 0 ? "" : "[" + number(field.count) + "]");
}

// Signed only as far as the type says so; hex, characters and bitfields are unsigned containers.
std::string c_type(const Field& field) {
  if (field.kind == Kind::string)
    return field.count == 0 ? "__data_loc char[]" : "__data_loc char[][" + number(field.count) + "]";
  if (field.kind == Kind::floating) return field.size == 4 ? "float" : "double";
  return (field.kind == Kind::signed_decimal ? "s" : "u") + number(field.size * 8u);
}

// The number of strings is part of their type.
std::string array_suffix(const Field& field, FormatReader reader) {
  if (field.count == 0 || field.kind == Kind::string) return {};
  return reader == FormatReader::libtraceevent ? "[" + number(field.count) + "]" : "[]";
}

FormatField argument_field(const Field& field, FormatReader reader) {
  const bool is_string = field.kind == Kind::string;
  if (!field.declared.empty())
    return {c_declaration(field), field.offset, field.size * (field.count == 0 ? 1 : field.count),
            is_string || field.kind == Kind::signed_decimal};
  return {c_type(field) + " " + field.name + array_suffix(field, reader), field.offset,
          field.size * (field.count == 0 ? 1 : field.count), is_string || field.kind == Kind::signed_decimal};
}

const char* length_modifier(const Field& field, FormatReader reader) {
  if (field.size == 8) return "L";
  if (reader == FormatReader::kernel || field.kind != Kind::signed_decimal) return "";
  return field.size == 1 ? "hh" : field.size == 2 ? "h" : "";
}

// How one element prints. 64-bit numbers are "long long" in the kernel's printf.
std::string element_format(const Field& field, FormatReader reader = FormatReader::kernel) {
  const std::string length = length_modifier(field, reader);
  switch (field.kind) {
    case Kind::unsigned_decimal:
      return "%" + length + "u";
    case Kind::signed_decimal:
      return "%" + length + "d";
    case Kind::hex:
      return "0x%" + length + "x";
    case Kind::character:
      return "'%c'";
    case Kind::string:
      return "\\\"%s\\\"";
    case Kind::symbol:
      return "%pS";
    case Kind::floating:
      return "%g";
  }
  return {};
}

// Elements stand in braces, without blanks.
std::string value_format(const Field& field, FormatReader reader) {
  if (field.is_text) return "\\\"%s\\\"";
  const std::string element = element_format(field, reader);
  if (field.count == 0) return element;
  std::string text = "{" + element;
  for (std::uint32_t i = 1; i < field.count; ++i) text += "," + element;
  return text + "}";
}

std::string element_expression(const Field& field, const std::string& index) {
  return field.kind == Kind::string ? "__get_str(" + field.name + index + ")" : "REC->" + field.name + index;
}

// Every element is an argument of its own of the kernel's printf.
std::string value_expressions(const Field& field) {
  if (field.count == 0 || field.is_text) return ", " + element_expression(field, "");
  std::string text;
  for (std::uint32_t i = 0; i < field.count; ++i) text += ", " + element_expression(field, "[" + number(i) + "]");
  return text;
}

std::string field_line(const FormatField& field) {
  return "\tfield:" + field.declaration + ";\toffset:" + number(field.offset) + ";\tsize:" + number(field.size) +
         ";\tsigned:" + (field.is_signed ? "1" : "0") + ";\n";
}

// The caller first, as in the proposal of function events; no program reads records by this text. The first field is the return
// address.
std::vector<FormatField> function_fields(const EventLayout& layout, FormatReader reader) {
  std::vector<FormatField> fields{{"unsigned long __parent_ip", 8, 8, false}, {"unsigned long __ip", 16, 8, false}};
  for (std::size_t i = 1; i < layout.fields.size(); ++i) fields.push_back(argument_field(layout.fields[i], reader));
  return fields;
}

}  // namespace

std::vector<FormatField> format_fields(const EventLayout& layout, FormatReader reader) {
  if (layout.style == Style::function) return function_fields(layout, reader);
  std::vector<FormatField> fields;
  fields.push_back({"unsigned long " + std::string(head_name(layout)), 8, 8, false});
  if (layout.is_return) fields.push_back({"unsigned long __probe_ret_ip", 16, 8, false});
  for (const Field& field : layout.fields) fields.push_back(argument_field(field, reader));
  return fields;
}

// The format of an element of a function event: as of any event, but bare.
std::string bare_format(const Field& field) {
  switch (field.kind) {
    case Kind::hex:
      return field.size == 8 ? "%Lx" : "%x";
    case Kind::character:
      return field.is_text ? "%s" : "%c";
    case Kind::string:
      return "%s";
    default:
      return element_format(field);
  }
}

// The first field is the return address.
std::string function_format(const EventLayout& layout, const std::string& last_words) {
  std::string format = "\"%ps->%ps(", values = ", REC->__parent_ip, REC->__ip";
  for (std::size_t i = 1; i < layout.fields.size(); ++i) {
    const Field& field = layout.fields[i];
    format += (i == 1 ? "" : ", ") + field.name + "=" + bare_format(field);
    for (std::uint32_t k = 1; k < field.count && !field.is_text; ++k) format += "," + bare_format(field);
    values += value_expressions(field);
  }
  return format + ")" + last_words + "\"" + values;
}

// __probe_func comes first in the list although text output prints the return address first.
std::string print_format(const EventLayout& layout, FormatReader reader, const std::string& last_words) {
  if (layout.style == Style::function) return function_format(layout, last_words);
  std::string format = layout.is_return ? "\"(%lx <- %lx)" : "\"(%lx)";
  std::string values = layout.is_return ? ", REC->__probe_func, REC->__probe_ret_ip" : ", REC->__probe_ip";
  for (const Field& field : layout.fields) {
    format += " " + field.name + "=" + value_format(field, reader);
    values += value_expressions(field);
  }
  return format + last_words + "\"" + values;
}

std::string format_file(const EventLayout& layout, unsigned id, FormatReader reader, const std::string& last_words) {
  static const FormatField kCommon[] = {{"unsigned short common_type", 0, 2, false},
                                        {"unsigned char common_flags", 2, 1, false},
                                        {"unsigned char common_preempt_count", 3, 1, false},
                                        {"int common_pid", 4, 4, true}};
  std::string text = "name: " + layout.event + "\nID: " + number(id) + "\nformat:\n";
  for (const FormatField& field : kCommon) text += field_line(field);
  text += "\n";
  for (const FormatField& field : format_fields(layout, reader)) text += field_line(field);
  return text + "\nprint fmt: " + print_format(layout, reader, last_words) + "\n";
}

}  // namespace uprobe::program
