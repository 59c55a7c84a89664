# Builds a copy of sdk/template with an installed SDK, as a third party would, and installs it beside the host's plugins.
#   cmake -DPREFIX=<installed tree> -DTEMPLATE=<sdk/template> -DWORK=<scratch folder> -DCXX=<compiler> -P sdk_template.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(COPY ${TEMPLATE}/ DESTINATION ${WORK}/source)
run(${CMAKE_COMMAND} -S ${WORK}/source -B ${WORK}/build -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CMAKE_COMMAND} --install ${WORK}/build --prefix ${PREFIX})
file(GLOB_RECURSE installed ${PREFIX}/sign_sgd.so)
if(NOT installed)
  message(FATAL_ERROR "sign_sgd.so was not installed below ${PREFIX}")
endif()
