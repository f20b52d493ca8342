// What waits in the queue with an instruction says how its writing begins.
function automatic logic begins_right(input logic [3:0] phase, input logic more,
                                      input logic last_run, input load_t of);
    logic right_phase, right_more, right_last;
    right_phase = phase == (of.x_size == '0 ? 4'b0001 : of.y_pad_top != '0 ? 4'b0100
        : of.y_size != '0 ? (of.x_pad_left != '0 ? 4'b0101 : 4'b1000)
        : of.y_pad_bottom != '0 ? 4'b0111 : 4'b0001);
    right_more = more == (phase == 4'b0100 ? of.y_pad_top != 4'd1
        : phase == 4'b0111 ? of.y_pad_bottom != 4'd1 : of.y_size != 16'd1);
    right_last = last_run == (!more && (phase == 4'b0100 ? of.y_size == '0 && of.y_pad_bottom == '0
        : phase == 4'b1000 ? of.x_pad_right == '0 && of.y_pad_bottom == '0
        : phase != 4'b0101));
    return right_phase && right_more && (phase == 4'b0001 || right_last);
endfunction
