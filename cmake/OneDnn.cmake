# Decides whether the CPU kernels multiply bf16 by oneDNN (LORA_WITH_ONEDNN) and finds it.
#
#   LORA_ONEDNN   auto: with oneDNN where it is found; on: an error if not; off: without, and bf16 is widened to float32
set(LORA_WITH_ONEDNN OFF)

if(NOT LORA_ONEDNN MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "LORA_ONEDNN must be auto, on or off, found '${LORA_ONEDNN}'")
endif()
if(LORA_ONEDNN STREQUAL "off")
  return()
endif()

# Its own package description would have OpenCL linked too, which is for GPUs.
find_path(LORA_ONEDNN_INCLUDE dnnl.hpp)
find_library(LORA_ONEDNN_LIBRARY dnnl)
if(LORA_ONEDNN_INCLUDE AND LORA_ONEDNN_LIBRARY)
  set(LORA_WITH_ONEDNN ON)
  message(STATUS "lora-host: bf16 on the CPU by oneDNN ${LORA_ONEDNN_LIBRARY}")
elseif(LORA_ONEDNN STREQUAL "on")
  message(FATAL_ERROR "LORA_ONEDNN=on: oneDNN was not found. Install it (libdnnl-dev)")
else()
  message(STATUS "lora-host: bf16 on the CPU in float32 (oneDNN was not found: libdnnl-dev)")
endif()
