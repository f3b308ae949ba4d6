# SPDX-License-Identifier: MIT
# Read by cpack for each kind of package: what goes into it.
if(CPACK_GENERATOR STREQUAL "TXZ")
  set(CPACK_COMPONENTS_ALL portable)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
endif()
