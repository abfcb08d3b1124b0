// EFE: a session with one peer over an Ethernet that loses, repeats and reorders frames, as docs/wire.md says, both modes, without keys.
//
// Bodies of Data frames in by `s_axis_*`, a packet each, at most `body_bytes` long and a row of records; the peer's out by `m_axis_*`, each once
// and in order. `s_mac_*` and `m_mac_*` carry frames as Ethernet's payload, from the header's first byte to the check; `s_mac_*` takes a beat a clock.
// Nothing of a session that has ended comes out of the next, but what the reader of `m_axis_*` has to forget when `up` falls.
module es_efe #(
    parameter int DATA_W        = 64,            // bits of tdata: 64, 128, 256 or 512
    parameter int CLOCK_NS      = 8,             // ns of a clock
    parameter int SLOTS         = 16,            // frames on their way in each direction, a power of two, 4 to 128
    parameter int FRAME_BYTES   = 1500,          // largest frame, 576 to 9216
    parameter int QUEUE_NS      = 88_560,        // queue aimed at, ns
    parameter int RTO_MIN_NS    = 1_000_000,     // least margin of the retransmission timeout, ns
    parameter int ACK_DELAY_NS  = 50_000,        // ns until a single frame is acknowledged
    parameter int HEARTBEAT_NS  = 100_000_000,   // ns of silence until the peer is asked for a sign
    parameter int DEAD_AFTER_NS = 1_000_000_000  // ns of silence until a session is dead
) (
    input wire clk,
    input wire rst,

    input  wire          open,
    input  wire          broken,        // a body that came is none: the session is closed for that
    input  wire          active,        // greets; otherwise listens
    input  wire          want_classic,
    input  wire  [ 31:0] features,      // bits of the Hello that are offered beside CLASSIC
    input  wire  [127:0] node,
    input  wire  [ 31:0] fresh,         // a random number, not 0: the next epoch
    output logic         up,
    output logic         classic,
    output logic [ 31:0] agreed,        // bits of `features` that both sides offer
    output logic [ 15:0] body_bytes,
    output logic [127:0] peer,          // node ID of the other side

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    input wire [  DATA_W-1:0] s_mac_tdata,
    input wire [DATA_W/8-1:0] s_mac_tkeep,
    input wire                s_mac_tuser,
    input wire                s_mac_tlast,
    input wire                s_mac_tvalid,

    output logic [  DATA_W-1:0] m_mac_tdata,
    output logic [DATA_W/8-1:0] m_mac_tkeep,
    output logic                m_mac_tlast,
    output logic                m_mac_tvalid,
    input  wire                 m_mac_tready,

    output logic [15:0] window,           // frames, of the controller
    output logic [31:0] srtt,             // ns
    output logic [31:0] stat_good,        // frames whose check was good
    output logic [31:0] stat_refused,
    output logic [31:0] stat_check,
    output logic [31:0] stat_full,
    output logic [31:0] stat_sessions,
    output logic [31:0] stat_dropped,
    output logic [31:0] stat_violations,
    output logic [31:0] stat_taken,       // Data frames
    output logic [31:0] stat_old,
    output logic [31:0] stat_unwanted,
    output logic [31:0] stat_again,       // retransmissions
    output logic [31:0] stat_timeouts,
    output logic [31:0] stat_probes
);
  localparam int BYTES = DATA_W / 8;
  localparam int SLOT_BEATS = 1 << $clog2((FRAME_BYTES - 96 + BYTES - 1) / BYTES);
  // Two full frames that wait to be looked at.
  localparam int DEPTH = 2 << $clog2((FRAME_BYTES + BYTES - 1) / BYTES);

  if (SLOTS < 4 || SLOTS > 128 || CLOCK_NS < 1 || FRAME_BYTES < 576 || FRAME_BYTES > 9216) begin : gen_check
    $error("es_efe: SLOTS is not 4 to 128, CLOCK_NS below 1, or FRAME_BYTES not 576 to 9216");
  end

  logic [31:0] now;
  always_ff @(posedge clk) now <= rst ? '0 : now + CLOCK_NS;

  // In.
  logic [DATA_W-1:0] good_data, in_data;
  logic [BYTES-1:0] good_keep, in_keep;
  logic good_last, good_valid, good_ready, in_last, in_valid, in_ready;
  es_wire_pkg::header_t in_header;
  es_wire_pkg::sack_t   in_sack;
  logic in_hdr_valid, in_hdr_ready;
  logic [DATA_W-1:0] next_data;
  logic [ BYTES-1:0] next_keep;
  logic next_last, next_valid, next_ready;

  es_check_verify #(
      .DATA_W(DATA_W),
      .DEPTH (DEPTH)
  ) verify (
      .clk,
      .rst,
      .s_axis_tdata (s_mac_tdata),
      .s_axis_tkeep (s_mac_tkeep),
      .s_axis_tuser (s_mac_tuser),
      .s_axis_tlast (s_mac_tlast),
      .s_axis_tvalid(s_mac_tvalid),
      .m_axis_tdata (good_data),
      .m_axis_tkeep (good_keep),
      .m_axis_tlast (good_last),
      .m_axis_tvalid(good_valid),
      .m_axis_tready(good_ready),
      .stat_good,
      .stat_refused,
      .stat_check,
      .stat_full
  );

  es_frame_parse #(
      .DATA_W(DATA_W)
  ) parse (
      .clk,
      .rst,
      .s_axis_tdata (good_data),
      .s_axis_tkeep (good_keep),
      .s_axis_tlast (good_last),
      .s_axis_tvalid(good_valid),
      .s_axis_tready(good_ready),
      .m_hdr_header (in_header),
      .m_hdr_sack   (in_sack),
      .m_hdr_valid  (in_hdr_valid),
      .m_hdr_ready  (in_hdr_ready),
      .m_axis_tdata (next_data),
      .m_axis_tkeep (next_keep),
      .m_axis_tlast (next_last),
      .m_axis_tvalid(next_valid),
      .m_axis_tready(next_ready)
  );

  // The body goes on while the header is looked at.
  es_fifo #(
      .WIDTH(DATA_W + BYTES + 1),
      .DEPTH(16)
  ) ahead (
      .clk,
      .rst,
      .s_data ({next_last, next_keep, next_data}),
      .s_valid(next_valid),
      .s_ready(next_ready),
      .m_data ({in_last, in_keep, in_data}),
      .m_valid(in_valid),
      .m_ready(in_ready)
  );

  // The session.
  /* verilator lint_off UNUSEDSIGNAL */
  es_wire_pkg::header_t header;
  /* verilator lint_on UNUSEDSIGNAL */
  es_wire_pkg::sack_t   sack;
  always_ff @(posedge clk) if (in_hdr_valid && in_hdr_ready) sack <= in_sack;

  logic session_rst, rx_valid, rx_take, rx_beyond, rx_in_order, rx_body, rx_gap;
  logic [31:0] rx_next, rx_credit, peer_first;
  logic ack_valid, begin_credit, tx_busy, tx_violation, tx_due, tx_again, tx_sent, tx_starved, tx_body_ends;
  logic [31:0] begin_window, tx_sequence, tx_next;
  logic [15:0] tx_length;
  logic sample_valid;
  logic [31:0] sample, sample_sent;
  es_wire_pkg::header_t out_header;
  es_wire_pkg::sack_t   out_sack;
  logic out_hdr_valid, out_hdr_ready;
  logic [DATA_W-1:0] own_data, tx_data, body_data;
  logic [BYTES-1:0] own_keep, tx_keep, body_keep;
  logic own_last, own_valid, own_ready, tx_last, tx_valid, tx_ready, body_last, body_valid, body_ready;

  es_efe_control #(
      .DATA_W(DATA_W),
      .SLOTS(SLOTS),
      .FRAME_BYTES(FRAME_BYTES),
      .ACK_DELAY_NS(ACK_DELAY_NS),
      .HEARTBEAT_NS(HEARTBEAT_NS),
      .DEAD_AFTER_NS(DEAD_AFTER_NS)
  ) control (
      .clk,
      .rst,
      .open,
      .broken,
      .active,
      .want_classic,
      .features,
      .node,
      .fresh,
      .now,
      .up,
      .session_rst,
      .classic,
      .agreed,
      .body_bytes,
      .peer,
      .s_hdr_header (in_header),
      .s_hdr_valid  (in_hdr_valid),
      .s_hdr_ready  (in_hdr_ready),
      .header,
      .s_axis_tdata (in_data),
      .s_axis_tlast (in_last),
      .s_axis_tvalid(in_valid),
      .s_axis_tready(in_ready),
      .rx_valid,
      .rx_take,
      .rx_beyond,
      .rx_in_order,
      .rx_body,
      .rx_next,
      .rx_credit,
      .rx_gap,
      .peer_first,
      .ack_valid,
      .begin_credit,
      .begin_window,
      .tx_busy,
      .tx_violation,
      .tx_due,
      .tx_again,
      .tx_sequence,
      .tx_length,
      .tx_sent,
      .tx_next,
      .tx_starved,
      .tx_body_ends,
      .sample_valid,
      .sample,
      .sample_sent,
      .m_hdr_header (out_header),
      .m_hdr_valid  (out_hdr_valid),
      .m_hdr_ready  (out_hdr_ready),
      .m_axis_tdata (own_data),
      .m_axis_tkeep (own_keep),
      .m_axis_tlast (own_last),
      .m_axis_tvalid(own_valid),
      .m_axis_tready(own_ready),
      .stat_sessions,
      .stat_dropped,
      .stat_violations
  );

  es_efe_receive #(
      .DATA_W(DATA_W),
      .SLOTS(SLOTS),
      .SLOT_BEATS(SLOT_BEATS)
  ) receive (
      .clk,
      .rst(session_rst),
      .clear(rst),
      .classic,
      .first(peer_first),
      .s_sequence(header.sequence_number),
      .s_length(header.body_length),
      .s_valid(rx_valid),
      .s_take(rx_take),
      .s_beyond(rx_beyond),
      .s_in_order(rx_in_order),
      .s_axis_tdata(in_data),
      .s_axis_tkeep(in_keep),
      .s_axis_tlast(in_last),
      .s_axis_tvalid(in_valid && in_ready && rx_body),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready,
      .next(rx_next),
      .credit(rx_credit),
      .gap(rx_gap),
      .sack(out_sack),
      .stat_taken,
      .stat_old,
      .stat_dropped(stat_unwanted)
  );

  logic timeout, loss, acked;
  logic [31:0] rtt, base, rto;

  es_efe_send #(
      .DATA_W(DATA_W),
      .SLOTS(SLOTS),
      .SLOT_BEATS(SLOT_BEATS)
  ) send (
      .clk,
      .rst(session_rst),
      .clear(rst),
      .classic,
      .now,
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid,
      .s_axis_tready,
      .due(tx_due),
      .due_again(tx_again),
      .due_sequence(tx_sequence),
      .due_length(tx_length),
      .sent(tx_sent),
      .m_axis_tdata(tx_data),
      .m_axis_tkeep(tx_keep),
      .m_axis_tlast(tx_last),
      .m_axis_tvalid(tx_valid),
      .m_axis_tready(tx_ready),
      .first(32'd0),
      .begin_credit,
      .ack_valid,
      .ack(header.ack),
      .ack_credit(begin_credit ? begin_window : header.credit),
      .ack_sack(header.flags.sack),
      .sack,
      .ack_echo(header.flags.echo),
      .echo_ts(header.echo_ts),
      .busy(tx_busy),
      .violation(tx_violation),
      .window,
      .rtt,
      .base,
      .srtt,
      .rto,
      .timeout,
      .loss,
      .acked,
      .next(tx_next),
      .starved(tx_starved),
      .stat_again,
      .stat_timeouts,
      .stat_probes
  );

  logic [31:0] receiver_cap;
  always_ff @(posedge clk) begin
    if (session_rst) receiver_cap <= es_wire_pkg::NO_CAP;
    else if (ack_valid && !begin_credit) receiver_cap <= header.receiver_cap;
  end

  es_efe_rate #(
      .SLOTS(SLOTS),
      .QUEUE_NS(QUEUE_NS),
      .RTO_MIN_NS(RTO_MIN_NS)
  ) rate (
      .clk,
      .rst(session_rst),
      .now,
      .sample_valid,
      .sample,
      .sample_sent,
      .receiver_cap,
      .acked,
      .timeout,
      .loss,
      .window,
      .rtt,
      .base,
      .srtt,
      .rto
  );

  // Out. Bodies of the control's own frames leave only while no other does.
  assign body_data = own_valid ? own_data : tx_data;
  assign body_keep = own_valid ? own_keep : tx_keep;
  assign body_last = own_valid ? own_last : tx_last;
  assign body_valid = own_valid || tx_valid;
  assign own_ready = body_ready;
  assign tx_ready = body_ready && !own_valid;
  assign tx_body_ends = tx_valid && tx_ready && tx_last;

  // The SACK block of the clock in which the header was made.
  es_wire_pkg::sack_t out_sack_kept;
  always_ff @(posedge clk) if (!out_hdr_valid) out_sack_kept <= out_sack;

  logic [DATA_W-1:0] bare_data;
  logic [ BYTES-1:0] bare_keep;
  logic bare_last, bare_valid, bare_ready;

  es_frame_build #(
      .DATA_W(DATA_W)
  ) build (
      .clk,
      .rst,
      .s_hdr_header (out_header),
      .s_hdr_sack   (out_sack_kept),
      .s_hdr_valid  (out_hdr_valid),
      .s_hdr_ready  (out_hdr_ready),
      .s_axis_tdata (body_data),
      .s_axis_tkeep (body_keep),
      .s_axis_tlast (body_last),
      .s_axis_tvalid(body_valid),
      .s_axis_tready(body_ready),
      .m_axis_tdata (bare_data),
      .m_axis_tkeep (bare_keep),
      .m_axis_tlast (bare_last),
      .m_axis_tvalid(bare_valid),
      .m_axis_tready(bare_ready)
  );

  es_check_append #(
      .DATA_W(DATA_W)
  ) append (
      .clk,
      .rst,
      .s_axis_tdata (bare_data),
      .s_axis_tkeep (bare_keep),
      .s_axis_tlast (bare_last),
      .s_axis_tvalid(bare_valid),
      .s_axis_tready(bare_ready),
      .m_axis_tdata (m_mac_tdata),
      .m_axis_tkeep (m_mac_tkeep),
      .m_axis_tlast (m_mac_tlast),
      .m_axis_tvalid(m_mac_tvalid),
      .m_axis_tready(m_mac_tready)
  );
endmodule
