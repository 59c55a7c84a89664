# A build from nothing for the tests (scripts/build.sh --quick): most of its time goes to the same headers again and again, and
# to optimising what tests hardly wait for. With LORA_QUICK_BUILD the sources of a folder are compiled a few at a time, as one,
# and the host and plugins at -O1; with LORA_QUICK_DEVICE, where there is no GPU, device code is compiled unoptimised. The CPU's
# kernels are as in any build. Sources with options of their own stay apart, and so do the folders that are named behind APART,
# whose files have the same names within.
option(LORA_QUICK_BUILD "Compile for tests: several sources at once, host and plugins at -O1" OFF)
option(LORA_QUICK_DEVICE "Compile device code unoptimised, to see that it compiles" OFF)

# Of the targets of this folder that come behind.
macro(lora_quick_options)
  if(LORA_QUICK_BUILD AND NOT LORA_SANITIZE)
    add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release>>:-O1>")
  endif()
endmacro()

# lora_unity(TARGET [OWN_NAMESPACES] [APART FOLDER...])
#
# With OWN_NAMESPACES sources may have the same names within, and are taken about 24 at a time: so many tests took 58 seconds of
# a processor, 80 as three times eight, though with precompiled headers, which gain nothing then. Each goes where its name says,
# so that a new one changes what is compiled with it alone, and a cache has the rest.
function(lora_unity target)
  if(NOT LORA_QUICK_BUILD)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 unity OWN_NAMESPACES "" APART)
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  list(LENGTH sources groups)
  math(EXPR groups "(${groups} + 23) / 24")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} ABSOLUTE)
    get_filename_component(folder ${folder} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    if(folder IN_LIST unity_APART)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR group "${count_${folder}} / 8")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    if(unity_OWN_NAMESPACES)
      get_filename_component(name ${source} NAME)
      string(MD5 digest ${name})
      string(SUBSTRING ${digest} 0 8 digest)
      math(EXPR group "0x${digest} % ${groups}")
      set(folder all)
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes a source that is included for a header, whose types should not have members of types of one source.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# lora_unity_cuda(SOURCES_VARIABLE APART NAME...): the same for the short .cu files of this folder, which CMake does not do by
# itself before 3.31. APART: those that take long, or share names with others.
function(lora_unity_cuda variable)
  if(NOT LORA_QUICK_BUILD)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 unity "" "" APART)
  set(kept "")
  set(count 0)
  foreach(source IN LISTS ${variable})
    get_filename_component(name ${source} NAME_WE)
    if(NOT source MATCHES "\\.cu$" OR name IN_LIST unity_APART)
      list(APPEND kept ${source})
      continue()
    endif()
    math(EXPR group "${count} / 6")
    math(EXPR count "${count} + 1")
    file(RELATIVE_PATH source ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    string(APPEND text_${group} "#include \"${source}\"\n")
  endforeach()
  foreach(at RANGE ${group})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity_${at}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${at}}" @ONLY)
    list(APPEND kept ${file})
  endforeach()
  set(${variable} ${kept} PARENT_SCOPE)
endfunction()
