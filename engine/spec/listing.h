// SPDX-License-Identifier: MIT
// A definition in its canonical form, as tracefs lists it; it can be fed back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/spec/probe_spec.h"

namespace uprobe::spec {

// "PATH:0x%016x[(0x%x)]"; "PATH:SYMBOL[+0x%x][(0x%x)]" if the place is a symbol and `resolved`, its file offset, is not
// known.
std::string place_listing(const Place& place, std::optional<std::uint64_t> resolved = {});

// "p function+4 FETCH...", as the kprobe tracer of 2009 listed its events; with names where they were given. `place` is
// "function+4".
std::string listing_2009(const ProbeSpec& spec, const std::string& place);

// "p:GROUP/EVENT PLACE[ NAME=BODY]..."; of a function event its prototype.
std::string listing(const ProbeSpec& spec, std::optional<std::uint64_t> resolved = {});

// The definition with arguments in words that a kernel takes and that fetch the same: "count=%si:s32" for a variable, `$arg2:s32` or a
// part of a register. An argument for which there are none ($latency, a vector register) stays as it is written, and is named in
// `unknown`.
ProbeSpec kernel_form(ProbeSpec spec, std::string& unknown);

}  // namespace uprobe::spec
