# SPDX-License-Identifier: MIT
# Run by cpack when the components' files are in their folders, before they are packed: what Debian's policy asks of packages.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

file(READ ${CPACK_UPROBE_SOURCE}/LICENSE license)
string(REGEX REPLACE "^[^\n]*\n\n([^\n]*)\n\n" "" license "${license}")
set(copyright_line "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
string(REGEX REPLACE "\n(.)" "\n \\1" license "\n${license}")
string(REPLACE "Copyright (c) " "" copyright_line "${copyright_line}")
file(TIMESTAMP ${CPACK_UPROBE_SOURCE}/CHANGELOG.md date "%a, %d %b %Y %H:%M:%S +0000" UTC)

foreach(component tool dev)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(documents ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share/doc/${package})
  file(WRITE ${documents}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: uprobe-run

Files: *
Copyright: ${copyright_line}
License: Expat

License: Expat${license}")
  file(WRITE ${documents}/changelog.Debian "uprobe-run (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * See changelog.gz of uprobe-run.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  execute_process(COMMAND gzip -9n ${documents}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
endforeach()

set(tool ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/tool/usr/share)
file(REMOVE ${tool}/doc/uprobe-run/LICENSE)
file(RENAME ${tool}/doc/uprobe-run/CHANGELOG.md ${tool}/doc/uprobe-run/changelog)
execute_process(COMMAND gzip -9n ${tool}/doc/uprobe-run/changelog COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${tool}/zsh/site-functions ${tool}/zsh/vendor-completions)
