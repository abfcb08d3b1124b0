// Misses: pages that were looked up and are not there, told to the driver one after the other (MISS, docs/rnic.md, 6).
//
// Who misses a page waits for `served` with its own miss, which comes when the driver has written it to MISS, and looks again. An interrupt is due for each miss,
// and for the next one when one was served.
module es_rnic_miss (
    input wire clk,
    input wire rst,

    input  wire  [63:0] s0_miss,   // STag, page of its region
    input  wire         s0_valid,
    output logic        s0_ready,
    input  wire  [63:0] s1_miss,
    input  wire         s1_valid,
    output logic        s1_ready,

    output logic [63:0] oldest,        // 0: none
    input  wire  [63:0] answer,        // the driver writes MISS
    input  wire         answer_valid,
    output logic [63:0] served_miss,
    output logic        served,

    output logic irq,
    input  wire  irq_ready,
    output logic stat_miss
);
  logic room, there, take;
  logic [63:0] first;

  assign s0_ready = room;
  assign s1_ready = room && !s0_valid;
  assign stat_miss = room && (s0_valid || s1_valid);
  assign oldest = there ? first : '0;
  assign take = there && answer_valid && answer == first;

  es_fifo #(
      .WIDTH(64),
      .DEPTH(4)
  ) misses (
      .clk,
      .rst,
      .s_data (s0_valid ? s0_miss : s1_miss),
      .s_valid(s0_valid || s1_valid),
      .s_ready(room),
      .m_data (first),
      .m_valid(there),
      .m_ready(take)
  );

  logic due;
  assign irq = due && there && !take;

  always_ff @(posedge clk) begin
    if (irq && irq_ready) due <= 1'b0;
    if (stat_miss || take) due <= 1'b1;
    served <= take;
    served_miss <= first;
    if (rst) begin
      due <= 1'b0;
      served <= 1'b0;
    end
  end
endmodule
