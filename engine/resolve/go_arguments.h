// SPDX-License-Identifier: MIT
// Functions of Go take their arguments in registers of their own order (Go's ABIInternal), those in assembly on the stack: $argN, the
// C convention's registers, would show something else. Their arguments have names in the debug information.
#pragma once

#include "engine/base/result.h"
#include "engine/plan/resolve.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

// Code::refused, at its column, for an argument that asks for $argN of a function of Go.
Status check_go_arguments(const spec::ProbeSpec& spec, const plan::Found& place);

}  // namespace uprobe
