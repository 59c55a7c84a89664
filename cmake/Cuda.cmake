# Decides whether the CUDA backend is built (LORA_WITH_CUDA) and finds what it needs.
#
#   LORA_CUDA           auto: with CUDA where a toolkit and cuDNN are found; on: an error if not; off: without
#   LORA_CUDNN_ROOT     where cuDNN is (a folder with include/ and lib/), if not beside the toolkit
#   CMAKE_CUDA_ARCHITECTURES   GPUs to build for, 75 and newer; by default those that are sold today
include(CheckLanguage)

set(LORA_CUDNN_ROOT "" CACHE PATH "Folder with include/cudnn.h and lib/libcudnn.so.9")
set(LORA_WITH_CUDA OFF)

if(NOT LORA_CUDA MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "LORA_CUDA must be auto, on or off, found '${LORA_CUDA}'")
endif()
if(LORA_CUDA STREQUAL "off")
  message(STATUS "lora-host: backends: CPU only (LORA_CUDA=off)")
  return()
endif()

# Says why there is no CUDA backend: an error where one was asked for.
function(lora_without_cuda reason)
  if(LORA_CUDA STREQUAL "on")
    message(FATAL_ERROR "LORA_CUDA=on: ${reason}")
  endif()
  message(STATUS "lora-host: backends: CPU only (${reason})")
endfunction()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LORA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(LORA_NVCC)
    set(CMAKE_CUDA_COMPILER ${LORA_NVCC})
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  lora_without_cuda("no CUDA compiler was found. Install the CUDA toolkit 13 or set CUDACXX")
  return()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  lora_without_cuda("the CUDA toolkit is ${CMAKE_CUDA_COMPILER_VERSION}, expected 13.0 or newer")
  return()
endif()
find_package(CUDAToolkit REQUIRED)

find_path(LORA_CUDNN_INCLUDE cudnn.h HINTS ${LORA_CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(LORA_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${LORA_CUDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR}
  PATH_SUFFIXES lib lib64)
if(NOT LORA_CUDNN_INCLUDE OR NOT LORA_CUDNN_LIBRARY)
  lora_without_cuda("cuDNN was not found. Install cuDNN 9.15.1 or newer, or set LORA_CUDNN_ROOT to its folder")
  return()
endif()
set(LORA_WITH_CUDA ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it for nvcc 12 and newer
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
message(STATUS "lora-host: backends: CPU and CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, "
  "cuDNN ${LORA_CUDNN_LIBRARY}")
