# lora_host_add_plugin(name SOURCES a.cpp ... [EMBED recipe.yaml ...] [DATA tokenizers ...])
#
# Builds a plugin <name>.so that exports lh_plugin and nothing else, into <build>/lib/lora-host, and installs it next to
# the host's own plugins. Works inside lora-host and in a project that did find_package(LoraHostSdk).
#
# EMBED: text files that become string constants of the header "<name>_text.hpp", in namespace <name>_text; the
# constant of recipe.yaml is recipe_yaml. A line "@include nn/clip.yaml" is replaced by that file of the SDK.
#
# DATA: folders that go beside the plugin, into lib/lora-host/<name>/<folder>: the host finds tokenizers/<bundled> there.
#
# The global property LORA_HOST_PLUGINS is the list of all that were added.
set(LORA_HOST_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})
if(NOT LORA_HOST_FRAGMENTS)  # the installed package says where they are
  get_filename_component(LORA_HOST_FRAGMENTS ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
endif()

function(lora_host_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;EMBED;DATA")
  if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "lora_host_add_plugin(${name}): expected SOURCES ... [EMBED ...] [DATA ...], got '${ARGN}'")
  endif()
  if(TARGET lora_host_sdk)
    set(sdk lora_host_sdk)
  else()
    set(sdk LoraHostSdk::lora_host_sdk)
  endif()

  add_library(${name} MODULE ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY LORA_HOST_PLUGINS ${name})
  target_link_libraries(${name} PRIVATE ${sdk})
  target_compile_features(${name} PRIVATE cxx_std_20)
  # A plugin is compiled with hidden symbols; -fno-gnu-unique keeps its inline variables its own in the host's process.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  set_target_properties(${name} PROPERTIES
    PREFIX "" SUFFIX ".so"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/lora-host
    LINK_DEPENDS ${LORA_HOST_CMAKE_DIR}/lora_host_plugin.map)
  target_link_options(${name} PRIVATE -Wl,--version-script=${LORA_HOST_CMAKE_DIR}/lora_host_plugin.map)
  if(NOT LORA_SANITIZE)  # a sanitizer's runtime is resolved from the executable
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()

  if(arg_EMBED)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/${name}_text/${name}_text.hpp)
    set(files)
    foreach(file IN LISTS arg_EMBED)
      get_filename_component(file ${file} ABSOLUTE)
      list(APPEND files ${file})
    endforeach()
    string(REPLACE ";" "|" joined "${files}")
    add_custom_command(
      OUTPUT ${header}
      COMMAND ${CMAKE_COMMAND} "-DFILES=${joined}" -DFRAGMENTS=${LORA_HOST_FRAGMENTS} -DNAMESPACE=${name}_text
        -DOUTPUT=${header} -P ${LORA_HOST_CMAKE_DIR}/LoraHostEmbed.cmake
      DEPENDS ${files} ${LORA_HOST_CMAKE_DIR}/LoraHostEmbed.cmake
      DEPFILE ${header}.d
      VERBATIM)
    target_sources(${name} PRIVATE ${header})
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}_text)
  endif()

  if(NOT LORA_HOST_PLUGIN_DESTINATION)  # the installed package says where its host looks
    include(GNUInstallDirs)
    set(LORA_HOST_PLUGIN_DESTINATION ${CMAKE_INSTALL_LIBDIR}/lora-host)
  endif()
  install(TARGETS ${name} LIBRARY DESTINATION ${LORA_HOST_PLUGIN_DESTINATION})

  foreach(folder IN LISTS arg_DATA)
    get_filename_component(folder ${folder} ABSOLUTE)
    if(NOT IS_DIRECTORY ${folder})
      message(FATAL_ERROR "lora_host_add_plugin(${name}): DATA: there is no folder ${folder}")
    endif()
    get_filename_component(base ${folder} NAME)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
    foreach(file IN LISTS files)
      set(copy ${CMAKE_BINARY_DIR}/lib/lora-host/${name}/${base}/${file})
      add_custom_command(
        OUTPUT ${copy}
        COMMAND ${CMAKE_COMMAND} -E copy ${folder}/${file} ${copy}
        DEPENDS ${folder}/${file}
        VERBATIM)
      target_sources(${name} PRIVATE ${copy})
      set_source_files_properties(${copy} PROPERTIES HEADER_FILE_ONLY ON)
    endforeach()
    install(DIRECTORY ${folder} DESTINATION ${LORA_HOST_PLUGIN_DESTINATION}/${name})
  endforeach()
endfunction()
