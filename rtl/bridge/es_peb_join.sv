// TLPs of the host and answers to the Function's own Requests, one after the other into es_peb_order.
//
// An answer is a Completion without data. It goes first. No clock is added to the host's TLPs.
module es_peb_join #(
    parameter int DATA_W = 64  // bits of tdata: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire  [ 1:0] s_hdr_class,
    input  wire         s_hdr_relaxed,
    input  wire         s_hdr_fence,
    input  wire  [25:0] s_hdr_transaction,
    input  wire         s_hdr_valid,
    output logic        s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    input  wire es_peb_pkg::tlp_t s_answer,
    input  wire                   s_answer_valid,
    output logic                  s_answer_ready,

    output logic [ 1:0] m_hdr_class,
    output logic        m_hdr_relaxed,
    output logic        m_hdr_fence,
    output logic [25:0] m_hdr_transaction,
    output logic        m_hdr_valid,
    input  wire         m_hdr_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int BYTES = DATA_W / 8;

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_peb_join: DATA_W is not 64, 128, 256 or 512");
  end

  logic answering, passing, second;  // whose packet goes; the second half of an answer
  logic [127:0] answer;
  logic answer_ends;

  assign s_answer_ready = m_hdr_ready && !answering && !passing;
  assign s_hdr_ready = m_hdr_ready && !answering && !passing && !s_answer_valid;
  assign m_hdr_valid = (s_hdr_valid || s_answer_valid) && !answering && !passing;
  assign m_hdr_class = s_answer_valid ? es_peb_pkg::COMPLETION : s_hdr_class;
  assign m_hdr_relaxed = s_answer_valid ? s_answer.attr[1] : s_hdr_relaxed;
  assign m_hdr_fence = s_hdr_fence && !s_answer_valid;
  assign m_hdr_transaction = s_hdr_transaction;

  assign answer_ends = DATA_W > 64 || second;
  assign s_axis_tready = passing && m_axis_tready;
  assign m_axis_tvalid = answering || (passing && s_axis_tvalid);
  assign m_axis_tlast = answering ? answer_ends : s_axis_tlast;
  if (DATA_W == 64) begin : gen_halves
    assign m_axis_tdata = !answering ? s_axis_tdata : second ? answer[127:64] : answer[63:0];
    assign m_axis_tkeep = !answering ? s_axis_tkeep : second ? BYTES'(8'h0F) : '1;
  end else begin : gen_whole
    assign m_axis_tdata = !answering ? s_axis_tdata : DATA_W'(answer);
    assign m_axis_tkeep = !answering ? s_axis_tkeep : BYTES'(16'h0FFF);
  end

  always_ff @(posedge clk) begin
    if (s_answer_valid && s_answer_ready) begin
      answering <= 1'b1;
      second <= 1'b0;
      answer <= es_peb_pkg::swap16(s_answer);
    end else if (s_hdr_valid && s_hdr_ready) begin
      passing <= 1'b1;
    end
    if (answering && m_axis_tready) begin
      second <= 1'b1;
      if (answer_ends) answering <= 1'b0;
    end
    if (passing && s_axis_tvalid && m_axis_tready && s_axis_tlast) passing <= 1'b0;
    if (rst) begin
      answering <= 1'b0;
      passing   <= 1'b0;
    end
  end
endmodule
