# SPDX-License-Identifier: MIT
# The manual pages, which are made of the help, the guide and the library's header: see manual.py.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(pages ${CMAKE_CURRENT_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${pages})
set(texts ${PROJECT_SOURCE_DIR}/docs/guide.md ${PROJECT_SOURCE_DIR}/docs/filters-and-triggers.md ${PROJECT_SOURCE_DIR}/docs/preload.md
  ${PROJECT_SOURCE_DIR}/library/uprobe/session.h ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
add_custom_command(OUTPUT ${pages}/uprobe-run.1.gz ${pages}/uprobe-definitions.5.gz ${pages}/uprobe-session.3.gz VERBATIM
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/manual.py --tool $<TARGET_FILE:uprobe-run>
    --source ${PROJECT_SOURCE_DIR} --version ${PROJECT_VERSION} ${pages}
  DEPENDS uprobe-run manual.py ${texts})
add_custom_target(uprobe_manual ALL DEPENDS ${pages}/uprobe-run.1.gz)
install_for_tools(FILES ${pages}/uprobe-run.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install_for_tools(FILES ${pages}/uprobe-definitions.5.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${pages}/uprobe-session.3.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)
