/* chat.bin as constant data, like model.bin in model_blob.S. */
    .section .rodata
    .balign 8
    .global chat_blob
    .global chat_blob_end
chat_blob:
    .incbin "chat.bin"
chat_blob_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
