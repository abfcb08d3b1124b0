// Puts a frame's header, and its SACK block if the flag SACK is set, in front of its body.
//
// A header is taken by `s_hdr_*`; if its body_length is not 0, one packet of `s_axis_*` follows as the body. The frame leaves without check.
// Latency 3 clocks from header to first beat; full rate, no clock between frames whose headers wait.
module es_frame_build #(
    parameter int DATA_W = 64  // bits of tdata: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire es_wire_pkg::header_t s_hdr_header,
    input  wire es_wire_pkg::sack_t   s_hdr_sack,
    input  wire                       s_hdr_valid,
    output logic                      s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int BYTES = DATA_W / 8;
  localparam int HEAD_W = 8 * (es_wire_pkg::HEADER_BYTES + es_wire_pkg::SACK_BYTES);
  // Room for a whole number of beats.
  localparam int ROOM_W = (HEAD_W + DATA_W - 1) / DATA_W * DATA_W;

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_frame_build: DATA_W is not 64, 128, 256 or 512");
  end

  localparam logic [1:0] IDLE = 2'd0, HEAD = 2'd1, BODY = 2'd2, TAIL = 2'd3;

  // The header that waits for its turn.
  logic [ROOM_W-1:0] next;
  logic next_valid, next_sack, next_body;

  logic [1:0] state;
  logic [ROOM_W-1:0] head;  // what is left of the header, from bit 0
  logic [3:0] beats;  // whole beats of it still to leave
  logic [1:0] odd;  // pieces of 16 bytes of it behind the last whole beat
  logic with_body;

  // The bytes in front of the body's next beat.
  logic [DATA_W-1:0] carry;
  logic [BYTES-1:0] carry_keep;
  logic [2*DATA_W-1:0] joined;
  logic [2*BYTES-1:0] joined_keep;

  assign joined = {{DATA_W{1'b0}}, carry} | ({{DATA_W{1'b0}}, s_axis_tdata} << {odd, 7'd0});
  assign joined_keep = {{BYTES{1'b0}}, carry_keep} | ({{BYTES{1'b0}}, s_axis_tkeep} << {odd, 4'd0});

  logic out_valid, out_ready, out_last, moved, load;
  logic [DATA_W-1:0] out_data;
  logic [ BYTES-1:0] out_keep;

  always_comb begin
    out_data  = head[DATA_W-1:0];
    out_keep  = '1;
    out_last  = 1'b0;
    out_valid = 1'b0;
    case (state)
      HEAD: begin
        out_valid = 1'b1;
        out_last  = beats == 4'd1 && odd == 2'd0 && !with_body;
      end
      BODY: begin
        out_valid = s_axis_tvalid;
        out_data  = joined[DATA_W-1:0];
        out_keep  = joined_keep[BYTES-1:0];
        out_last  = s_axis_tlast && joined_keep[2*BYTES-1:BYTES] == '0;
      end
      TAIL: begin
        out_valid = 1'b1;
        out_data  = carry;
        out_keep  = carry_keep;
        out_last  = 1'b1;
      end
      default: ;
    endcase
  end

  assign moved = out_valid && out_ready;
  assign load = next_valid && (state == IDLE || (moved && out_last));
  assign s_axis_tready = state == BODY && out_ready;
  assign s_hdr_ready = !next_valid;

  // A header is 3 or 5 pieces of 16 bytes; what that is in beats follows from the width.
  logic [2:0] pieces;
  logic [3:0] next_beats;
  logic [1:0] next_odd;

  assign pieces = next_sack ? 3'd5 : 3'd3;
  always_comb begin
    next_odd = 2'd0;
    case (DATA_W)
      64:  next_beats = {pieces, 1'b0};
      128: next_beats = {1'b0, pieces};
      256: begin
        next_beats = {2'd0, pieces[2:1]};
        next_odd   = {1'b0, pieces[0]};
      end
      default: begin
        next_beats = {3'd0, pieces[2]};
        next_odd   = pieces[1:0];
      end
    endcase
  end

  always_ff @(posedge clk) begin
    if (s_hdr_ready) begin
      next <= '0;
      next[HEAD_W-1:0] <= {s_hdr_header.flags.sack ? es_wire_pkg::swap32(s_hdr_sack) : 256'd0, es_wire_pkg::swap48(s_hdr_header)};
      next_sack <= s_hdr_header.flags.sack;
      next_body <= s_hdr_header.body_length != 16'd0;
      next_valid <= s_hdr_valid;
    end
    if (moved) begin
      case (state)
        HEAD: begin
          head  <= head >> DATA_W;
          beats <= beats - 4'd1;
          if (beats == 4'd1) begin
            carry <= DATA_W'(head >> DATA_W);
            if (with_body) state <= BODY;
            else if (odd != 2'd0) state <= TAIL;
            else state <= IDLE;
          end
        end
        BODY: begin
          carry <= joined[2*DATA_W-1:DATA_W];
          carry_keep <= joined_keep[2*BYTES-1:BYTES];
          if (out_last) state <= IDLE;
          else if (s_axis_tlast) state <= TAIL;
        end
        default: state <= IDLE;
      endcase
    end
    if (load) begin
      next_valid <= 1'b0;
      head <= next;
      beats <= next_beats;
      odd <= next_odd;
      with_body <= next_body;
      carry <= next[DATA_W-1:0];
      carry_keep <= ~({BYTES{1'b1}} << {next_odd, 4'd0});
      if (next_beats != 4'd0) state <= HEAD;
      else if (next_body) state <= BODY;
      else state <= TAIL;
    end
    if (rst) begin
      state <= IDLE;
      next_valid <= 1'b0;
    end
  end

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
