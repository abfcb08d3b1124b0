// What is put into the queue of a QP is picked from it, whole, once and in order, with the index that it is behind; no queue holds more than it may.
module prove_rnic_fly_queue (
    input wire clk,
    input wire rst,
    input wire s_slot,
    input wire [3:0] s_block,
    input wire [3:0] s_blocks,
    input wire [15:0] s_behind,
    input wire s_valid,
    input wire pick_slot,
    input wire pick,
    input wire any_slot,
    input wire [3:0] any_which,
    input wire [3:0] any_row
);
  logic begun = 1'b0, s_row, s_room, first, row;
  logic [ 1:0] queued;
  logic [15:0] behind [2];
  logic [ 3:0] block;
  always_comb if (!begun) assume (rst);
  always_comb if (begun) assume (!rst);

  es_rnic_fly_queue #(
      .QPS(2),
      .BLOCKS(4),
      .WIDTH(4)
  ) dut (
      .empty_slot(1'b0),
      .empty(1'b0),
      .*
  );

  // Blocks come without a pause; three are as many as nine, but for the depth of the proof.
  logic [3:0] to_come = '0;
  assign s_row = to_come != '0;
  always_comb begin
    if (s_valid) assume (!rst && !s_row && s_room && s_blocks != '0 && s_blocks <= 4'd3);
    if (pick) assume (!rst && queued[pick_slot] && !first && !row && !s_row);
  end

  // The solver picks a QP, a WQE of it and a block of that.
  logic slot, put_slot, picked_slot;
  logic [3:0] which, came = '0, went = '0;
  logic [3:0] at, at_put = '0, at_got = '0, word, length;
  logic [15:0] place;
  logic known = 1'b0, follows = 1'b0;
  logic [4:0] held = '0;  // blocks in the queue of `slot`
  logic [3:0] lengths[16];

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) begin
      slot  <= any_slot;
      which <= any_which;
      at    <= any_row;
    end
    if (s_valid) begin
      to_come  <= s_blocks - 1'b1;
      put_slot <= s_slot;
      at_put   <= 4'd1;
      if (s_slot == slot) begin
        came <= came + 1'b1;
        lengths[came] <= s_blocks;
        if (came == which) begin
          place  <= s_behind;
          length <= s_blocks;
          if (at == '0) word <= s_block;
        end
      end
    end else if (s_row) begin
      to_come <= to_come - 1'b1;
      at_put  <= at_put + 1'b1;
      if (put_slot == slot && came - 1'b1 == which && at_put == at) word <= s_block;
    end
    if (pick) picked_slot <= pick_slot;
    if (first) at_got <= 4'd1;
    else if (row) at_got <= at_got + 1'b1;
    if (first) begin
      follows <= 1'b0;
      if (picked_slot == slot) begin
        went <= went + 1'b1;
        follows <= went == which;
      end
    end
    held <= held + (s_valid && s_slot == slot ? 5'(s_blocks) : '0) - (first && picked_slot == slot ? 5'(lengths[went]) : '0);
    if (rst) begin
      to_come <= '0;
      came <= '0;
      went <= '0;
      held <= '0;
      follows <= 1'b0;
    end
  end

  always_comb
    if (begun && !rst) begin
      // One comes out only if one is in; the one followed is what was put, and as long.
      if (first && picked_slot == slot) assert (came != went);
      if (first && picked_slot == slot && went == which && at == '0) assert (block == word);
      if (row && follows && at_got == at) assert (block == word);
      if (row && follows) assert (at_got < length);
      // Rows follow without a pause, until it is whole.
      if (!first && !row && follows) assert (at_got == length);
      if (row) assert (!first);
      if (queued[slot] && !first && went == which) assert (behind[slot] == place);
      if (!first) assert (queued[slot] == (came != went));
      assert (held <= 5'd4);
      // There is room exactly if there is.
      if (!first && s_slot == slot) assert (s_room == ({1'b0, held} + 6'(s_blocks) <= 6'd4));
    end
endmodule
