# SPDX-License-Identifier: MIT
# The tool for any Linux: linked with nothing but the kernel, of the same objects as uprobe-run. Debian has archives of all
# libraries but Zydis, which is built of its sources; of Zycore it needs the headers alone.

file(GLOB zydis_sources ${UPROBE_ZYDIS_SOURCE}/src/*.c)
if(NOT zydis_sources)
  message(FATAL_ERROR "UPROBE_ZYDIS_SOURCE: no sources of Zydis in '${UPROBE_ZYDIS_SOURCE}/src' (scripts/package gets them)")
endif()
add_library(zydis_archive STATIC ${zydis_sources})
target_include_directories(zydis_archive BEFORE PRIVATE ${UPROBE_ZYDIS_SOURCE}/include ${UPROBE_ZYDIS_SOURCE}/src)
target_compile_definitions(zydis_archive PRIVATE ZYDIS_STATIC_BUILD ZYCORE_STATIC_BUILD)
set_target_properties(zydis_archive PROPERTIES POSITION_INDEPENDENT_CODE ON)

get_property(parts GLOBAL PROPERTY UPROBE_LIBRARIES)
add_executable(uprobe-run-portable $<TARGET_OBJECTS:uprobe-run> $<TARGET_OBJECTS:uprobe_cli>)
foreach(part ${parts})
  target_sources(uprobe-run-portable PRIVATE $<TARGET_OBJECTS:${part}>)
endforeach()
set_target_properties(uprobe-run-portable PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME uprobe-run
  LINK_SEARCH_START_STATIC ON LINK_SEARCH_END_STATIC ON
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bin)
target_link_options(uprobe-run-portable PRIVATE -static-pie -Wl,-z,now,-z,relro,-z,pack-relative-relocs,--gc-sections)
target_link_libraries(uprobe-run-portable PRIVATE libdw.a libelf.a zydis_archive libz.a liblzma.a libbz2.a)

install(TARGETS uprobe-run-portable RUNTIME DESTINATION bin COMPONENT portable EXCLUDE_FROM_ALL)
install(TARGETS uprobe LIBRARY DESTINATION lib/uprobe COMPONENT portable EXCLUDE_FROM_ALL)

# The texts under which its libraries are given on: NOTICE names them.
string(REGEX MATCH "^[0-9]+" gcc ${CMAKE_CXX_COMPILER_VERSION})
foreach(package libelf-dev libzydis-dev libzycore-dev zlib1g-dev liblzma-dev libbz2-dev libc6-dev libstdc++-${gcc}-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${package}.txt
    COMPONENT portable EXCLUDE_FROM_ALL)
endforeach()
foreach(license GPL-2 GPL-3 LGPL-2.1 LGPL-3)
  install(FILES /usr/share/common-licenses/${license} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${license}.txt
    COMPONENT portable EXCLUDE_FROM_ALL)
endforeach()
