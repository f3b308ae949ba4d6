# SPDX-License-Identifier: MIT
# Read by cpack for each kind of package: what goes into it, and where it is installed.
if(CPACK_GENERATOR STREQUAL "TXZ")
  set(CPACK_COMPONENTS_ALL portable)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
else()
  set(CPACK_COMPONENTS_ALL tool dev)
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  # Not by cpack's own way, which would also call ldconfig for the agent, where no loader looks for libraries.
  set(control ${CPACK_PACKAGE_DIRECTORY}/_CPack_Packages/depends)
  file(WRITE ${control}/debian/control "Source: uprobe-run\n\nPackage: uprobe-run\nArchitecture: any\n")
  execute_process(COMMAND dpkg-shlibdeps -O ${CPACK_UPROBE_TOOL} WORKING_DIRECTORY ${control} COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_VARIABLE depends OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REPLACE "shlibs:Depends=" "" CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS "${depends}")
endif()
