# Compiler flags and the three ways to declare something: refrain_library (one folder),
# refrain_program (one main.c) and refrain_unit_tests (a folder of tests that mirrors a library).
include_guard()
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv>=1.44)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq>=4.3)
# libzmq.pc names the headers of its own dependencies (kerberos, pgm): we use none of them, and
# CMake moves them about between two configures, which would compile everything again.
set_target_properties(PkgConfig::ZMQ PROPERTIES INTERFACE_COMPILE_OPTIONS ""
                                                INTERFACE_INCLUDE_DIRECTORIES "")
pkg_check_modules(PROTOBUFC REQUIRED IMPORTED_TARGET libprotobuf-c>=1.4)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.14)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.42)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8)
pkg_check_modules(MSGPACK REQUIRED IMPORTED_TARGET msgpack>=4)
pkg_check_modules(INIH REQUIRED IMPORTED_TARGET inih)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(SYSTEMD IMPORTED_TARGET libsystemd)

add_library(refrain_flags INTERFACE)
target_compile_options(refrain_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wwrite-strings -Wformat=2 -Wno-format-nonliteral -Wno-unused-parameter
  -fno-strict-aliasing -fno-common -fvisibility=hidden -g)
# Floating point is part of the contract (promise 2): no contraction behind our back.
target_compile_options(refrain_flags INTERFACE -ffp-contract=off)
target_compile_definitions(refrain_flags INTERFACE _GNU_SOURCE REFRAIN_VERSION="${PROJECT_VERSION}")
target_include_directories(refrain_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_link_libraries(refrain_flags INTERFACE Threads::Threads m)
if(WERROR)
  target_compile_options(refrain_flags INTERFACE -Werror)
endif()
if(SANITIZE)
  target_compile_options(refrain_flags INTERFACE -fsanitize=${SANITIZE} -fno-omit-frame-pointer)
  target_link_options(refrain_flags INTERFACE -fsanitize=${SANITIZE})
endif()

# Coverage of the libraries that a fuzzer calls is what guides it; anywhere else (tests, scheduler,
# kernels) it would only make the tests of the same build slow. Programs link as ever.
set(FUZZED "^(proto|router|worker/(load|kv|tier))(/|$)")

# Whose memory a folder's allocations are (proto/base/mem.h).
set(MEM_PURPOSES
  proto/base=BASE proto=CARDS proto/files=CARDS proto/grammar=GRAMMAR
  kernels/ref=KERNELS kernels/cpu=KERNELS kernels=KERNELS
  worker/load=MODEL worker/model=MODEL worker/kv=KV_BOOKS worker/sched=SCHEDULER worker/tier=TIERS worker/lora=ADAPTERS
  worker/sample=SAMPLER worker/engine=ENGINE worker/tp=GROUP worker=WORKER
  router/http=HTTP router/api=API router/text=TEXT router/session=SESSIONS router/answer=ANSWERS
  router/route=ROUTING router=ROUTER deploy/cli=OTHER)

function(refrain_mem_purpose name path)
  foreach(pair ${MEM_PURPOSES})
    if(pair MATCHES "^${path}=(.*)$")
      target_compile_definitions(${name} PRIVATE MEM_PURPOSE=MEM_${CMAKE_MATCH_1})
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${path} has no purpose in MEM_PURPOSES (cmake/Refrain.cmake)")
endfunction()

# refrain_library(worker/kv DEPS proto_base ...): every .c of the folder, as library worker_kv.
function(refrain_library path)
  cmake_parse_arguments(ARG "" "" "DEPS;EXCLUDE;SOURCES" ${ARGN})
  string(REPLACE "/" "_" name ${path})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${path}/*.c)
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  foreach(excluded ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "/${excluded}$")
  endforeach()
  list(APPEND sources ${ARG_SOURCES})
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE refrain_flags ${ARG_DEPS})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC refrain_flags ${ARG_DEPS})
  refrain_mem_purpose(${name} ${path})
  if(WITH_FUZZERS AND path MATCHES "${FUZZED}")
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

function(refrain_program name main)
  if(NOT EXISTS ${main})
    return()
  endif()
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE ${ARGN})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()
