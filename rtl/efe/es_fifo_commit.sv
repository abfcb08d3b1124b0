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
  logic [AW-1:0] put_at, committed_at, read_at, put_after;
  // Words in memory: all, and those that may come out. Beside the counts what is asked of them, as no comparison is to stand behind m_ready.
  logic [AW:0] held, good, held_next;
  logic some, full, read, word_valid, put, taken;
  // Words read and not yet taken out of the short FIFO behind the memory: never more than fit there.
  logic [2:0] ahead;

  assign s_full = s_valid && full;
  assign put = s_valid && !full;
  assign put_after = put_at + AW'(put);
  assign taken = m_valid && m_ready;
  assign read = some && (!ahead[2] || taken);
  always_comb begin
    held_next = held;
    if (put && !read) held_next = held + 1'b1;
    if (read && !put) held_next = held - 1'b1;
  end

  always_ff @(posedge clk) begin
    if (put) memory[put_at] <= s_data;
    word <= memory[read_at];
  end

  always_ff @(posedge clk) begin
    word_valid <= read;
    if (read) read_at <= read_at + 1'b1;
    if (read && !taken) ahead <= ahead + 1'b1;
    else if (taken && !read) ahead <= ahead - 1'b1;
    if (s_drop) begin
      put_at <= committed_at;
      held   <= good - (AW + 1)'(read);
      full   <= good == (AW + 1)'(DEPTH) && !read;
    end else begin
      put_at <= put_after;
      held   <= held_next;
      full   <= !read && (put ? held == (AW + 1)'(DEPTH - 1) : held == (AW + 1)'(DEPTH));
    end
    good <= good - (AW + 1)'(read);
    some <= good != '0 && !(read && good == (AW + 1)'(1));
    if (s_commit && !s_drop) begin
      committed_at <= put_after;
      good <= held_next;
      some <= put || (held != '0 && !(read && held == (AW + 1)'(1)));
    end
    if (rst) begin
      word_valid <= 1'b0;
      put_at <= '0;
      committed_at <= '0;
      read_at <= '0;
      held <= '0;
      good <= '0;
      some <= 1'b0;
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
