// Parts a frame, as es_check_verify lets it through, into header, SACK block and body.
//
// A header waits at `m_hdr_*`; if its body_length is not 0, one packet of `m_axis_*` is its body. The body may come before its header is taken, but no
// second header before the first is. `m_hdr_sack` means something if the flag SACK is set. Full rate for 64 and 128 bit; a clock more a frame if a body that is
// shifted ends in a beat of its own. Latency 2 clocks from the header's last beat.
module es_frame_parse #(
    parameter int DATA_W = 64  // bits of tdata: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output es_wire_pkg::header_t m_hdr_header,
    output es_wire_pkg::sack_t   m_hdr_sack,
    output logic                 m_hdr_valid,
    input  wire                  m_hdr_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int BYTES = DATA_W / 8;
  localparam int HEAD_W = 8 * (es_wire_pkg::HEADER_BYTES + es_wire_pkg::SACK_BYTES);
  localparam int BEATS = (HEAD_W + DATA_W - 1) / DATA_W;

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_frame_parse: DATA_W is not 64, 128, 256 or 512");
  end

  localparam logic [1:0] HEAD = 2'd0, BODY = 2'd1, TAIL = 2'd2;

  logic [1:0] state;
  logic [3:0] index;  // beat of the header
  logic [HEAD_W-1:0] head;
  logic sack_kept, sack;
  logic [2:0] pieces;  // of 16 bytes, of the header
  logic [3:0] end_index;  // the beat in which it ends
  logic [1:0] odd;  // its pieces in that beat, 0 for a whole one

  assign sack   = index == 4'd0 ? s_axis_tdata[8] : sack_kept;
  assign pieces = sack ? 3'd5 : 3'd3;
  always_comb begin
    odd = 2'd0;
    case (DATA_W)
      64:  end_index = {pieces, 1'b0} - 4'd1;
      128: end_index = {1'b0, pieces} - 4'd1;
      256: begin
        end_index = {2'd0, pieces[2:1]};
        odd = {1'b0, pieces[0]};
      end
      default: begin
        end_index = {3'd0, pieces[2]};
        odd = pieces[1:0];
      end
    endcase
  end

  // What is left of a beat whose front has gone out, or was header; shifted to bit 0.
  logic [DATA_W-1:0] carry;
  logic [BYTES-1:0] carry_keep;
  logic [1:0] odd_kept;
  logic [2*DATA_W-1:0] joined;
  logic [2*BYTES-1:0] joined_keep;

  assign joined = {s_axis_tdata, {DATA_W{1'b0}}} >> {odd_kept, 7'd0};
  assign joined_keep = {s_axis_tkeep, {BYTES{1'b0}}} >> {odd_kept, 4'd0};

  logic out_valid, out_ready, out_last, take, head_ends;
  logic [DATA_W-1:0] out_data;
  logic [ BYTES-1:0] out_keep;
  logic [DATA_W-1:0] behind;
  logic [ BYTES-1:0] behind_keep;

  // With no odd pieces a beat goes through as it is: `joined` has it in its upper half.
  always_comb begin
    out_valid = 1'b0;
    out_data  = carry;
    out_keep  = carry_keep;
    out_last  = 1'b1;
    if (state == BODY) begin
      out_valid = s_axis_tvalid;
      out_data  = odd_kept == 2'd0 ? s_axis_tdata : carry | joined[DATA_W-1:0];
      out_keep  = odd_kept == 2'd0 ? s_axis_tkeep : carry_keep | joined_keep[BYTES-1:0];
      out_last  = s_axis_tlast && (odd_kept == 2'd0 || joined_keep[2*BYTES-1:BYTES] == '0);
    end else if (state == TAIL) begin
      out_valid = 1'b1;
    end
  end

  // A header that ends may have to wait for the one before.
  assign s_axis_tready = (state == HEAD && !m_hdr_valid) || (state == BODY && out_ready);
  assign take = s_axis_tvalid && s_axis_tready;
  assign head_ends = state == HEAD && take && index == end_index;
  assign behind = s_axis_tdata >> {odd, 7'd0};
  assign behind_keep = odd == 2'd0 ? '0 : s_axis_tkeep >> {odd, 4'd0};

  always_ff @(posedge clk) begin
    if (m_hdr_ready) m_hdr_valid <= 1'b0;
    if (state == HEAD && take) begin
      sack_kept <= sack;
      index <= index + 4'd1;
    end
    if (head_ends) begin
      m_hdr_valid <= 1'b1;
      index <= 4'd0;
      odd_kept <= odd;
      carry <= behind;
      carry_keep <= behind_keep;
      if (!s_axis_tlast) state <= BODY;
      else if (behind_keep != '0) state <= TAIL;
    end
    if (state == BODY && take) begin
      carry <= joined[2*DATA_W-1:DATA_W];
      carry_keep <= joined_keep[2*BYTES-1:BYTES];
      if (out_last) state <= HEAD;
      else if (s_axis_tlast) state <= TAIL;
    end
    if (state == TAIL && out_ready) state <= HEAD;
    if (rst) begin
      state <= HEAD;
      index <= 4'd0;
      m_hdr_valid <= 1'b0;
    end
  end

  for (genvar i = 0; i < BEATS; i++) begin : gen_head
    localparam int W = HEAD_W - DATA_W * i < DATA_W ? HEAD_W - DATA_W * i : DATA_W;
    always_ff @(posedge clk) if (state == HEAD && take && index == 4'(i)) head[DATA_W*i+:W] <= s_axis_tdata[W-1:0];
  end

  assign m_hdr_header = es_wire_pkg::swap48(head[383:0]);
  assign m_hdr_sack   = es_wire_pkg::swap32(head[639:384]);

  /* verilator lint_off PINCONNECTEMPTY */
  es_axis_skid #(
      .DATA_W(DATA_W)
  ) out (
      .clk,
      .rst,
      .s_axis_tdata (out_data),
      .s_axis_tkeep (out_keep),
      .s_axis_tuser (1'b0),
      .s_axis_tlast (out_last),
      .s_axis_tvalid(out_valid),
      .s_axis_tready(out_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tuser (),
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );
  /* verilator lint_on PINCONNECTEMPTY */
endmodule
