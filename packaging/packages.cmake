# SPDX-License-Identifier: MIT
# `cpack -G TXZ` makes the tarball of the component `portable`, `cpack -G DEB` the packages uprobe-run and libuprobe-dev of the
# components `tool` and `dev`.
set(CPACK_PACKAGE_NAME uprobe-run)
set(CPACK_PACKAGE_VENDOR "the uprobe-run authors")
set(CPACK_PACKAGE_CONTACT "${CPACK_PACKAGE_VENDOR} <uprobe-run@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trace programs with uprobes, without the kernel's help")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_SOURCE_DIR}/choose.cmake)
set(CPACK_PACKAGE_FILE_NAME uprobe-run-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME uprobe-run)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOL_DESCRIPTION
"Entry and return probes with ftrace's definitions and ftrace's output, on any
program that you may run or trace, without root, kernel support or a module.
Filters, triggers and histograms run inside of the traced program.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libuprobe-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# the library and the agent of uprobe-run are parts of one build
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "uprobe-run (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libdw-dev, libelf-dev, liblzma-dev, zlib1g-dev, libzydis-dev, pkg-config, g++")
set(CPACK_DEBIAN_DEV_DESCRIPTION
"The engine of uprobe-run as a static library, for C++ tests and tools: starts
programs, attaches to processes or to the own one, and returns the hits of its
probes as values.")
# What these packages have and others have not: see debian.cmake.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/debian.cmake)
set(CPACK_UPROBE_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_UPROBE_TOOL ${PROJECT_BINARY_DIR}/uprobe-run)
include(CPack)
