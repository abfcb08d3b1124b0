// Rules of a ready/valid stream, to be assumed at an input (ASSUME = 1) or proved at an output (ASSUME = 0).
//
// 1. Nothing is valid in the clock after reset.  2. What is valid stays valid until it is taken.  3. Its payload does not change until then.
// That valid does not wait for ready is proved by es_axis_moves beside it.
module es_axis_rules #(
    parameter int WIDTH  = 64,  // bits of all payload together
    parameter bit ASSUME = 0    // 1: assume, 0: assert
) (
    input wire             clk,
    input wire             rst,
    input wire [WIDTH-1:0] payload,
    input wire             valid,
    input wire             ready
);
  logic past = 1'b0, was_rst, was_stalled;
  logic [WIDTH-1:0] was;

  always_ff @(posedge clk) begin
    past <= 1'b1;
    was_rst <= rst;
    was_stalled <= valid && !ready && !rst;
    was <= payload;
  end

  logic quiet, kept, stable;
  assign quiet  = !(past && was_rst && valid);
  assign kept   = !(past && was_stalled && !was_rst && !valid);
  assign stable = !(past && was_stalled && !was_rst && valid && payload != was);

  always_comb begin
    if (ASSUME) begin
      assume (quiet);
      assume (kept);
      assume (stable);
    end else begin
      assert (quiet);
      assert (kept);
      assert (stable);
    end
  end
endmodule
