# Copies the shared libraries that the program needs into the installed tree, for an archive that runs where they are
# not installed, with the notices of their packages. The C and C++ libraries, which every machine has, are left out, and so
# are those of the module for CUDA, which belong to the driver and toolkit there.
#
#   program, kernels   the program and its library, as built      libraries   where they go, in the tree
#   own                libraries below this folder are ours       notices     where their notices go
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} LIBRARIES ${kernels}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+)\\.so"
  POST_EXCLUDE_REGEXES "^${own}")
if(missing)
  message(FATAL_ERROR "libraries of ${program} are not found: ${missing}")
endif()
set(tree "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
foreach(library IN LISTS found)
  file(REAL_PATH ${library} real)
  get_filename_component(name ${library} NAME)  # as programs ask for it; a link may lead to another name
  configure_file(${real} ${tree}/${libraries}/${name} COPYONLY)
  execute_process(COMMAND dpkg-query --search ${real} OUTPUT_VARIABLE owner ERROR_QUIET)
  if(NOT owner)  # files of a system whose /lib is /usr/lib are known under either name
    string(REGEX REPLACE "^/usr/" "/" other ${real})
    execute_process(COMMAND dpkg-query --search ${other} OUTPUT_VARIABLE owner ERROR_QUIET)
  endif()
  string(REGEX REPLACE "[:,].*" "" owner "${owner}")
  if(NOT owner OR NOT EXISTS /usr/share/doc/${owner}/copyright)
    message(FATAL_ERROR "${real}: its notice of copyright is not found, so it cannot be given away with the archive")
  endif()
  configure_file(/usr/share/doc/${owner}/copyright ${tree}/${notices}/${owner} COPYONLY)
endforeach()
