// The bridge's switch for what comes from the Function: to the host, or refused.
//
// Takes TLPs from es_peb_intake. A Request has to have the Function's ID, and may leave if both ports may master the bus and its address does not lead back to the
// Function; a Completion has to have it as the Completer and answer the Root Complex. A Non-Posted Request that is refused is answered with UR at `m_answer`;
// anything else is dropped and counted. Nothing is begun while `halt`.
//
// What is beside the Function, and decodes the address of its Memory Request, gets that (`m_peer`), if the ports lead there; who decodes is looked at before the ports.
//
// A clock and its beats for each TLP.
module es_peb_up #(
    parameter int DATA_W = 64  // bits of tdata
) (
    input wire clk,
    input wire rst,  // what is on its way is forgotten
    input wire clear,  // the counters
    input wire halt,
    output logic busy,
    output logic peer_busy,  // a TLP goes to the peer

    input  wire  [15:0] function_id,
    input  wire  [15:0] port_id,
    input  wire         master,
    output logic [63:0] address,
    input  wire         address_taken,  // `claims` will be of another address in the next clock
    input  wire         claims,         // about `address` of the clock before
    input  wire         peer_hit,       // the peer decodes it, about that of the clock before, too
    input  wire         peer_claims,    // the peer's port leads there, the same
    input  wire         peer_master,

    input  wire es_peb_pkg::tlp_t s_hdr_tlp,
    input  wire                   s_hdr_good,
    input  wire                   s_hdr_valid,
    output logic                  s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [12:0] m_hdr_bytes,
    output logic        m_hdr_valid,
    input  wire         m_hdr_ready,

    // The same packet for the peer: a header, then beats.
    output es_peb_pkg::tlp_t m_peer_tlp,
    output logic             m_peer_valid,
    input  wire              m_peer_ready,
    output logic             m_peer_tvalid,
    input  wire              m_peer_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output es_peb_pkg::tlp_t m_answer,        // of 12 bytes
    output logic             m_answer_valid,
    input  wire              m_answer_ready,

    output logic [25:0] done,       // a transaction of the host that the Function has answered
    output logic        done_valid,

    output logic [31:0] stat_forwarded,
    output logic [31:0] stat_malformed,
    output logic [31:0] stat_spoofed,    // Requester or Completer is not the Function
    output logic [31:0] stat_refused     // not permitted, or to nowhere
);
  // A TLP is looked at while the one before it passes, so that the reader sees early what it can put beside that.
  localparam logic [2:0] IDLE = 3'd0, LOOK = 3'd1, JUDGE = 3'd2, PASS = 3'd3, DROP = 3'd4, PEER = 3'd5;

  logic [2:0] head, rest;  // of the TLP whose header was taken, and of the one whose beats go
  logic [2:0] group;
  es_peb_pkg::tlp_t tlp;
  logic good, posted, ours, permitted, to_peer, look_now;

  assign s_hdr_ready = head == IDLE && !halt && !m_answer_valid;
  // An answer that waits is forgotten with what it answers.
  assign busy = head != IDLE || rest != IDLE;
  assign peer_busy = head == PEER || rest == PEER;
  always_ff @(posedge clk)
    if (s_hdr_ready) begin
      tlp  <= s_hdr_tlp;
      good <= s_hdr_good;
    end

  es_peb_pkg::tlp_t blank;
  // Of a TLP that was taken in the clock before the last one, or sooner.
  always_ff @(posedge clk) begin
    group  <= es_peb_pkg::group(tlp);
    posted <= es_peb_pkg::class_of(tlp) == es_peb_pkg::POSTED;
    ours   <= tlp.requester == function_id && function_id[15:8] != '0;
    blank  <= es_peb_pkg::completion(tlp);
  end
  assign address = es_peb_pkg::address(tlp);
  always_comb begin
    case (group)
      es_peb_pkg::MEMORY, es_peb_pkg::ATOMIC: permitted = peer_hit ? to_peer : master && !claims;
      // Of Messages those to the Root Complex, and INTx and the like, which end at the other end of the Link: there is none between.
      es_peb_pkg::MESSAGE: permitted = tlp.kind[2:0] == 3'd0 || tlp.kind[2:0] == 3'd4 || tlp.kind[2:0] == 3'd5;
      es_peb_pkg::COMPLETE: permitted = tlp.dw2[31:24] == '0;
      default: permitted = 1'b0;
    endcase
  end
  assign to_peer  = group == es_peb_pkg::MEMORY && peer_hit && peer_claims && peer_master;
  assign look_now = head == JUDGE;

  always_ff @(posedge clk) begin
    case (head)
      IDLE: if (s_hdr_valid && s_hdr_ready) head <= LOOK;
      LOOK: if (!address_taken) head <= JUDGE;
      JUDGE: begin
        head <= !(good && ours && permitted) ? DROP : to_peer ? PEER : PASS;
        m_answer_valid <= good && group != es_peb_pkg::COMPLETE && !posted && !(ours && permitted);
      end
      PASS: if (m_hdr_valid && m_hdr_ready) head <= IDLE;
      PEER: if (m_peer_valid && m_peer_ready) head <= IDLE;
      default: if (rest == IDLE) head <= IDLE;
    endcase
    // The reader takes a header when it has all of the TLP before.
    if (m_hdr_valid && m_hdr_ready) rest <= PASS;
    else if (m_peer_valid && m_peer_ready) rest <= PEER;
    else if (head == DROP && rest == IDLE) rest <= DROP;
    else if (s_axis_tvalid && s_axis_tready && s_axis_tlast) rest <= IDLE;
    if (m_answer_valid && m_answer_ready) m_answer_valid <= 1'b0;
    done_valid <= look_now && good && ours && group == es_peb_pkg::COMPLETE;
    if (rst) begin
      head <= IDLE;
      rest <= IDLE;
      m_answer_valid <= 1'b0;
      done_valid <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    done <= es_peb_pkg::transaction(tlp);
    if (look_now) m_answer <= es_peb_pkg::filled(blank, port_id, es_peb_pkg::UNSUPPORTED, 1'b0, 32'd0);
  end

  assign m_hdr_bytes   = 13'(tlp.fmt[0] ? 16 : 12) + (tlp.fmt[1] ? {es_peb_pkg::length_dw(tlp), 2'b00} : 13'd0);
  assign m_hdr_valid   = head == PASS && (rest == IDLE || rest == PASS);
  assign m_peer_tlp    = tlp;
  assign m_peer_valid  = head == PEER && rest == IDLE;
  assign m_axis_tdata  = s_axis_tdata;
  assign m_axis_tkeep  = s_axis_tkeep;
  assign m_axis_tlast  = s_axis_tlast;
  assign m_axis_tvalid = s_axis_tvalid && rest == PASS;
  assign m_peer_tvalid = s_axis_tvalid && rest == PEER;
  assign s_axis_tready = (rest == PASS && m_axis_tready) || (rest == PEER && m_peer_tready) || rest == DROP;

  always_ff @(posedge clk) begin
    if (look_now) begin
      if (!good) stat_malformed <= stat_malformed + 1'b1;
      else if (!ours) stat_spoofed <= stat_spoofed + 1'b1;
      else if (!permitted) stat_refused <= stat_refused + 1'b1;
      else if (!to_peer) stat_forwarded <= stat_forwarded + 1'b1;
    end
    if (clear) begin
      stat_forwarded <= '0;
      stat_malformed <= '0;
      stat_spoofed   <= '0;
      stat_refused   <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      one_after_the_other : assert (!(m_hdr_valid && m_hdr_ready && rest != IDLE));
      answer_is_kept : assert (!(look_now && m_answer_valid));
    end
  end
`endif
endmodule
