# SPDX-License-Identifier: MIT
# Helpers of the build: one function for warnings, one for the flags of in-target code.

option(UPROBE_WERROR "Warnings are errors" ON)

# Headers of the standard library, compiled once: a sixth of the build's time. Not beside a compiler cache, which serves better and
# does not know them, and not for the other compilers, whose builds show a forgotten #include.
set(precompile ON)
if(CMAKE_CXX_COMPILER_LAUNCHER OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompile OFF)
endif()
option(UPROBE_PRECOMPILE "Precompile the standard library's headers" ${precompile})

# For the same reasons: the files of a folder are compiled as one, which instantiates each template once. With the precompiled headers
# a build takes a third of its time.

function(uprobe_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast
      -Wno-missing-field-initializers>  # designated initializers name what matters
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>  # false positives in std::string (GCC bug 105651)
    $<$<BOOL:${UPROBE_WERROR}>:-Werror>)
endfunction()

# The tool and the library read memory that other processes write: a memory error there must end the tool, not be exploitable.
# Not for tests, and not for code that runs in the target. _FORTIFY_SOURCE needs an optimising compiler.
function(uprobe_hardening target)
  target_compile_options(${target} PRIVATE -fstack-protector-strong -fstack-clash-protection
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
  target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_options(${target} PRIVATE -pie -Wl,-z,now -Wl,-z,relro)
  endif()
endfunction()

set(UPROBE_HEADERS <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional> <set>
  <span> <string> <string_view> <thread> <utility> <vector>)

# The flags of `name` are to be those of the users of its headers.
function(uprobe_precompiled name)
  if(UPROBE_PRECOMPILE)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp.new "// The headers are what is compiled.\n")
    file(COPY_FILE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp.new ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp ONLY_IF_DIFFERENT)
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_precompile_headers(${name} PRIVATE ${UPROBE_HEADERS} ${ARGN})
    uprobe_warnings(${name})
  endif()
endfunction()

function(uprobe_precompile target headers)
  if(UPROBE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers})
    # GCC bug 105651 once more: precompiled headers are no system headers to the compiler.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overread -Wno-stringop-overflow)
  endif()
endfunction()

# HOW is OFF for a folder whose files have private names of each other's.
function(uprobe_join_files target how)
  if(UPROBE_PRECOMPILE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${how} UNITY_BUILD_BATCH_SIZE 0)
    # "Uses the anonymous namespace": said of every file that the unit includes.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# The tool-side library of this folder: every .cpp in it. uprobe_library(name LINKS ... PRIVATE_LINKS ...)
function(uprobe_library name)
  cmake_parse_arguments(A "" "" "LINKS;PRIVATE_LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${UPROBE_INCLUDES})
    target_link_libraries(${name} PUBLIC ${A_LINKS} PRIVATE ${A_PRIVATE_LINKS})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    uprobe_warnings(${name})
    uprobe_hardening(${name})
    uprobe_precompile(${name} uprobe_headers)
    uprobe_join_files(${name} ON)
    set_property(GLOBAL APPEND PROPERTY UPROBE_LIBRARIES ${name})  # the installed library is made of them
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${UPROBE_INCLUDES})
    target_link_libraries(${name} INTERFACE ${A_LINKS})
  endif()
endfunction()

# A GoogleTest program of one file: uprobe_test(file.cpp LINKS ...) makes the ctest entry named after the file.
function(uprobe_test file)
  cmake_parse_arguments(A "" "" "LINKS" ${ARGN})
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE ${A_LINKS} GTest::gtest_main)
  uprobe_warnings(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # they compile twice as fast
  uprobe_precompile(${name} uprobe_test_headers)
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# Code that runs in the target: freestanding, general registers only, no sanitizer, always optimised.
function(uprobe_in_target target)
  uprobe_warnings(${target})
  target_include_directories(${target} PRIVATE ${UPROBE_INCLUDES})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-ffreestanding -fno-exceptions -fno-rtti -fno-stack-protector -fno-threadsafe-statics
      -fno-jump-tables -O2 -fno-function-sections -fno-data-sections -fno-sanitize=all -fcf-protection=none -fno-asynchronous-unwind-tables -fno-builtin
      ${UPROBE_IN_TARGET_FLAGS}>
    # No loop of memcpy turned into a call of memcpy.
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-tree-loop-distribute-patterns
      ${UPROBE_ALIGNED}
      ${UPROBE_IN_TARGET_GNU_FLAGS}>)
endfunction()
