# hvd_p3_cuda: the sources that need CUDA and NCCL, as objects for the engine's shared library and
# for the test programs. Included by CMakeLists.txt if HVD_P3_WITH_CUDA is on.
#
# CUDA's runtime is looked for where nvcc looks, NCCL in NCCL_HOME and the system's folders. setup.py,
# which also looks for what pip installs, sets HVD_P3_CUDA_INCLUDE_DIR, HVD_P3_CUDART_LIBRARY,
# HVD_P3_NCCL_INCLUDE_DIR and HVD_P3_NCCL_LIBRARY.

# For all GPUs that this nvcc knows, and by PTX for later ones.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES all-major)
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "CUDA flags of the Release build")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -g" CACHE STRING "CUDA flags with assertions")
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.4)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, but hvd_p3 "
                      "needs 11.4 or newer.")
endif()

# Not by CMake's own module, which insists on libcudart.so: pip installs none.
find_path(HVD_P3_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
          DOC "The folder of CUDA's headers")
find_library(HVD_P3_CUDART_LIBRARY NAMES cudart_static
             HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES}
             DOC "CUDA's static runtime library")
if(NOT HVD_P3_CUDA_INCLUDE_DIR OR NOT HVD_P3_CUDART_LIBRARY)
  message(FATAL_ERROR "cuda_runtime_api.h and libcudart_static.a were not found beside "
                      "${CMAKE_CUDA_COMPILER}: install the whole CUDA toolkit.")
endif()

find_path(HVD_P3_NCCL_INCLUDE_DIR nccl.h HINTS ENV NCCL_HOME PATH_SUFFIXES include
          DOC "The folder of nccl.h")
# By its full name too: pip installs no libnccl.so.
find_library(HVD_P3_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ENV NCCL_HOME
             PATH_SUFFIXES lib lib64 DOC "NCCL's shared library")
if(NOT HVD_P3_NCCL_INCLUDE_DIR OR NOT HVD_P3_NCCL_LIBRARY)
  message(FATAL_ERROR "nccl.h and libnccl.so.2 were not found (looked in NCCL_HOME and the system's "
                      "folders): set NCCL_HOME to the folder that has include/ and lib/ of NCCL.")
endif()
file(STRINGS ${HVD_P3_NCCL_INCLUDE_DIR}/nccl.h nccl_version_lines
     REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
string(REGEX REPLACE "[^0-9]+" "." HVD_P3_NCCL_VERSION "${nccl_version_lines}")
string(REGEX REPLACE "^\\.|\\.$" "" HVD_P3_NCCL_VERSION "${HVD_P3_NCCL_VERSION}")

add_library(hvd_p3_nccl SHARED IMPORTED)
set_target_properties(hvd_p3_nccl PROPERTIES
  IMPORTED_LOCATION ${HVD_P3_NCCL_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${HVD_P3_NCCL_INCLUDE_DIR})

# Where NCCL is found when hvd_p3 is loaded, after LD_LIBRARY_PATH: beside hvd_p3 among the packages
# of pip, or where it was when hvd_p3 was built.
list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../nvidia/nccl/lib")
get_filename_component(nccl_folder ${HVD_P3_NCCL_LIBRARY} DIRECTORY)
if(NOT nccl_folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
  list(APPEND CMAKE_INSTALL_RPATH ${nccl_folder})
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS
     csrc/device/cuda_*.cc csrc/device/cuda_*.cu csrc/transport/nccl*.cc)
add_library(hvd_p3_cuda OBJECT ${cuda_sources})
target_include_directories(hvd_p3_cuda PUBLIC csrc)
target_include_directories(hvd_p3_cuda SYSTEM PUBLIC ${HVD_P3_CUDA_INCLUDE_DIR})
target_link_libraries(hvd_p3_cuda PUBLIC
  hvd_p3_nccl ${HVD_P3_CUDART_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} rt)
