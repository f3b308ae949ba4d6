// SPDX-License-Identifier: MIT
// What /proc/PID/status says of this machine alone.
#pragma once

#include <string_view>

namespace uprobe::arch {

inline constexpr char kThreadFeatures[] = "x86_Thread_features";
// By the value of that line.
inline bool has_shadow_stack(std::string_view features) { return features.find("shstk") != std::string_view::npos; }

}  // namespace uprobe::arch
