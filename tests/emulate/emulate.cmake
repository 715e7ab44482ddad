# emulated/TEST/FAMILY: tests of the avx512 and amx families where no processor has them. Programs
# that are there anyway are linked once more with these families' files compiled against
# immintrin.h of this folder: objects, so that the linker leaves those of kernels_cpu aside. By
# clang also where gcc makes the rest: gcc takes a minute for some files, and is four times slower.
find_program(CLANG clang)
if(NOT CLANG OR SANITIZE OR NOT emulated IN_LIST TESTS_LINKED)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulate/*.c
  ${PROJECT_SOURCE_DIR}/kernels/cpu/*_avx512.c ${PROJECT_SOURCE_DIR}/kernels/cpu/*_amx.c)
set(flags -std=gnu11 -O2 -g -mavx2 -mfma -mf16c -ffp-contract=off -fno-strict-aliasing
  -Wall -Wextra -Werror -Wno-psabi -Wno-unused-parameter -D_GNU_SOURCE
  -DMEM_PURPOSE=MEM_KERNELS -I${PROJECT_SOURCE_DIR}
  -isystem ${CMAKE_CURRENT_SOURCE_DIR}/emulate)
set(objects "")
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulated)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}.o)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d
    COMMAND ${CLANG} ${flags} -MD -MF ${object}.d -c ${source} -o ${object})
  list(APPEND objects ${object})
endforeach()
add_custom_target(emulated_objects DEPENDS ${objects})

function(refrain_emulated path libraries)
  string(REPLACE "/" "_" target ${path})
  add_executable(emulated_${target} $<TARGET_OBJECTS:${target}> ${objects})
  add_dependencies(emulated_${target} emulated_objects)
  target_link_libraries(emulated_${target} PRIVATE ${libraries} PkgConfig::CMOCKA)
  set_target_properties(emulated_${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
    ${PROJECT_BINARY_DIR}/tests LINKER_LANGUAGE C)
  foreach(family avx512 amx amx-bf16)
    add_test(NAME emulated/${path}/${family} COMMAND emulated_${target} ${family})
    set_tests_properties(emulated/${path}/${family} PROPERTIES LABELS emulated TIMEOUT 300
      SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

foreach(op attention features lora matmul rows)
  refrain_emulated(contract/test_ops_${op} worker)
endforeach()
refrain_emulated(golden/test_tiny worker)
refrain_emulated(golden/test_tiny_bits worker)
refrain_emulated(exact/test_tiny exact)
