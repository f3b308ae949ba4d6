// SPDX-License-Identifier: MIT
// Pieces of other tools' texts, for the rules of foreign_places.cpp and foreign_probes.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace uprobe::cli {

inline constexpr std::string_view kLibc = "libc:";

// Without the blanks at both ends.
std::string_view trimmed(std::string_view text);

// A letter, a digit or '_'.
bool is_word(char c);
// Of such characters, and the first one no digit.
bool is_name(std::string_view text);
bool is_decimal_number(std::string_view text);

// The words of letters, digits and '_' that begin with no digit, each once.
std::vector<std::string> names_in(std::string_view text);

// "open" of "sys_enter_open", "__x64_sys_open", "vfs_open".
std::string system_call(std::string_view name);

// "$arg1" of bpftrace's and DTrace's "arg0", "$retval" of bpftrace's "retval"; empty: it is neither.
std::string fetch_of(std::string_view name);

// What an action records, "{ printf("%s", str(arg0)); }", as fetch arguments with a blank before each.
std::string fetches_in(std::string_view action);

// A condition with a quote in place of each text in quotes.
std::string without_texts(std::string_view condition);

// "arg1 == 3", whose words are fields here: " arg1=$arg2 if arg1 == 3". Empty: it says more.
std::string filter_of(std::string_view condition);

// What stands after the places of a probe: "/FILTER/ { ACTION }".
std::string records_of(std::string_view rest);

// "gr*" of the regular expression "^gr", "*gr*" of "gr".
std::string glob_of(std::string_view expression);
// The same of an expression that means whole names from their beginning on: "gr*" also of "gr".
std::string glob_from_start(std::string_view expression);

}  // namespace uprobe::cli
