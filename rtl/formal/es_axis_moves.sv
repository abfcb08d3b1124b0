// Valid does not wait for ready: while `waiting` (the module holds something to hand out) and ready stays low, valid comes within CLOCKS.
module es_axis_moves #(
    parameter int CLOCKS = 4
) (
    input wire clk,
    input wire rst,
    input wire waiting,
    input wire valid
);
  logic [7:0] idle = '0;

  always_ff @(posedge clk) begin
    idle <= (rst || valid || !waiting) ? '0 : idle + 1'b1;
  end
  always_comb assert (idle <= 8'(CLOCKS));
endmodule
