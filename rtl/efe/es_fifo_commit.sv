// FIFO in block RAM whose words come out only once they are committed: a frame is written as it comes and let through when its check was good.
//
// `s_commit` in the clock of a word's `s_valid`, or later, lets through all that was written; `s_drop` takes back what was written since. A word
// that finds no room is not written and raises `s_full` for that clock. Latency 3 clocks from commit; full rate.
module es_fifo_commit #(
    parameter int WIDTH = 64,  // bits of a word
    parameter int DEPTH = 512  // words, a power of two
) (
    input wire clk,
    input wire rst,

    input  wire  [WIDTH-1:0] s_data,
    input  wire              s_valid,
    input  wire              s_commit,
    input  wire              s_drop,
    output logic             s_full,

    output logic [WIDTH-1:0] m_data,
    output logic             m_valid,
    input  wire              m_ready
);
  localparam int AW = $clog2(DEPTH);

  if (DEPTH < 4 || (1 << AW) != DEPTH || WIDTH < 1) begin : gen_check
    $error("es_fifo_commit: DEPTH is not a power of two of at least 4, or WIDTH below 1");
  end

  logic [WIDTH-1:0] memory[DEPTH];
  logic [WIDTH-1:0] word;
  logic [AW:0] written, committed, taken, after;
  logic read, word_valid, put, full;
  // Words read and not yet taken out of the short FIFO behind the memory: never more than fit there.
  logic [2:0] ahead;

  assign s_full = s_valid && full;
  assign put = s_valid && !full;
  assign after = written + (AW + 1)'(put);
  assign read = committed != taken && (ahead < 3'd4 || (m_valid && m_ready));

  always_ff @(posedge clk) begin
    if (put) memory[written[AW-1:0]] <= s_data;
    word <= memory[taken[AW-1:0]];
  end

  always_ff @(posedge clk) begin
    word_valid <= read;
    taken <= taken + (AW + 1)'(read);
    ahead <= ahead + 3'(read) - 3'(m_valid && m_ready);
    // Room by what was taken before this clock: a word more than full is never written.
    full <= (after - taken) == (AW + 1)'(DEPTH);
    if (s_drop) begin
      written <= committed;
      full <= (committed - taken) == (AW + 1)'(DEPTH);
    end else begin
      written <= after;
      if (s_commit) committed <= after;
    end
    if (rst) begin
      word_valid <= 1'b0;
      written <= '0;
      committed <= '0;
      taken <= '0;
      ahead <= '0;
      full <= 1'b0;
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
