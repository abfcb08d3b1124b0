// WQEs that were sent on the fly and wait: a queue of blocks for each QP, in one block RAM.
//
// A WQE comes as its first block (s_valid) and further ones in the clocks behind it (s_row); it is picked whole: its first block comes a clock after `pick`
// (`first`), further ones in the clocks behind it (`row`). With it stands an index of the QP's ring that it is behind. Nothing is picked while `first` or
// `row` is told, or s_row comes.
module es_rnic_fly_queue #(
    parameter int QPS    = 16,  // QPs, a power of two
    parameter int BLOCKS = 32,  // blocks that a QP's queue holds, a power of two
    parameter int WIDTH  = 512  // bits of a block
) (
    input wire clk,
    input wire rst,

    input wire [$clog2(QPS)-1:0] empty_slot,  // a QP's queue becomes empty
    input wire                   empty,

    input  wire  [$clog2(QPS)-1:0] s_slot,
    input  wire  [      WIDTH-1:0] s_block,
    input  wire  [            3:0] s_blocks,  // of the WQE
    input  wire  [           15:0] s_behind,
    input  wire                    s_valid,
    input  wire                    s_row,
    output logic                   s_room,    // that of s_slot has room for s_blocks

    output logic [        QPS-1:0] queued,          // it has a WQE
    output logic [           15:0] behind   [QPS],  // of its first
    input  wire  [$clog2(QPS)-1:0] pick_slot,
    input  wire                    pick,
    output logic [      WIDTH-1:0] block,
    output logic                   first,
    output logic                   row
);
  localparam int QW = $clog2(QPS);
  localparam int BW = $clog2(BLOCKS);

  if (BLOCKS < 4 || BLOCKS > 256 || (1 << BW) != BLOCKS || (1 << QW) != QPS) begin : gen_check
    $error("es_rnic_fly_queue: QPS or BLOCKS is not a power of two, or BLOCKS not from 4 to 256");
  end

  logic [WIDTH+3:0] memory[QPS*BLOCKS];
  logic [15:0] behind_of[QPS*BLOCKS];
  logic [BW-1:0] head[QPS];
  logic [BW:0] count[QPS];
  logic [BW-1:0] tail, row_at, next_head, read_at, read_next;
  logic [QW-1:0] row_slot, picked_slot;
  logic [3:0] blocks, left;  // of the WQE that goes; further ones
  logic [BW:0] count_after;

  for (genvar i = 0; i < QPS; i++) begin : gen_queued
    assign queued[i] = count[i] != '0;
  end

  assign s_room = 9'(count[s_slot]) + 9'(s_blocks) <= 9'(BLOCKS);
  assign tail = head[s_slot] + count[s_slot][BW-1:0];
  assign next_head = head[picked_slot] + BW'(blocks);
  assign read_at = first ? head[picked_slot] + 1'b1 : read_next;

  always_ff @(posedge clk) begin
    if (s_valid || s_row) memory[s_valid?{s_slot, tail} : {row_slot, row_at}] <= {s_block, s_blocks};
    {block, blocks} <= memory[pick?{pick_slot, head[pick_slot]} : {picked_slot, read_at}];
    if (s_valid) begin
      behind_of[{s_slot, tail}] <= s_behind;
      row_slot <= s_slot;
    end
    row_at <= (s_valid ? tail : row_at) + 1'b1;
    read_next <= read_at + 1'b1;
    if (pick) picked_slot <= pick_slot;
  end

  // The WQE that was picked leaves the queue in the clock in which its first block tells how long it is.
  always_comb begin
    count_after = count[s_slot];
    if (first && picked_slot == s_slot) count_after -= (BW + 1)'(blocks);
  end

  always_ff @(posedge clk) begin
    first <= pick;
    row   <= first ? blocks > 4'd1 : left > 4'd1;
    left  <= first ? blocks - 1'b1 : left - 4'(row);
    if (first) begin
      head[picked_slot]   <= next_head;
      count[picked_slot]  <= count[picked_slot] - (BW + 1)'(blocks);
      behind[picked_slot] <= behind_of[{picked_slot, next_head}];
    end
    if (s_valid) begin
      count[s_slot] <= count_after + (BW + 1)'(s_blocks);
      if (count_after == '0) behind[s_slot] <= s_behind;
    end
    if (empty) begin
      head[empty_slot]  <= '0;
      count[empty_slot] <= '0;
    end
    if (rst) begin
      first <= 1'b0;
      row   <= 1'b0;
      left  <= '0;
      for (int i = 0; i < QPS; i++) begin
        head[i]  <= '0;
        count[i] <= '0;
      end
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      put_finds_room : assert (!s_valid || s_room);
      pick_finds_one : assert (!pick || (queued[pick_slot] && !first && !row));
    end
  end
`endif
endmodule
