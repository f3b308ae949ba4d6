# SPDX-License-Identifier: MIT
# The machine: everything that knows it is under arch/UPROBE_ARCH. Its headers are included as "arch/ROOM/FILE.h", by a link in the
# build folder, so that no other folder spells its name (docs/porting.md).

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(UPROBE_ARCH x86 CACHE STRING "Folder of arch/ for the machine to build for")
else()
  set(UPROBE_ARCH ${CMAKE_SYSTEM_PROCESSOR} CACHE STRING "Folder of arch/ for the machine to build for")
endif()
set(UPROBE_ARCH_DIR ${PROJECT_SOURCE_DIR}/arch/${UPROBE_ARCH})
if(NOT UPROBE_ARCH OR NOT EXISTS ${UPROBE_ARCH_DIR}/CMakeLists.txt)
  message(FATAL_ERROR "no code for the machine '${UPROBE_ARCH}': see docs/porting.md")
endif()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${UPROBE_ARCH_DIR} ${PROJECT_BINARY_DIR}/include/arch SYMBOLIC)
# Where #include looks for the project's headers.
set(UPROBE_INCLUDES ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include)

include(${UPROBE_ARCH_DIR}/flags.cmake)
