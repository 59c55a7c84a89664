# What cpack makes of an installed tree:
#
#   cpack -G DEB     lora-host with plugins, kernels and SDK; what was built of its modules: lora-host-cuda for NVIDIA's
#                    GPUs, lora-host-video for videos, lora-host-mpi for several processes, lora-host-nccl for several
#                    GPUs; and lora-host-examples with the small model of the demo. What they depend on is found by dpkg-shlibdeps, but for CUDA's libraries,
#                    which are in packages of NVIDIA's repository; the driver is the machine's.
#   cpack -G TZST    one archive that runs from where it is unpacked, with the libraries that it needs (cmake/Bundle.cmake)
#
#   LORA_PACKAGE_MAINTAINER   who made the packages: "Name <address>"
set(LORA_PACKAGE_MAINTAINER "the lora-host developers <developers@lora-host.invalid>" CACHE STRING "Maintainer of packages")

# Beside what each folder installs.
install(FILES LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES cmake/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-host/examples)
install(DIRECTORY examples/demo examples/toy_flux DESTINATION ${CMAKE_INSTALL_DATADIR}/lora-host/examples COMPONENT examples)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/bundle.cmake CONTENT
"set(program \"$<TARGET_FILE:lora-host>\")
set(kernels \"$<TARGET_FILE:lora_kernels>\")
set(own \"${CMAKE_BINARY_DIR}/\")
set(libraries \"${CMAKE_INSTALL_LIBDIR}\")
set(notices \"${CMAKE_INSTALL_DOCDIR}/libraries\")
include(\"${CMAKE_SOURCE_DIR}/cmake/Bundle.cmake\")
")
install(SCRIPT ${CMAKE_BINARY_DIR}/bundle.cmake COMPONENT bundled EXCLUDE_FROM_ALL)

# All that is installed, and no tests.
add_custom_target(packaged DEPENDS lora-host lora_kernels pages ${plugins})
foreach(target lora_kernels_cuda data_video world_mpi world_nccl golden_runner)
  if(TARGET ${target})
    add_dependencies(packaged ${target})
  endif()
endforeach()

set(CPACK_PACKAGE_NAME lora-host)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${LORA_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer of LoRA adapters for diffusion models")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_FILE_NAME "lora-host-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_GENERATOR "DEB;TZST")
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/PackageOf.cmake)
set(CPACK_LORA_CPU_ARCH "${LORA_CPU_ARCH}")

set(CPACK_COMPONENTS_ALL Unspecified sdk examples)
if(LORA_WITH_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
  string(REPLACE "." ";" cuda "${CMAKE_CUDA_COMPILER_VERSION}")
  list(GET cuda 0 cuda_major)
  list(GET cuda 1 cuda_minor)
endif()
if(TARGET data_video)
  list(APPEND CPACK_COMPONENTS_ALL video)
endif()
if(TARGET world_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
if(TARGET world_nccl)
  list(APPEND CPACK_COMPONENTS_ALL nccl)
endif()
set(CPACK_COMPONENT_UNSPECIFIED_GROUP host)
set(CPACK_COMPONENT_SDK_GROUP host)
set(CPACK_COMPONENT_EXAMPLES_GROUP examples)
set(CPACK_COMPONENT_CUDA_GROUP cuda)
set(CPACK_COMPONENT_VIDEO_GROUP video)
set(CPACK_COMPONENT_MPI_GROUP mpi)
set(CPACK_COMPONENT_NCCL_GROUP nccl)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_HOST_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/triggers)  # ldconfig
set(CPACK_DEBIAN_HOST_PACKAGE_NAME lora-host)
set(CPACK_DEBIAN_HOST_DESCRIPTION "trainer of LoRA adapters for diffusion models
 Trains LoRA adapters for image models and writes files that other programs load. Models, optimizers, adapters, samplers
 and schedules are plugins, whose SDK is in this package, as is the library of kernels.")
set(CPACK_DEBIAN_HOST_PACKAGE_SUGGESTS "lora-host-cuda, lora-host-video, lora-host-mpi, lora-host-examples")
set(CPACK_DEBIAN_HOST_PACKAGE_RECOMMENDS "libheif1")  # HEIC and AVIF images
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME lora-host-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)  # CUDA's libraries may come from elsewhere than packages
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "lora-host (= ${PROJECT_VERSION}), cuda-cudart-${cuda_major}-${cuda_minor}, \
libcublas-${cuda_major}-${cuda_minor}, cuda-nvrtc-${cuda_major}-${cuda_minor}, libcudnn9-cuda-${cuda_major} (>= 9.15.1)")
set(CPACK_DEBIAN_CUDA_DESCRIPTION "trainer of LoRA adapters: NVIDIA GPUs
 The module of the library of kernels that computes on GPUs, by CUDA.")
set(CPACK_DEBIAN_VIDEO_PACKAGE_NAME lora-host-video)
set(CPACK_DEBIAN_VIDEO_PACKAGE_DEPENDS "lora-host (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_VIDEO_DESCRIPTION "trainer of LoRA adapters: videos
 The module that reads videos, by FFmpeg.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME lora-host-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "lora-host (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_MPI_DESCRIPTION "trainer of LoRA adapters: several processes
 The module by which the processes of one run speak to each other (mpirun, srun).")
set(CPACK_DEBIAN_NCCL_PACKAGE_NAME lora-host-nccl)
set(CPACK_DEBIAN_NCCL_PACKAGE_SHLIBDEPS OFF)  # NCCL may come from elsewhere than a package
set(CPACK_DEBIAN_NCCL_PACKAGE_DEPENDS "lora-host-cuda (= ${PROJECT_VERSION}), lora-host-mpi (= ${PROJECT_VERSION}), libnccl2")
set(CPACK_DEBIAN_NCCL_DESCRIPTION "trainer of LoRA adapters: several GPUs
 The module by which GPUs pass gradients and weights to each other without their hosts.")
set(CPACK_DEBIAN_EXAMPLES_PACKAGE_NAME lora-host-examples)
set(CPACK_DEBIAN_EXAMPLES_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_EXAMPLES_DESCRIPTION "trainer of LoRA adapters: the demo
 A small model and the pictures of the demo, which trains on a processor within minutes.")
include(CPack)
