// Joins pieces of bytes into packets without gaps: what a segment generator puts in a row (header, then data from memory at any address).
//
// A beat of a piece has `s_bytes` bytes from byte `s_offset` on; s_last ends the packet. Out comes an AXI-Stream whose beats but the last are full.
// Latency 1 clock. A packet takes a clock for each of its beats in or out, whichever are more: if the last bytes of a packet need a beat of their own, the
// first beat of the next packet is taken beside it, if it is not a full one. So a header of 20 bytes that is given as 4, 8 and 8 costs no clock.
//
// s_ready hangs on m_axis_tready and on s_bytes, s_last: put a register slice around it where that matters.
module es_axis_pack #(
    parameter int DATA_W = 64  // bits of a beat: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire  [          DATA_W-1:0] s_data,
    input  wire  [$clog2(DATA_W/8)-1:0] s_offset,
    input  wire  [  $clog2(DATA_W/8):0] s_bytes,   // 1 to DATA_W / 8 - s_offset
    input  wire                         s_last,
    input  wire                         s_valid,
    output logic                        s_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_axis_pack: DATA_W is not 64, 128, 256 or 512");
  end

  logic [DATA_W-1:0] kept, turned, joined;
  logic [LB-1:0] fill;  // bytes in `kept`
  logic flush;  // `kept` is the end of a packet
  logic load, take, full;
  logic [LB-1:0] at, turn;
  logic [LB:0] total;

  assign load = m_axis_tready || !m_axis_tvalid;
  assign s_ready = load && (!flush || (!s_last && s_bytes != (LB + 1)'(B)));
  assign take = s_valid && s_ready;

  assign at = flush ? '0 : fill;
  assign turn = s_offset - at;
  assign total = {1'b0, at} + s_bytes;
  assign full = total[LB];

  // Rotates right by `turn` bytes, then lays what is kept in front.
  assign turned = DATA_W'({s_data, s_data} >> {turn, 3'b000});
  always_comb for (int i = 0; i < B; i++) joined[8*i+:8] = LB'(i) < at ? kept[8*i+:8] : turned[8*i+:8];

  function automatic logic [B-1:0] ones(input logic [LB:0] count);
    return ~({B{1'b1}} << count);
  endfunction

  always_ff @(posedge clk) begin
    if (take) kept <= full ? turned : joined;
    if (load) begin
      m_axis_tdata <= flush ? kept : joined;
      m_axis_tkeep <= flush ? ones({1'b0, fill}) : full ? '1 : ones(total);
      m_axis_tlast <= flush || (s_last && (!full || total[LB-1:0] == '0));
    end
  end

  always_ff @(posedge clk) begin
    if (load) begin
      m_axis_tvalid <= flush || (take && (full || s_last));
      flush <= !flush && take && s_last && full && total[LB-1:0] != '0;
    end
    if (take) fill <= s_last && !(full && total[LB-1:0] != '0) ? '0 : total[LB-1:0];
    else if (load && flush) fill <= '0;
    if (rst) begin
      m_axis_tvalid <= 1'b0;
      flush <= 1'b0;
      fill <= '0;
    end
  end
endmodule
