# Read by cpack for each kind of package (Package.cmake).
if(CPACK_LORA_CPU_ARCH STREQUAL native AND NOT CPACK_LORA_NATIVE)
  message(FATAL_ERROR "this build has the instructions of this machine's processor, and its packages would end with "
    "SIGILL on others. Configure with -DLORA_CPU_ARCH= (scripts/package.sh does), or say cpack -D CPACK_LORA_NATIVE=ON "
    "for packages that stay on machines like this one")
endif()
if(CPACK_GENERATOR STREQUAL "TZST")
  list(APPEND CPACK_COMPONENTS_ALL bundled)
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
