// SPDX-License-Identifier: MIT
// Places that are written nearly as they should be.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/foreign_places.h"

namespace uprobe::cli {

// What a place that was refused may have been meant for: "zfree:return", "zfree%ret", "zfree@entry", "./prog+0x1189", "./prog zfree",
// "./prog", "prog.c", "sys_open", a library's path that does not exist.
std::optional<Meant> meaning_of_slip(std::string_view text);

// Whether a file has a function of that name.
using HasFunction = std::function<bool(const std::string& path, const std::string& function)>;

// A function that is not in the program, but in a program that this one executes: of "env ./prog", "sh -c './prog -v'". The place
// "./prog:FUNCTION"; empty: there is none.
std::string place_in_executed(const std::string& function, const std::vector<std::string>& program,
                              const HasFunction& has);

}  // namespace uprobe::cli
