/* model.bin as constant data. An assembler includes it as it is; a C array of the same bytes would
 * be five times as large and take minutes to compile. */
    .section .rodata
    .balign 8
    .global vta_blob
    .global vta_blob_end
vta_blob:
    .incbin "model.bin"
vta_blob_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
