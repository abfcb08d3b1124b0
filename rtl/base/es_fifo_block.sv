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
  logic [AW-1:0] put_at, read_at;
  // Words in memory; beside it whether there is one, as no comparison is to stand behind m_ready.
  logic [AW:0] count;
  logic some, read, word_valid, put, taken;
  // Words read and not yet taken out of the short FIFO behind the memory: never more than fit there.
  logic [2:0] ahead;

  assign put   = s_valid && s_ready;
  assign taken = m_valid && m_ready;
  assign read  = some && (!ahead[2] || taken);

  always_ff @(posedge clk) begin
    if (put) memory[put_at] <= s_data;
    word <= memory[read_at];
  end

  always_ff @(posedge clk) begin
    word_valid <= read;
    if (put) put_at <= put_at + 1'b1;
    if (read) read_at <= read_at + 1'b1;
    if (read && !taken) ahead <= ahead + 1'b1;
    else if (taken && !read) ahead <= ahead - 1'b1;
    if (put && !taken) used <= used + 1'b1;
    else if (taken && !put) used <= used - 1'b1;
    s_ready <= 1'b1;
    if (put && !read) begin
      count   <= count + 1'b1;
      some    <= 1'b1;
      s_ready <= count != (AW + 1)'(DEPTH - 1);
    end else if (read && !put) begin
      count <= count - 1'b1;
      some  <= count != (AW + 1)'(1);
    end else s_ready <= count != (AW + 1)'(DEPTH);
    if (rst) begin
      word_valid <= 1'b0;
      put_at <= '0;
      read_at <= '0;
      count <= '0;
      some <= 1'b0;
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
