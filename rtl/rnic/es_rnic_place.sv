// Placement: looks up where data go, and lays a segment's data there in pieces, with tokens behind them.
//
// A piece ends with the segment, its SGE, or where a burst of AXI has to. Nothing of a segment is handed to the write side unless the owner says so
// (`place`), which it does when all checks have passed; the rest of what is refused goes away here (`rest`).
module es_rnic_place #(
    parameter int DATA_W = 64,
    parameter int STAGS  = 256,
    parameter int PBLS   = 4096
) (
    input wire clk,
    input wire rst,

    input wire        w_smt,
    input wire        w_pbl,
    input wire [22:0] w_address,
    input wire [63:0] w_data,
    input wire [ 1:0] w_half,

    // Look-up (es_rnic_translate). What is placed goes to the address that was found last.
    input  wire  [31:0] stag,
    input  wire  [63:0] to,
    input  wire  [31:0] length,
    input  wire  [ 4:0] need,
    input  wire  [15:0] pd,
    input  wire         look,
    input  wire         drop,     // two clocks after `look` at the latest: it is not wanted
    output logic        checked,
    output logic [ 2:0] cause,
    output logic        found,
    output logic        present,
    output logic [63:0] address,
    output logic [31:0] page,     // of the region, the one found last

    // The segment at hand; one of these does its work when it can.
    input  wire                      [15:0] header_bytes,
    input  wire                      [31:0] left,          // its bytes that are not placed
    input  wire                      [31:0] sge_left,
    input  wire                             place,         // the next piece, once its place is found
    input  wire                             header,        // its header goes away
    input  wire                             rest,          // all that is left of it goes away
    input  wire                             tell,          // a token
    input  wire es_rnic_pkg::token_t        token,
    output logic                     [31:0] piece,
    output logic                            put_piece,
    output logic                            put_away,      // header or rest
    output logic                            put_token,
    output logic                            absent,        // the place is found, and its page is not there

    // Its bytes.
    input  wire  [        DATA_W-1:0] s_data,
    input  wire  [$clog2(DATA_W/8):0] s_bytes,
    input  wire                       s_last,
    input  wire                       s_valid,
    output logic                      s_ready,

    // To the write side: pieces and tokens in order, the data beside.
    output logic                [        63:0] c_address,
    output logic                [        15:0] c_bytes,
    output es_rnic_pkg::token_t                c_token,
    output logic                               c_is_token,
    output logic                               c_valid,
    input  wire                                c_ready,
    output logic                [  DATA_W-1:0] m_data,
    output logic                [DATA_W/8-1:0] m_strb,
    output logic                               m_last,
    output logic                               m_valid,
    input  wire                                m_ready
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  localparam int CUT = B * 256 < 4096 ? B * 256 : 4096;
  localparam int LC = $clog2(CUT);

  /* verilator lint_off UNUSEDSIGNAL */
  logic [11:0] nearby;
  /* verilator lint_on UNUSEDSIGNAL */

  es_rnic_translate #(
      .STAGS(STAGS),
      .PBLS (PBLS)
  ) translate (
      .valid(look),
      .*
  );

  logic [63:0] from, from_now;
  logic placed, missing, here;
  logic [31:0] least;
  logic [LC:0] most, fits;

  // The address is used in the clock in which it is found.
  assign from_now = found ? address : from;
  assign here = found || placed;
  assign absent = here && (found ? !present : missing);
  assign piece = 32'(fits);

  // How long the piece is. A look-up takes longer than what is left takes to come here, and its last clock tells where a burst ends.
  always_ff @(posedge clk) begin
    least <= left < sge_left ? left : sge_left;
    most  <= least < CUT ? least[LC:0] : (LC + 1)'(CUT);
    fits  <= (LC + 1)'(CUT) - {1'b0, nearby[LC-1:0]} < most ? (LC + 1)'(CUT) - {1'b0, nearby[LC-1:0]} : most;
  end

  always_ff @(posedge clk) begin
    if (look) placed <= 1'b0;
    if (found) begin
      from <= address;
      placed <= 1'b1;
      missing <= !present;
    end
    if (rst) placed <= 1'b0;
  end

  // Commands to the unpacker: header away, pieces, and the rest away.
  logic [LB-1:0] u_offset, u_offset_out;
  logic [15:0] u_bytes, u_bytes_out;
  logic u_drop, u_end, u_valid, u_ready, u_drop_out, u_end_out, u_valid_out, u_ready_out, w_put, w_room;

  assign put_piece = place && here && !absent && u_ready && w_room;
  assign put_away  = (header || rest) && u_ready;
  assign put_token = tell && w_room;
  assign u_valid   = put_piece || put_away;
  assign u_offset  = from_now[LB-1:0];
  assign u_bytes   = put_piece ? 16'(fits) : rest ? '0 : header_bytes;
  assign u_drop    = put_away;
  assign u_end     = put_piece ? left == piece : rest;
  assign w_put     = put_piece || put_token;

  es_fifo #(
      .WIDTH(LB + 18),
      .DEPTH(16)
  ) commands (
      .clk,
      .rst,
      .s_data ({u_offset, u_bytes, u_drop, u_end}),
      .s_valid(u_valid),
      .s_ready(u_ready),
      .m_data ({u_offset_out, u_bytes_out, u_drop_out, u_end_out}),
      .m_valid(u_valid_out),
      .m_ready(u_ready_out)
  );
  es_axis_unpack #(
      .DATA_W(DATA_W)
  ) unpack (
      .clk,
      .rst,
      .s_axis_tdata (s_data),
      .s_axis_bytes (s_bytes),
      .s_axis_tlast (s_last),
      .s_axis_tvalid(s_valid),
      .s_axis_tready(s_ready),
      .c_offset     (u_offset_out),
      .c_bytes      (u_bytes_out),
      .c_drop       (u_drop_out),
      .c_end        (u_end_out),
      .c_valid      (u_valid_out),
      .c_ready      (u_ready_out),
      .m_data,
      .m_strb,
      .m_last,
      .m_valid,
      .m_ready
  );
  es_fifo #(
      .WIDTH(64 + 16 + 1 + $bits(es_rnic_pkg::token_t)),
      .DEPTH(16)
  ) writes (
      .clk,
      .rst,
      .s_data ({from_now, 16'(fits), put_token, token}),
      .s_valid(w_put),
      .s_ready(w_room),
      .m_data ({c_address, c_bytes, c_is_token, c_token}),
      .m_valid(c_valid),
      .m_ready(c_ready)
  );
endmodule
