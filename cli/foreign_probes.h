// SPDX-License-Identifier: MIT
// Probes in the words of DTrace, SystemTap, Frida and gdb's dprintf; and places that other tools write so that only a look-up which
// fails shows that they were meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/foreign_places.h"

namespace uprobe::cli {

// DTrace: "pid$target:libc:malloc:entry /arg0 > 3/ { ... }", "syscall::write:entry".
std::optional<Meant> of_dtrace(std::string_view text);

// SystemTap: "process("zsh").function("zfree").return { ... }", "kernel.function("vfs_read")".
std::optional<Meant> of_systemtap(std::string_view text);

// Frida: "libc.so.6!open*", "./prog!work", "./prog!0x1189".
std::optional<Meant> of_frida(std::string_view text);

// gdb: "dprintf work,"%d\n", n".
std::optional<Meant> of_dprintf(std::string_view text);

// bcc's trace and argdist: "p:c:open "%s %d", arg1, arg2", "c:malloc(size_t size):size_t:size".
std::optional<Meant> of_bcc(std::string_view text);

// What a place that was not found may have been meant for: "entry:zfree", "return:zfree", ":zfree", "&zfree", "*0x1189", "char
// *work(int n)", "syscall.open", "timer.s(1)", "begin". Such words may be names of functions and objects here, so they are nothing
// else before the look-up.
std::optional<Meant> meaning_of_unknown(std::string_view text);

}  // namespace uprobe::cli
