// Round-robin arbiter: among the requests, the first one after the last that was taken.
//
// Combinational from `request` to `grant`; `taken` says that the grant of this clock was used. A requester that keeps asking is granted
// after at most N - 1 others.
module es_arbiter #(
    parameter int N = 4  // requesters
) (
    input wire clk,
    input wire rst,

    input  wire  [                      N-1:0] request,
    output logic [                      N-1:0] grant,    // one-hot, or none
    output logic [(N > 1 ? $clog2(N) : 1)-1:0] index,
    input  wire                                taken
);
  if (N < 1) begin : gen_check
    $error("es_arbiter: N below 1");
  end

  // Bits above the last one taken.
  logic [N-1:0] after, above, first_above, first;

  assign above = request & after;
  assign first_above = above & (~above + 1'b1);
  assign first = request & (~request + 1'b1);
  assign grant = |above ? first_above : first;

  always_comb begin
    index = '0;
    for (int i = 0; i < N; i++) if (grant[i]) index |= $bits(index)'(i);
  end

  always_ff @(posedge clk) begin
    if (taken && |grant) after <= ~(grant | (grant - 1'b1));
    if (rst) after <= '0;
  end
endmodule
