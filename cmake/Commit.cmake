# SPDX-License-Identifier: MIT
# At each build: writes the commit of the source tree into FILE, if it is another than the one that is there. The commit of a
# repository around the tree does not count.
find_program(GIT git)
set(ENV{GIT_CEILING_DIRECTORIES} "${SOURCE}/..")
set(commit "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
// Written by cmake/Commit.cmake.
#include "cli/version.h"

const char* uprobe::cli::commit() { return "@commit@"; }
]])
