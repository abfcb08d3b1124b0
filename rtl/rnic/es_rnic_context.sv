// The first 64 bytes of the QP contexts, as one of their readers sees them: written by the host, read in the same clock.
module es_rnic_context #(
    parameter int QPS = 16  // QPs, a power of two
) (
    input wire clk,

    input wire [$clog2(QPS)-1:0] w_slot,
    input wire [            2:0] w_word,  // 64-bit word
    input wire [           63:0] w_data,
    input wire [            1:0] w_half,  // 32-bit halves that are written
    input wire                   w_valid,

    input  wire                   [$clog2(QPS)-1:0] slot,
    output es_rnic_pkg::context_t                   entry
);
  logic [511:0] words;
  assign entry = words;

  for (genvar i = 0; i < 16; i++) begin : gen_half
    logic [31:0] memory[QPS];
    assign words[32*i+:32] = memory[slot];
    always_ff @(posedge clk) if (w_valid && w_word == 3'(i / 2) && w_half[i%2]) memory[w_slot] <= w_data[32*(i%2)+:32];
  end
endmodule
