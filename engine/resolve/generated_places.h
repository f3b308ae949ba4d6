// SPDX-License-Identifier: MIT
// Places in code that the program generates as it runs ("jit:NAME"). No file has them: where they are shows in the process, later
// (engine/generated/generated_code.h).
#pragma once

#include "engine/base/result.h"
#include "engine/plan/resolve.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

// Whether such a place can be probed as the definition wants it: at the beginning of functions, without anything that only a file
// or the returns of a function would show.
Status check_generated(const spec::ProbeSpec& spec);

// What a probe has in the stead of a file and an offset: a file that no traced program has such code of, the tool's own.
Result<plan::Site> site_of_generated(const spec::ProbeSpec& spec, plan::FileCache& files);

}  // namespace uprobe
