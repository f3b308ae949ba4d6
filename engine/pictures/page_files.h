// SPDX-License-Identifier: MIT
// The files of pages/, which the build makes part of the tool.
#pragma once

#include <string_view>

namespace uprobe::format {

std::string_view flame_script();
std::string_view page_head();    // the beginning of a page, up to its data
std::string_view page_script();  // what draws it
std::string_view page_style();

}  // namespace uprobe::format
