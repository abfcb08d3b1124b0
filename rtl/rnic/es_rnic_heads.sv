// Segments as they come: all bytes into a FIFO, the first 48 beside it, as soon as they are there.
//
// The data wait until what is said of their head is known. A head is there in the clock after the beat that completes it.
module es_rnic_heads #(
    parameter int DATA_W = 64
) (
    input wire clk,
    input wire rst,

    // Segments: length and peer, and their bytes.
    input  wire  [        15:0] s_seg_length,
    input  wire  [        15:0] s_seg_peer,
    input  wire                 s_seg_valid,
    output logic                s_seg_ready,
    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output es_rnic_pkg::head_t head,
    output logic               head_valid,
    input  wire                head_done,

    // Beats with the count of their bytes.
    output logic [        DATA_W-1:0] m_data,
    output logic [$clog2(DATA_W/8):0] m_bytes,
    output logic                      m_last,
    output logic                      m_valid,
    input  wire                       m_ready
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  localparam int H = 384;
  localparam int WAIT = 8192 / B;

  logic [H-1:0] head_now, head_kept;
  logic [6:0] head_have, head_more;
  logic told;  // the head of this segment has been handed on
  logic enough, data_ready, head_ready, take, tell;
  logic [LB:0] bytes_in;

  always_comb begin
    bytes_in = '0;
    for (int i = 0; i < B; i++) bytes_in += (LB + 1)'(s_axis_tkeep[i]);
    head_now = head_kept;
    for (int i = 0; i < H / 64; i++) if (head_have == 7'(i * 8 / B * B)) head_now[64*i+:64] = s_axis_tdata[64*(i%(B/8))+:64];
    head_more = head_have + 7'(B);
    enough = head_more >= 7'd48 || s_axis_tlast || (head_now[23] && head_more >= 7'd16);
  end
  assign take = s_axis_tvalid && s_axis_tready;
  assign tell = take && enough && !told;
  assign s_axis_tready = data_ready && head_ready && s_seg_valid;
  assign s_seg_ready = take && s_axis_tlast;

  always_ff @(posedge clk) begin
    if (take) begin
      head_kept <= head_now;
      head_have <= s_axis_tlast ? '0 : head_have >= 7'd48 ? head_have : head_more;
      told <= !s_axis_tlast && (told || enough);
    end
    if (rst) begin
      head_have <= '0;
      told <= 1'b0;
    end
  end

  es_fifo #(
      .WIDTH($bits(es_rnic_pkg::head_t)),
      .DEPTH(16)
  ) heads (
      .clk,
      .rst,
      .s_data ({head_now, s_seg_length, s_seg_peer}),
      .s_valid(tell),
      .s_ready(head_ready),
      .m_data (head),
      .m_valid(head_valid),
      .m_ready(head_done)
  );

  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo_block #(
      .WIDTH(DATA_W + LB + 2),
      .DEPTH(WAIT)
  ) waiting (
      .clk,
      .rst,
      .s_data ({s_axis_tdata, bytes_in, s_axis_tlast}),
      .s_valid(take),
      .s_ready(data_ready),
      .m_data ({m_data, m_bytes, m_last}),
      .m_valid,
      .m_ready,
      .used   ()
  );
  /* verilator lint_on PINCONNECTEMPTY */
endmodule
