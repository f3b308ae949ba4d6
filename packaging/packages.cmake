# SPDX-License-Identifier: MIT
# `cpack -G TXZ` makes the tarball of the component `portable`.
set(CPACK_PACKAGE_NAME uprobe-run)
set(CPACK_PACKAGE_VENDOR "the uprobe-run authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trace programs with uprobes, without the kernel's help")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_SOURCE_DIR}/choose.cmake)
set(CPACK_PACKAGE_FILE_NAME uprobe-run-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
