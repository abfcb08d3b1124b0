// Synchronous FIFO in block RAM, the first word falls through. For the long buffers of a data path.
//
// Latency 3 clocks through an empty FIFO, full rate. Holds at least DEPTH words. `used` counts the words taken in and not handed out.
module es_fifo_block #(
    parameter int WIDTH = 64,  // bits of a word
    parameter int DEPTH = 512  // words, a power of two
) (
    input wire clk,
    input wire rst,

    input  wire  [WIDTH-1:0] s_data,
    input  wire              s_valid,
    output logic             s_ready,

    output logic [WIDTH-1:0] m_data,
    output logic             m_valid,
    input  wire              m_ready,

    output logic [$clog2(DEPTH)+1:0] used
);
  localparam int AW = $clog2(DEPTH);

  if (DEPTH < 4 || (1 << AW) != DEPTH || WIDTH < 1) begin : gen_check
    $error("es_fifo_block: DEPTH is not a power of two of at least 4, or WIDTH below 1");
  end

  logic [WIDTH-1:0] memory[DEPTH];
  logic [WIDTH-1:0] word;
  logic [AW:0] written, taken;
  logic read, word_valid, put;
  // Words read and not yet taken out of the short FIFO behind the memory: never more than fit there.
  logic [2:0] ahead;

  assign put  = s_valid && s_ready;
  assign read = written != taken && (ahead < 3'd4 || (m_valid && m_ready));

  always_ff @(posedge clk) begin
    if (put) memory[written[AW-1:0]] <= s_data;
    word <= memory[taken[AW-1:0]];
  end

  always_ff @(posedge clk) begin
    word_valid <= read;
    written <= written + (AW + 1)'(put);
    taken <= taken + (AW + 1)'(read);
    ahead <= ahead + 3'(read) - 3'(m_valid && m_ready);
    used <= used + (AW + 2)'(put) - (AW + 2)'(m_valid && m_ready);
    s_ready <= (written + (AW + 1)'(put) - taken - (AW + 1)'(read)) != (AW + 1)'(DEPTH);
    if (rst) begin
      word_valid <= 1'b0;
      written <= '0;
      taken <= '0;
      ahead <= '0;
      used <= '0;
      s_ready <= 1'b0;
    end
  end

  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo #(
      .WIDTH(WIDTH),
      .DEPTH(4)
  ) front (
      .clk,
      .rst,
      .s_data (word),
      .s_valid(word_valid),
      .s_ready(),            // there is always room: `ahead`
      .m_data,
      .m_valid,
      .m_ready
  );
  /* verilator lint_on PINCONNECTEMPTY */
endmodule
